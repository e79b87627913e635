// `linnet plan --network`: several ranks and a network that are not here.
#include <gtest/gtest.h>
#include <algorithm>
#include <cstdlib>
#include <sstream>
#include "integration/ranks_testing.h"
#include "parsed_json.h"

namespace linnet::testing {
namespace {
// A GPT small enough for a test, whose text is assumed unless given.
Arguments plan(const Arguments& more) {
  Arguments arguments{"plan", "mini-gpt"};
  add_settings(arguments, {"d_model=64", "num_heads=4", "num_layers=4", "d_ff=128", "max_seq_len=32", "context=32",
                              "batch_size=8", "sample_length=0", "vocab_size=600", "precision=fp32"});
  arguments.insert(arguments.end(), {"--threads", "1"});
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

Arguments with_network(const Arguments& more, const std::string& network = "1GB/s,10us") {
  Arguments arguments{"--network", network, "--speed", "100GFLOP/s,10GB/s"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return plan(arguments);
}

ParsedJson answer(Arguments arguments) {
  arguments.push_back("--json");
  const Outcome outcome = run(arguments);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
  return ParsedJson::parse(outcome.out, nullptr, false);
}

// "  optimizer        12.3 MB" as 12.3.
double told(const std::string& text, const std::string& item) {
  const size_t at = text.find("  " + item + " ");
  return at == std::string::npos ? -1 : std::stod(text.substr(at + item.size() + 2));
}

TEST(Foresight, MemoryIsWhatPlanTellsWithoutANetwork) {
  const Arguments ranks{"--ranks", "4", "--parallel", "data=2,tensor=2"};
  const Outcome without = run(plan(ranks)), with = run(with_network(ranks));
  ASSERT_EQ(without.exit_code, 0) << without.error;
  ASSERT_EQ(with.exit_code, 0) << with.error;
  for (const char* item :
      {"parameters", "optimizer", "accumulated gradient", "activations, gradients", "workspace", "batches"}) {
    EXPECT_GE(told(without.out, item), 0) << item << " in " << without.out;
    EXPECT_EQ(told(without.out, item), told(with.out, item)) << item;
  }
  for (const char* part : {"gradients", "parameters", "tensor parallel", "computing", "efficiency"})
    EXPECT_NE(with.out.find(part), std::string::npos) << part << " in " << with.out;
}

TEST(Foresight, APlanWithoutANetworkIsJsonToo) {
  const ParsedJson json = answer(plan({"--ranks", "2"}));
  double sum = 0;
  for (const auto& item : json["memory"]) sum += item["bytes"].get<double>();
  EXPECT_EQ(json["peak_bytes"].get<double>(), sum);
  EXPECT_EQ(json["data"], 2);
  EXPECT_TRUE(json["fits"].get<bool>());
}

TEST(Foresight, AListOfRanksIsATable) {
  const ParsedJson json = answer(with_network({"--ranks", "1,2,4,8", "--batch-per-rank"}));
  ASSERT_EQ(json["rows"].size(), 4U);
  double before = 1.000001;
  for (size_t i = 0; i < 4; ++i) {
    const auto& row = json["rows"][i];
    EXPECT_EQ(row["ranks"], 1 << i);
    EXPECT_NEAR(row["speedup"].get<double>(), row["efficiency"].get<double>() * (1 << i), 1e-9);
    EXPECT_LT(row["efficiency"].get<double>(), before);
    before = row["efficiency"].get<double>();
  }
  EXPECT_NEAR(json["rows"][0]["efficiency"].get<double>(), 1, 1e-9);
  const Outcome outcome = run(with_network({"--ranks", "1,2,4,8", "--batch-per-rank"}));
  EXPECT_NE(outcome.out.find("100.0%"), std::string::npos) << outcome.out;
}

TEST(Foresight, TheBestLayoutFitsIntoTheMemory) {
  // Large enough that layouts differ by more than what two processes hold.
  const Arguments search = with_network(
      {"--ranks", "4", "--parallel", "auto", "--set", "d_model=512", "--set", "d_ff=2048", "--set", "batch_size=64"});
  const auto within = [&](const Arguments& more) {
    Arguments arguments = search;
    arguments.insert(arguments.end(), more.begin(), more.end());
    return answer(arguments);
  };
  const ParsedJson all = within({});
  ASSERT_GT(all["rows"].size(), 2U);
  const auto peak = [](const ParsedJson& row) { return row["peak_bytes"].get<double>(); };
  double least = peak(all["rows"][0]);
  for (const auto& row : all["rows"]) {
    EXPECT_EQ(row["data"].get<int>() * row["tensor"].get<int>() * row["pipeline"].get<int>(), 4);
    least = std::min(least, peak(row));
  }
  ASSERT_LT(least, peak(all["rows"][0]));
  const double limit = (least + peak(all["rows"][0])) / 2;
  const ParsedJson some = within({"--memory", std::to_string(static_cast<int64_t>(limit))});
  EXPECT_TRUE(some["rows"][0]["fits"].get<bool>());
  EXPECT_LE(peak(some["rows"][0]), limit);
}

// Interleaved stages take micro-batches in groups: the line that names the layout sets their number.
TEST(Foresight, TheBestLayoutIsOneThatCanBeGiven) {
  const Arguments best = {"--ranks", "2", "--set", "d_model=512", "--set", "d_ff=2048", "--set", "num_layers=4"};
  Arguments search = with_network(best, "10MB/s,10us");
  search.insert(search.end(), {"--parallel", "auto"});
  const Outcome found = run(search);
  ASSERT_EQ(found.exit_code, 0) << found.error;
  const std::string words = "best: ";
  const size_t at = found.out.find(words);
  ASSERT_NE(at, found.out.npos) << found.out;
  EXPECT_NE(found.out.find("pipeline=2", at), found.out.npos) << found.out;
  EXPECT_NE(found.out.find(" --set micro_batches=", at), found.out.npos) << found.out;
  Arguments given = plan(best);
  std::istringstream line(lines(found.out.substr(at + words.size())).front());
  for (std::string word; line >> word;) given.push_back(word);
  const Outcome planned = run(given);
  EXPECT_EQ(planned.exit_code, 0) << planned.error;
}

TEST(Foresight, TheTraceHasAllRanksAndTheStepsTime) {
  const TemporaryFolder folder;
  const std::string file = folder / "trace.json";
  const ParsedJson json = answer(
      with_network({"--ranks", "4", "--parallel", "data=2,pipeline=2", "--set", "micro_batches=2", "--trace", file}));
  const auto trace = ParsedJson::parse(contents(file));
  EXPECT_EQ(trace["distributedInfo"]["world_size"], 4);
  std::vector<double> end(4);
  for (const auto& event : trace["traceEvents"])
    if (event["ph"] == "X")
      end[event["pid"].get<size_t>()] =
          std::max(end[event["pid"].get<size_t>()], event["ts"].get<double>() + event["dur"].get<double>());
  for (const double rank : end) EXPECT_GT(rank, 0);
  EXPECT_NEAR(*std::ranges::max_element(end), 1e6 * json["rows"][0]["step_seconds"].get<double>(), 1);
}

TEST(Foresight, TypingErrorsAreOneLine) {
  const auto expect_refused = [](const Arguments& arguments, const std::string& part) {
    expect_user_error(run(arguments), part);
  };
  expect_refused(with_network({"--ranks", "2"}, "25GB,5us"), "\"25GB\" is not a bandwidth such as 25GB/s");
  expect_refused(with_network({"--ranks", "2"}, "25GB/s"), "write bandwidth and latency");
  expect_refused(with_network({"--ranks", "two"}), "--ranks \"two\"");
  expect_refused(with_network({"--ranks", "0"}), "--ranks \"0\"");
  expect_refused(with_network({"--ranks", "4", "--parallel", "tensor=3"}), "does not fit 4 ranks");
  expect_refused(with_network({"--ranks", "4", "--parallel", "rows=4"}), "is not understood");
  expect_refused(with_network({"--ranks", "3"}), "batch_size = 8 cannot be cut into data_shards = 3");
  expect_refused(plan({"--ranks", "8", "--parallel", "auto"}), "--network 25GB/s,5us");
  expect_refused(plan({"--ranks", "1,2"}), "--network 25GB/s,5us");
  expect_refused(plan({"--network", "1GB/s,1us", "--ranks", "2", "--speed", "fast"}), "--speed \"fast\"");
}

using NetworkBench = Ranks;

TEST_F(NetworkBench, ItsFiguresAreThoseThatPlanTakes) {
  const Outcome outcome = run({"bench", "network", "--ranks", "2", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
  const auto json = ParsedJson::parse(outcome.out);
  EXPECT_EQ(json["ranks"], 2);
  EXPECT_GT(json["bytes_per_second"].get<double>(), 0);
  EXPECT_EQ(run(with_network({"--ranks", "2"}, json["network"].get<std::string>())).exit_code, 0);
  EXPECT_EQ(run({"bench", "network"}).exit_code, 2);
}
}  // namespace
}  // namespace linnet::testing
