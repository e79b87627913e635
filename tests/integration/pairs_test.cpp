// Pairs of sentences in one file: trained on, evaluated, scored.
#include <gtest/gtest.h>
#include "integration/program.h"
#include "parsed_json.h"

namespace linnet::testing {
namespace {
using Json = ParsedJson;

// "<number> <animal>" and its translation, with the third column that public files have.
std::string pairs(int count, int shift) {
  const char* const english[] = {"dog", "cat", "cow", "hen"};
  const char* const german[] = {"Hund", "Katze", "Kuh", "Henne"};
  std::string text;
  for (int i = 0; i < count; ++i) {
    const int which = (i + shift) * 7 % 4, number = (i + shift) * 13 % 10;
    text += std::to_string(number) + " " + english[which] + "\t" + german[which] + " " + std::to_string(number) +
            "\tCC-BY\r\n";
  }
  return text;
}

class Pairs : public ::testing::Test {
 protected:
  void SetUp() override {
    const Outcome trained = train_pairs("run", {});
    ASSERT_EQ(trained.exit_code, 0) << trained.error;
  }
  Outcome train_pairs(const std::string& run_folder, const Arguments& more) const {
    Arguments arguments{"train", "translate", "--data", folder_.write("pairs.TSV", pairs(200, 0)), "--run",
        folder_ / run_folder, "--steps", "60", "--lr", "5e-3"};
    add_settings(arguments, {"tokenizer=char", "d_model=32", "num_heads=2", "num_layers=1", "d_ff=64", "max_seq_len=24",
                                "batch_tokens=512", "warmup_steps=10", "eval_every=60", "ema_decay=0", "threads=1"});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }
  Json evaluated(const Arguments& more) const {
    Arguments arguments{"eval", run_, "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
    return outcome.exit_code == 0 ? Json::parse(outcome.out) : Json{};
  }

  const TemporaryFolder folder_;
  const std::string run_ = folder_ / "run";
};

TEST_F(Pairs, OneFileIsTrainedOnAndEvaluated) {
  const Json own = evaluated({});
  EXPECT_EQ(own["split"], "valid");  // there is no test text
  EXPECT_EQ(own["pairs"], 20);       // a tenth of the training pairs
  const Json other = evaluated({"--data", folder_.write("test.tsv", pairs(30, 5))});
  EXPECT_EQ(other["pairs"], 30);
  EXPECT_GT(other["chrf"], 30);
  EXPECT_LE(other["chrf"], 100);
  const Outcome missing = run({"eval", run_, "--data", folder_.write("bad.tsv", "1 dog\n")});
  EXPECT_EQ(missing.exit_code, 2);
  EXPECT_NE(missing.error.find("bad.tsv:1: expected source<TAB>target, found no tab"), std::string::npos);
}

TEST_F(Pairs, ScoresAreWhatTheLossIsMadeOf) {
  // Without label smoothing the loss is the mean of the scores.
  const std::string file = folder_.write("test.tsv", pairs(30, 5));
  ASSERT_EQ(train_pairs("plain", {"--set", "label_smoothing=0"}).exit_code, 0);
  const Json json = Json::parse(run({"eval", folder_ / "plain", "--data", file, "--json"}).out);
  const Outcome scored = run({"score", folder_ / "plain", file, "--json"});
  ASSERT_EQ(scored.exit_code, 0) << scored.error;
  double sum = 0, tokens = 0;
  for (const std::string& line : lines(scored.out)) {
    const Json score = Json::parse(line);
    sum += score["log_probability"].get<double>();
    tokens += score["tokens"].get<double>();
  }
  EXPECT_NEAR(-sum / tokens, json["loss"].get<double>(), 1e-5);
  const Outcome two = run({"score", folder_ / "plain"}, {.input = "3 dog\tHund 3\n3 dog\tdnuH 9\n"});
  ASSERT_EQ(lines(two.out).size(), 2u) << two.error;
  EXPECT_GT(std::stod(lines(two.out)[0]), std::stod(lines(two.out)[1]));
  EXPECT_TRUE(lines(two.out)[0].ends_with("\t7\t3 dog\tHund 3")) << two.out;
  const std::string half = folder_.write("half.tsv", "3 dog\tHund 3\n"), third = folder_.write("third.tsv", "3 dog\n");
  EXPECT_NE(run({"score", folder_ / "plain", half, third}).error.find("third.tsv:1: expected"), std::string::npos);
  const Outcome bad = run({"score", folder_ / "plain"}, {.input = "3 dog\tHund 3\n3 dog\n"});
  EXPECT_EQ(bad.exit_code, 2);
  EXPECT_NE(bad.error.find("standard input: line 2: expected source<TAB>target"), std::string::npos) << bad.error;
}
}  // namespace
}  // namespace linnet::testing
