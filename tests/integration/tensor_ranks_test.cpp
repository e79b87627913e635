// Ranks that divide the layers of one model, started as users start them: they train as one process does, and their
// checkpoints are those of one process.
#include "integration/shared_layers_testing.h"

namespace linnet::testing {
namespace {
using TensorRanks = SharedLayers;

TEST_F(TensorRanks, TrainAsOneProcessDoes) {
  expect_trained(with_ranks(gpt("one"), 1));
  expect_trained(with_ranks(gpt("two", {"--parallel", "tensor=2"}), 2));
  expect_close_losses("two", "one");
  const auto of_one = of_split(read_metrics(folder_ / "one"), "valid"),
             of_two = of_split(read_metrics(folder_ / "two"), "valid");
  ASSERT_EQ(of_two.size(), of_one.size());
  EXPECT_NEAR(std::stod(of_two.back().loss), std::stod(of_one.back().loss), 1e-4);
  // The model that ranks have saved is used by one process.
  const Outcome one = run({"eval", folder_ / "one"}), two = run({"eval", folder_ / "two"});
  EXPECT_EQ(two.exit_code, 0) << two.error;
  EXPECT_EQ(one.exit_code, 0) << one.error;
}

// BERT on raw text: evaluation wants predictions, for which logits of all ranks are gathered.
TEST_F(TensorRanks, TrainAMaskedModelToo) {
  std::string vocabulary = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n.\n";
  for (const char* word : {"tensor", "ranks", "divide", "one", "model", "and", "train", "it", "together", "as"})
    vocabulary += std::string(word) + "\n";
  for (int i = 0; i < 600; ++i) vocabulary += "unused" + std::to_string(i) + "\n";
  const std::string tokens = folder_.write("vocab.txt", vocabulary);
  const auto train = [&](const char* run, const Arguments& parallel, int ranks) {
    Arguments arguments{"train", "bert-base", "--data", text_, "--run", folder_ / run};
    add_settings(arguments, {"data.tokenizer_dir=" + tokens, "d_model=32", "num_heads=4", "num_encoder_layers=2",
                                "d_ff=64", "max_seq_len=32", "context=32", "batch_size=4", "batch_tokens=0",
                                "max_steps=20", "eval_every=10", "precision=fp32", "dropout=0.1", "threads=1"});
    arguments.insert(arguments.end(), parallel.begin(), parallel.end());
    expect_trained(with_ranks(arguments, ranks));
  };
  train("one", {}, 1);
  train("two", {"--parallel", "tensor=2"}, 2);
  expect_close_losses("two", "one");
  const auto of_one = of_split(read_metrics(folder_ / "one"), "valid"),
             of_two = of_split(read_metrics(folder_ / "two"), "valid");
  ASSERT_EQ(of_two.size(), of_one.size());
  EXPECT_NEAR(std::stod(of_two.back().loss), std::stod(of_one.back().loss), 1e-4);
}

TEST_F(TensorRanks, CheckpointsGoOnWithAnotherDivision) {
  expect_trained(with_ranks(gpt("one"), 1));
  const Arguments two{"--parallel", "tensor=2"}, none{"--set", "parallel="};
  const auto part = [&](const char* run, const char* steps, bool resumed, const Arguments& parallel, int ranks) {
    Arguments arguments = gpt(run, parallel);
    arguments.insert(arguments.end(), {"--steps", steps});
    if (resumed) arguments.emplace_back("--resume");
    expect_trained(with_ranks(arguments, ranks));
  };
  part("there", "10", false, two, 2);
  part("there", "20", true, none, 1);
  expect_close_losses("there", "one");
  part("back", "10", false, none, 1);
  part("back", "20", true, two, 2);
  expect_close_losses("back", "one");
}

// Two models of two ranks each on different data, with divided moments.
TEST_F(TensorRanks, AreCombinedWithDataParallel) {
  const Arguments shards{"--set", "data_shards=2"};
  expect_trained(with_ranks(gpt("one", shards), 1));
  Arguments parallel = shards;
  parallel.insert(parallel.end(), {"--parallel", "data=2,tensor=2"});
  expect_trained(with_ranks(gpt("four", parallel), 4));
  expect_close_losses("four", "one");
}

TEST_F(TensorRanks, SaveAndGoOnAfterAStop) {
  const Arguments parallel{"--parallel", "tensor=2", "--set", "max_steps=150", "--set", "eval_every=150"};
  expect_trained(with_ranks(gpt("whole", parallel), 2));
  Arguments arguments = gpt("run", parallel);
  arguments.insert(arguments.end(), {"--ranks", "2"});
  Program program(arguments);
  while (program.running() && read_metrics(folder_ / "run").size() < 20) ::usleep(500);
  program.send(SIGTERM);
  const Outcome stopped = program.wait();
  EXPECT_EQ(stopped.exit_code, 0) << stopped.error;
  EXPECT_LT(read_metrics(folder_ / "run").size(), 151u);
  arguments = gpt("run", parallel);
  arguments.push_back("--resume");
  expect_trained(with_ranks(arguments, 2));
  expect_same_bits(folder_ / "run", folder_ / "whole");
}

TEST_F(TensorRanks, PlansShowWhatEachRankTakes) {
  const auto planned = [&](const Arguments& more) {
    Arguments arguments = gpt("unused", more);
    arguments[0] = "plan";
    arguments.erase(arguments.begin() + 4, arguments.begin() + 6);  // --run
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
    const size_t at = outcome.out.find("  optimizer ");
    return at == std::string::npos ? 0.0 : std::stod(outcome.out.substr(at + 12));
  };
  const Arguments wide{"--set", "d_model=256", "--set", "d_ff=1024"};
  Arguments divided = wide;
  divided.insert(divided.end(), {"--ranks", "2", "--parallel", "tensor=2"});
  const double whole = planned(wide), half = planned(divided);
  EXPECT_GT(half, 0.45 * whole);
  EXPECT_LT(half, 0.6 * whole);
}

// Each of these is one line and exit code 2, and leaves no run folder.
TEST_F(TensorRanks, WhatCannotBeDividedIsRefused) {
  const auto message = [&](const Arguments& arguments, int ranks) {
    const Outcome outcome = with_ranks(arguments, ranks);
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_EQ(lines(outcome.error).size(), 1u) << outcome.error;
    return outcome.error;
  };
  const auto expect_told = [&](const std::string& found, const std::string& part) {
    EXPECT_NE(found.find(part), std::string::npos) << found;
  };
  const Arguments two{"--parallel", "tensor=2"};
  const auto with = [&](const Arguments& more) {
    Arguments all = two;
    all.insert(all.end(), more.begin(), more.end());
    return gpt("run", all);
  };
  expect_told(message(with({"--set", "num_heads=1"}), 2), "heads = 1 cannot be divided between 2 tensor ranks");
  expect_told(message(gpt("run", {"--parallel", "tensor=3"}), 2), "does not fit 2 ranks");
  expect_told(message(gpt("run", {"--parallel", "rows=2"}), 2), "is not understood");
  expect_told(message(with({}), 1), "--ranks must be a multiple of 2");
  expect_told(message(with({"--set", "sample_length=20"}), 2), "sample_length = 0");
  expect_told(message(with({"--set", "optimizer=muon"}), 2), "they need tensor=1");
}
}  // namespace
}  // namespace linnet::testing
