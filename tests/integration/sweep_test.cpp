// Many runs with other values of some keys, through the command line.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>
#include <set>
#include "integration/program.h"
#include "parsed_json.h"

namespace linnet::testing {
namespace {
using Json = ParsedJson;

class Sweep : public ::testing::Test {
 protected:
  Arguments arguments(const std::string& out, const Arguments& settings, const Arguments& more) const {
    Arguments all = train_arguments(folder_ / out, {"metric=loss"});
    all[0] = "sweep", all[2] = "--out";
    add_settings(all, settings);
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  Outcome sweep(const std::string& out, const Arguments& settings, const Arguments& more = {}) const {
    return run(arguments(out, settings, more));
  }
  Json results(const std::string& out) const { return Json::parse(contents(folder_ / (out + "/sweep.json"))); }
  TemporaryFolder folder_;
};

TEST_F(Sweep, AGridIsTrainedAndRankedAsOrdinaryRunsAre) {
  const Outcome outcome = sweep("s", {"learning_rate=1e-4,1e-2", "model.dropout=0,0.1"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
  const std::vector<std::string> table = lines(outcome.out);
  ASSERT_EQ(table.size(), 6u) << outcome.out;  // a heading, four runs, and where the files are
  EXPECT_EQ(table[0].substr(0, 18), "run  learning_rate") << table[0];
  EXPECT_NE(table[1].find("1e-2"), std::string::npos) << outcome.out;  // learns more in 20 steps
  EXPECT_TRUE(exists(folder_ / "s/report.html"));
  const Json runs = results("s")["runs"];
  ASSERT_EQ(runs.size(), 4u);
  // A run is what `linnet train` makes of its settings.
  ASSERT_EQ(train(folder_ / "single", {"metric=loss", "learning_rate=1e-2", "model.dropout=0.1"}).exit_code, 0);
  EXPECT_EQ(contents(folder_ / "s/004/model.safetensors"), contents(folder_ / "single/model.safetensors"));
  EXPECT_EQ(run({"runs", folder_ / "s", "--sort", "loss"}).exit_code, 0);
}

TEST_F(Sweep, DrawnValuesLieInTheirRangesAndFollowFromTheSeed) {
  const Arguments settings{
      "learning_rate=1e-5..1e-1", "d_ff=16..64", "model.dropout=0.1,0.2", "max_steps=1", "eval_every=1"};
  ASSERT_EQ(sweep("a", settings, {"--runs", "6"}).exit_code, 0);
  ASSERT_EQ(sweep("b", settings, {"--runs", "8"}).exit_code, 0);
  ASSERT_EQ(sweep("c", settings, {"--runs", "6", "--seed", "2"}).exit_code, 0);
  const Json a = results("a")["runs"], b = results("b")["runs"], c = results("c")["runs"];
  std::set<double> rates;
  int small = 0;
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(a[i], b[i]);
    EXPECT_NE(a[i]["settings"], c[i]["settings"]);
    const std::string rate = a[i]["settings"][0], width = a[i]["settings"][1];
    const double value = std::stod(rate.substr(rate.find('=') + 1));
    EXPECT_GE(value, 1e-5);
    EXPECT_LE(value, 1e-1);
    rates.insert(value), small += value < 1e-3;
    EXPECT_EQ(width.find('.'), std::string::npos) << width;
  }
  EXPECT_EQ(rates.size(), 6u);
  EXPECT_GT(small, 0);  // drawn evenly by the logarithm, half of them are
}

// Killed at several moments and started again: finished runs are kept, others go on, and the results are the same.
TEST_F(Sweep, ASweepThatIsKilledGoesOnToTheSameResults) {
  for (const char* search : {"random", "halving"}) {
    const Arguments settings{
        "learning_rate=1e-4..1e-2", "max_steps=45", "eval_every=5", "save_every=3", "model.dropout=0.1,0.2"};
    const Arguments more{"--runs", "6", "--search", search};
    const std::string name = search;
    ASSERT_EQ(sweep(name + "-whole", settings, more).exit_code, 0);
    int kills = 0;
    for (int attempt = 0; attempt < 6; ++attempt) {
      Program program(arguments(name + "-parts", settings, more));
      ::usleep(static_cast<useconds_t>(60'000 + 35'000 * attempt));
      if (program.running()) program.send(SIGKILL), ++kills;
      program.wait();
    }
    EXPECT_GE(kills, 3);
    const Outcome last = sweep(name + "-parts", settings, more);
    ASSERT_EQ(last.exit_code, 0) << last.error;
    EXPECT_EQ(contents(folder_ / (name + "-parts/sweep.json")), contents(folder_ / (name + "-whole/sweep.json")));
    const Outcome again = sweep(name + "-whole", settings, more);
    EXPECT_EQ(lines(again.out)[1], lines(last.out)[1]);
  }
}

TEST_F(Sweep, HalvingTrainsOnlyTheBestToTheEnd) {
  const Outcome outcome =
      sweep("h", {"learning_rate=1e-5..1e-2", "max_steps=90", "eval_every=10"}, {"--runs", "9", "--search", "halving"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
  int after[3] = {};
  const Json runs = results("h")["runs"];
  EXPECT_EQ(runs.size(), 9u);
  for (const Json& run : runs) {
    ASSERT_GE(run["rounds"].size(), 1u);
    ++after[run["rounds"].size() - 1];
    EXPECT_EQ(run["rounds"][0]["steps"], 10);
  }
  EXPECT_EQ(after[0], 6);
  EXPECT_EQ(after[1], 2);
  EXPECT_EQ(after[2], 1);
  EXPECT_NE(lines(outcome.out)[1].find("  90  "), std::string::npos) << outcome.out;
}

TEST_F(Sweep, HalvingWithoutEvaluationsIsToldOf) {
  const Arguments settings{"learning_rate=1e-5..1e-2", "max_steps=9", "eval_every=9"};
  const Outcome outcome = run(arguments("h", settings, {"--runs", "3", "--search", "halving"}), {.log = "warning"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
  const std::string told = "nothing is stopped early: eval_every = 9, and runs have 9 steps; --set eval_every=3";
  EXPECT_NE(outcome.error.find(told), std::string::npos) << outcome.error;
  EXPECT_EQ(outcome.error.find(told), outcome.error.rfind(told)) << outcome.error;
}

TEST_F(Sweep, ARunThatBreaksIsARowOfTheTable) {
  const Outcome outcome = sweep("s", {"learning_rate=1e-3,1e20", "clip_norm=0", "optimizer=sgd"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_NE(lines(outcome.out)[2].find("is not finite"), std::string::npos) << outcome.out;
}

TEST_F(Sweep, MistakesAreOneLine) {
  const std::pair<Arguments, const char*> cases[] = {
      {{"learning_rate=1e-3"}, "no key has several values"},
      {{"learning_rate=1e-3..1e-5"}, "a range goes from a number up to a larger one"},
      {{"learning_rate=a..b"}, "a range goes from a number up to a larger one"},
      {{"learning_rate=1e-5..1e-3:1"}, "2 to 1000"},
      {{"learning_rat=1e-5..1e-3"}, "did you mean \"learning_rate\"?"},
      {{"learning_rate=1e-3,fast"}, "\"learning_rate\" must be a number"},
      {{"optimizer=adamw,adamm"}, "did you mean \"adam\"?"},
  };
  for (const auto& [settings, part] : cases) {
    const Outcome outcome = sweep("s", settings);
    EXPECT_EQ(outcome.exit_code, 2) << settings[0];
    EXPECT_EQ(lines(outcome.error).size(), 1u) << outcome.error;
    EXPECT_NE(outcome.error.find(part), std::string::npos) << outcome.error;
  }
  EXPECT_FALSE(exists(folder_ / "s"));
  EXPECT_NE(sweep("s", {"learning_rate=1e-5..1e-3"}, {"--search", "grid"}).error.find("learning_rate=1e-05..0.001:3"),
      std::string::npos);
  const Arguments large{"learning_rate=1e-5..1e-3:1000", "weight_decay=0..1:1000", "model.dropout=0..0.5:1000"};
  EXPECT_NE(sweep("s", large).error.find("the grid has more than 10000 combinations"), std::string::npos);
  for (const auto& [text, part] : {std::pair{"{}", "sweep.json' has no \"runs\""}, {"null", "sweep.json' is null"},
           {"{", "sweep.json' is not JSON"}}) {
    folder_.write("sweep.json", text);
    expect_user_error(sweep(".", {"learning_rate=1e-3,1e-2"}), part);
  }
  ASSERT_EQ(sweep("s", {"learning_rate=1e-3,1e-2", "max_steps=1"}).exit_code, 0);
  EXPECT_NE(sweep("s", {"learning_rate=1e-3,1e-1", "max_steps=1"}).error.find("a sweep with other values"),
      std::string::npos);
  EXPECT_NE(sweep("s", {"learning_rate=1e-3,1e-2", "max_steps=1", "batch_size=8"}).error.find("another batch_size"),
      std::string::npos);
}
}  // namespace
}  // namespace linnet::testing
