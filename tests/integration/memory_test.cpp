// The peak that is printed before the first step is the peak the operating system measures: never less, hardly more.
#include <gtest/gtest.h>
#include "integration/program.h"
#include "parsed_json.h"

namespace linnet::testing {
namespace {
void expect_predicted(double peak_mb, double predicted_mb) {
  EXPECT_LE(peak_mb, predicted_mb);
  EXPECT_GE(peak_mb, 0.95 * predicted_mb - 8);
}

// The last figure of the table in the log, "  peak   123.4 MB".
double predicted_mb(const std::string& log) {
  const size_t at = log.rfind("  peak ");
  return at == log.npos ? 0 : std::stod(log.substr(at + 7));
}

void check_run(const Arguments& arguments) {
  const Outcome outcome = run(arguments, {.log = "info"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
  const double predicted = predicted_mb(outcome.error);
  ASSERT_GT(predicted, 0) << outcome.error;
  SCOPED_TRACE(outcome.error);
  expect_predicted(static_cast<double>(outcome.peak_bytes) / 1e6, predicted);
}

TEST(Memory, OfTheDemoIsAsPredicted) {
  const TemporaryFolder folder;
  const Outcome outcome = run({"demo", "--run", folder / "run", "--set", "max_steps=30"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
  const ParsedJson last = ParsedJson::parse(lines(outcome.out).back());
  expect_predicted(last["peak_memory_mb"], last["predicted_peak_mb"]);
}

TEST(Memory, OfTheReferenceShapeAt384IsAsPredicted) {
  const TemporaryFolder folder;
  check_run({"train", "reference", "--run", folder / "run", "--set", "max_seq_len=384", "--set", "max_steps=3", "--set",
      "train_samples=64"});
}

TEST(Memory, WithAccumulationAndAMovingAverageIsAsPredicted) {
  const TemporaryFolder folder;
  check_run({"train", "dates", "--run", folder / "run", "--set", "max_steps=12", "--set", "accumulate_steps=2", "--set",
      "ema_decay=0.9", "--set", "eval_beam=3", "--set", "train_samples=20000"});
}

TEST(Memory, OfAT5AndOfAMaskedLanguageModelIsAsPredicted) {
  const TemporaryFolder folder;
  check_run({"train", "dates", "--run", folder / "t5", "--set", "architecture=t5", "--set", "joint_vocab=true", "--set",
      "max_steps=12", "--set", "d_model=128", "--set", "train_samples=20000"});
  std::string words = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n", text;
  for (int i = 0; i < 3000; ++i) words += "w" + std::to_string(i) + "\n";
  for (int i = 0; i < 40000; ++i) text += "w" + std::to_string(i * 7 % 3000) + (i % 30 == 0 ? "\n" : " ");
  check_run(
      {"train", "bert-base", "--run", folder / "bert", "--set", "tokenizer_dir=" + folder.write("vocab.txt", words),
          "--set", "data.text=" + folder.write("text.txt", text), "--set", "d_model=128", "--set", "num_heads=4",
          "--set", "num_layers=2", "--set", "d_ff=512", "--set", "max_seq_len=128", "--set", "max_steps=3"});
}

// Neither the confused pairs nor the logits of an evaluation are squares of thousands of classes.
TEST(Memory, EvaluationsOfManyClassesHardlyTakeMore) {
  const TemporaryFolder folder;
  std::string table;
  for (int i = 0; i < 15000; ++i)
    table += "word" + std::to_string(i % 97) + " other\tc" + std::to_string(i % 3000) + "\n";
  const Outcome outcome = run({"train", "classify", "--data", folder.write("many.tsv", table), "--run", folder / "run",
                                  "--steps", "2", "--set", "d_model=16", "--set", "num_layers=0", "--set", "context=8"},
      {.log = "info"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_LT(static_cast<double>(outcome.peak_bytes) / 1e6, predicted_mb(outcome.error) + 60) << outcome.error;
  const std::string written = contents(folder / "run/classes.json");
  EXPECT_LT(written.size(), 1'000'000u);
  EXPECT_NE(written.find("\"confusion_pairs\":[[\""), written.npos);
}

// `linnet plan` says the same without taking the memory.
TEST(Memory, ThePlanCommandAgreesWithTheRun) {
  const TemporaryFolder folder;
  const Arguments settings{"--set", "max_seq_len=384", "--set", "max_steps=1", "--set", "train_samples=64"};
  Arguments plan{"plan", "reference"}, train{"train", "reference", "--run", folder / "run"};
  for (Arguments* arguments : {&plan, &train}) arguments->insert(arguments->end(), settings.begin(), settings.end());
  const Outcome planned = run(plan), trained = run(train, {.log = "info"});
  ASSERT_EQ(planned.exit_code, 0) << planned.error;
  EXPECT_NEAR(predicted_mb(planned.out), predicted_mb(trained.error), 0.02 * predicted_mb(trained.error) + 2)
      << planned.out << trained.error;
  EXPECT_LT(static_cast<double>(planned.peak_bytes) / 1e6, 0.5 * predicted_mb(planned.out));
}

// What an impossible budget is told to be at least is enough; the run keeps it, and gives the bits of a run without
// one.
TEST(Memory, ABudgetIsKeptAndTheLeastIsNamed) {
  const TemporaryFolder folder;
  const auto arguments = [&](const std::string& name, const std::string& memory, const char* steps) {
    Arguments list{"train", "reference", "--run", folder / name, "--set", "max_seq_len=192", "--set",
        "train_samples=64", "--set", "valid_samples=16", "--set", "micro_batches=1", "--steps", steps};
    if (!memory.empty()) list.insert(list.end(), {"--memory", memory});
    return list;
  };
  const Outcome refused = run(arguments("least", "60MB", "4"));
  EXPECT_EQ(refused.exit_code, 2);
  const std::string before = "needs at least ";
  const size_t at = refused.error.find(before);
  ASSERT_NE(at, refused.error.npos) << refused.error;
  const double least = std::stod(refused.error.substr(at + before.size()));

  const Outcome straight = run(arguments("straight", "", "4"), {.log = "info"});
  ASSERT_EQ(straight.exit_code, 0) << straight.error;
  EXPECT_LT(least, 0.8 * predicted_mb(straight.error));
  const Outcome kept = run(arguments("least", std::to_string(least) + "MB", "2"), {.log = "info"});
  ASSERT_EQ(kept.exit_code, 0) << kept.error;
  EXPECT_LE(static_cast<double>(kept.peak_bytes), least * 1e6);
  EXPECT_NE(kept.error.find("layers again"), kept.error.npos) << kept.error;
  expect_predicted(static_cast<double>(kept.peak_bytes) / 1e6, predicted_mb(kept.error));

  // The other half with another budget.
  Arguments resumed = arguments("least", std::to_string(least + 30) + "MB", "4");
  resumed.emplace_back("--resume");
  const Outcome second = run(resumed);
  ASSERT_EQ(second.exit_code, 0) << second.error;
  const auto losses = [&](const char* name) {
    std::vector<std::string> result;
    for (const Metrics& line : of_split(read_metrics(folder / name), "train")) result.push_back(line.loss);
    return result;
  };
  EXPECT_EQ(losses("least"), losses("straight"));
  EXPECT_EQ(losses("straight").size(), 4u);
}

// Where recomputation is not enough, batches are cut; a resumed run goes on with the parts that the run began with.
TEST(Memory, ABudgetBelowTheLeastOfABatchCutsIt) {
  const TemporaryFolder folder;
  const auto arguments = [&](const std::string& name, const std::string& memory, const char* steps) {
    Arguments list{"train", "reference", "--run", folder / name, "--set", "max_seq_len=192", "--set",
        "train_samples=16", "--set", "valid_samples=16", "--set", "dropout=0", "--set", "num_layers=1", "--steps",
        steps};
    if (!memory.empty()) list.insert(list.end(), {"--memory", memory});
    return list;
  };
  Arguments whole_batches = arguments("whole", "30MB", "4");
  whole_batches.insert(whole_batches.end(), {"--set", "micro_batches=1"});
  const Outcome refused = run(whole_batches);
  EXPECT_EQ(refused.exit_code, 2);
  const std::string before = "needs at least ";
  const size_t at = refused.error.find(before);
  ASSERT_NE(at, refused.error.npos) << refused.error;
  const double budget = std::stod(refused.error.substr(at + before.size())) - 4;

  const Outcome straight = run(arguments("straight", "", "4"));
  ASSERT_EQ(straight.exit_code, 0) << straight.error;
  const Outcome cut = run(arguments("cut", std::to_string(budget) + "MB", "2"), {.log = "info"});
  ASSERT_EQ(cut.exit_code, 0) << cut.error;
  EXPECT_LE(static_cast<double>(cut.peak_bytes), budget * 1e6);
  EXPECT_NE(cut.error.find("micro-batches"), cut.error.npos) << cut.error;
  expect_predicted(static_cast<double>(cut.peak_bytes) / 1e6, predicted_mb(cut.error));
  Arguments resumed = arguments("cut", "", "4");
  resumed.emplace_back("--resume");
  const Outcome second = run(resumed, {.log = "info"});
  ASSERT_EQ(second.exit_code, 0) << second.error;
  EXPECT_NE(second.error.find("micro-batches"), second.error.npos) << second.error;
  const auto losses = [&](const char* name) {
    std::vector<double> result;
    for (const Metrics& line : of_split(read_metrics(folder / name), "train")) result.push_back(std::stod(line.loss));
    return result;
  };
  const std::vector<double> expected = losses("straight"), found = losses("cut");
  ASSERT_EQ(found.size(), 4u);
  for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-4) << "step " << i + 1;
}

// The advice of a refusal is one that can be followed.
TEST(Memory, ARunThatDoesNotFitWithTheSmallestBatchIsToldWhatElseNeedsLess) {
  const TemporaryFolder folder;
  for (const auto& [batch, advice] :
      {std::pair{"batch_size=1", "; fewer or smaller layers or a smaller max_seq_len need less"},
          {"batch_size=2", "; a smaller batch_size needs less (see `linnet plan`)"}}) {
    const Outcome refused = run({"train", "reference", "--run", folder / "run", "--set", "train_samples=16", "--set",
        "valid_samples=16", "--set", "micro_batches=1", "--memory", "20MB", "--set", batch});
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_NE(refused.error.find(advice), refused.error.npos) << refused.error;
  }
}

// Whatever number of micro-batches the batch that one asks with is cut into, the largest batch is of one.
TEST(Memory, TheLargestBatchDoesNotDependOnTheBatchAskedWith) {
  std::vector<int64_t> parts, largest;
  for (const char* batch : {"batch_size=4", "batch_size=32"}) {
    const Outcome planned =
        run({"plan", "reference", "--set", "train_samples=64", "--memory", "100MB", "--json", "--set", batch});
    ASSERT_EQ(planned.exit_code, 0) << planned.error;
    const ParsedJson json = ParsedJson::parse(planned.out);
    parts.push_back(json["micro_batches"]), largest.push_back(json["largest_batch"]);
  }
  EXPECT_LT(parts[0], parts[1]);
  EXPECT_NEAR(static_cast<double>(largest[0]), static_cast<double>(largest[1]), 1);
  EXPECT_LT(largest[1], 8);
}

// A run keeps a batch of pictures besides the planned one.
TEST(Memory, TheLargestBatchOfPicturesLeavesRoomForTheProcess) {
  constexpr double kLimit = 300e6, kNoise = 1e6;
  const auto planned = [](const std::string& batch_size) {
    Arguments arguments{"plan", "mnist", "--set", "data_dir=nowhere", "--set", "micro_batches=1", "--memory", "300MB",
        "--json", "--set", "batch_size=" + batch_size};
    return ParsedJson::parse(run(arguments).out);
  };
  const int64_t largest = planned("32")["largest_batch"];
  const ParsedJson json = planned(std::to_string(largest));
  double peak = json["peak_bytes"];
  for (const auto& item : json["memory"])
    if (item["name"] == "batches") peak += item["bytes"].get<double>();
  EXPECT_GT(peak, 0.9 * kLimit);
  EXPECT_LT(peak, kLimit + kNoise);
}

// Asking is no mistake: the answer for a run that is too large is its figure, and what would fit.
TEST(Memory, ThePlanCommandAnswersForARunThatDoesNotFit) {
  const Outcome smaller = run({"plan", "reference", "--set", "train_samples=64", "--memory", "100MB"});
  EXPECT_EQ(smaller.exit_code, 0) << smaller.error;
  const Outcome none = run({"plan", "reference", "--set", "train_samples=64", "--memory", "20MB"});
  EXPECT_EQ(none.exit_code, 1) << none.error;
  EXPECT_NE(none.out.find("this does not fit within 20.0 MB: it takes "), std::string::npos) << none.out;
  EXPECT_NE(none.out.find("no batch_size fits within 20.0 MB: the smallest takes "), std::string::npos) << none.out;
  EXPECT_NE(none.out.find("a smaller max_seq_len would take less"), std::string::npos) << none.out;
  // More than any machine has: refused by `linnet train`.
  const TemporaryFolder folder;
  const std::string text = folder.write("text.txt", std::string(20'000, 'a') + std::string(20'000, 'b'));
  const Outcome huge = run({"plan", "text", "--data", text, "--set", "batch_size=1000000"});
  EXPECT_EQ(huge.exit_code, 1) << huge.error;
  EXPECT_NE(huge.out.find("this does not fit within "), std::string::npos) << huge.out;
}

// Reading much text and learning its vocabulary takes minutes: a plan says what it assumes instead.
TEST(Memory, ThePlanCommandReadsManyDataOnlyWhenItIsTold) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 200'000; ++i)
    text += "the " + std::to_string(i % 100) + " words of line number " + std::to_string(i) + "\n";
  const std::string file = folder.write("many.txt", text + text);
  const Arguments plan{"plan", "translate", "--source", file, "--target", file, "--set", "max_seq_len=32"};
  const Outcome quick = run(plan);
  EXPECT_EQ(quick.exit_code, 0) << quick.error;
  EXPECT_NE(quick.out.find(" MB and was not read (--exact reads it); assuming batches of max_seq_len = 32 tokens"),
      std::string::npos)
      << quick.out;
  Arguments exact = plan;
  exact.insert(exact.end(), {"--exact", "--set", "tokenizer=char"});
  const Outcome read = run(exact);
  EXPECT_EQ(read.exit_code, 0) << read.error;
  EXPECT_EQ(read.out.find("was not read"), std::string::npos) << read.out;
}

TEST(Memory, ParametersBeyondTheMachineAreRefusedByTrainingAndAnsweredByPlan) {
  const TemporaryFolder folder;
  const Arguments settings{"text", "--data",
      folder.write("text.txt", std::string(20'000, 'a') + std::string(20'000, 'b')), "--set", "d_model=65536", "--set",
      "d_ff=262144", "--set", "num_layers=96"};
  Arguments plan{"plan"}, train{"train"};
  for (Arguments* arguments : {&plan, &train}) arguments->insert(arguments->end(), settings.begin(), settings.end());
  const Outcome planned = run(plan);
  EXPECT_EQ(planned.exit_code, 1) << planned.error;
  EXPECT_NE(planned.out.find("this does not fit within "), std::string::npos) << planned.out;
  train.insert(train.end(), {"--run", folder / "run"});
  const Outcome trained = run(train);
  EXPECT_EQ(trained.exit_code, 2);
  EXPECT_NE(trained.error.find("the model's parameters alone take "), std::string::npos) << trained.error;
}
}  // namespace
}  // namespace linnet::testing
