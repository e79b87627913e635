// Training by several processes: the bits do not depend on how many there are.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>
#include <algorithm>
#include "integration/ranks_testing.h"

namespace linnet::testing {
namespace {
// A text of which much can be learned in a few steps.
std::string made_text() {
  std::string text;
  for (int i = 0; i < 400; ++i) text += "line " + std::to_string(i * 7 % 100) + " of the text\n";
  return text;
}

TEST_F(Ranks, TheSameBitsOnAnyNumberOfThem) {
  for (const int ranks : {1, 2, 4}) {
    const std::string run = folder_ / std::to_string(ranks);
    const Outcome outcome = with_ranks(translation(run, {"data_shards=4", "max_steps=12"}), ranks);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
    EXPECT_EQ(outcome.error, "");
    if (ranks > 1) expect_same_bits(run, folder_ / "1");
  }
  // A step is the same amount of data, cut another way.
  ASSERT_EQ(with_ranks(translation(folder_ / "whole", {"max_steps=12"}), 1).exit_code, 0);
  EXPECT_NE(read_metrics(folder_ / "whole"), read_metrics(folder_ / "1"));
}

// Each rank has moments, or moments and gradients, of some parameters only; a checkpoint is the same.
TEST_F(Ranks, WhatTheyDivideDoesNotChangeABit) {
  const auto with_zero = [&](const std::string& stage) {
    return Arguments{"data_shards=4", "max_steps=12", "d_model=64", "d_ff=128", "weight_decay=0.1", "warmup_steps=1",
        "zero=" + stage};
  };
  ASSERT_EQ(with_ranks(translation(folder_ / "1", with_zero("1")), 1).exit_code, 0);
  for (const auto& [stage, ranks] : {std::pair{"0", 2}, {"1", 2}, {"2", 2}, {"2", 4}}) {
    const std::string run = folder_ / stage + "-" + std::to_string(ranks);
    const Outcome outcome = with_ranks(translation(run, with_zero(stage)), ranks);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
    expect_same_bits(run, folder_ / "1");
  }
  // On from a checkpoint, with another number of ranks each time.
  const std::string run = folder_ / "resumed";
  struct Part {
    const char *steps, *zero;
    int ranks;
  };
  for (const auto& [steps, zero, ranks] : {Part{"4", "2", 4}, {"8", "1", 2}, {"10", "2", 2}, {"12", "2", 1}}) {
    Arguments arguments = translation(run, with_zero(zero));
    arguments.insert(arguments.end(), {"--steps", steps, "--resume"});
    const Outcome outcome = with_ranks(arguments, ranks);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
  }
  EXPECT_EQ(of_split(read_metrics(run), "train"), of_split(read_metrics(folder_ / "1"), "train"));
}

// Gradients are rounded where activations in bf16 are, wherever they lie.
TEST_F(Ranks, DivideGradientsOfActivationsInBf16) {
  const Arguments settings{"data_shards=2", "max_steps=6", "precision=bf16", "zero=2"};
  for (const int ranks : {1, 2}) {
    const Outcome outcome = with_ranks(translation(folder_ / std::to_string(ranks), settings), ranks);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
  }
  expect_same_bits(folder_ / "1", folder_ / "2");
}

// Optimizers that update blocks or matrices as a whole, with accumulation; on with one rank from a checkpoint of two.
TEST_F(Ranks, DivideEveryOptimizer) {
  for (const std::string optimizer : {"adamw8bit", "muon", "adafactor"}) {
    SCOPED_TRACE(optimizer);
    const Arguments settings{"data_shards=2", "max_steps=8", "d_model=64", "d_ff=128", "accumulate_steps=2", "zero=2",
        "warmup_steps=1", "optimizer=" + optimizer};
    ASSERT_EQ(with_ranks(translation(folder_ / optimizer, settings), 1).exit_code, 0);
    const std::string run = folder_ / optimizer + "-2";
    for (const auto& [steps, ranks] : {std::pair{"5", 2}, {"8", 1}}) {
      Arguments arguments = translation(run, settings);
      arguments.insert(arguments.end(), {"--steps", steps, "--resume"});
      const Outcome outcome = with_ranks(arguments, ranks);
      ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
    }
    EXPECT_EQ(of_split(read_metrics(run), "train"), of_split(read_metrics(folder_ / optimizer), "train"));
  }
}

// The gradients of the first steps overflow: all ranks skip them together, and later ones, after the scale has grown.
TEST_F(Ranks, SkipTheSameStepsInFp16) {
  const Arguments settings{
      "data_shards=2", "max_steps=24", "precision=fp16", "loss_scale=16777216", "loss_scale_steps=4", "eval_every=100"};
  for (const auto& [zero, ranks] : {std::pair{"1", 1}, {"1", 2}, {"2", 2}}) {
    Arguments all = settings;
    all.push_back(std::string("zero=") + zero);
    const Outcome outcome = with_ranks(translation(folder_ / std::to_string(ranks) + zero, all), ranks);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
  }
  for (const char* run : {"21", "22"}) expect_same_bits(folder_ / "11", folder_ / run);
  const auto steps = of_split(read_metrics(folder_ / "11"), "train");
  const auto is_skipped = [](const Metrics& step) { return step.grad_norm == "null"; };
  EXPECT_TRUE(is_skipped(steps.front()));
  EXPECT_FALSE(std::ranges::all_of(steps, is_skipped));
}

// A group of three shards is no power of two; accumulation, and epochs that end within a step.
TEST_F(Ranks, ALanguageModelHasTheSameBits) {
  const std::string text = folder_.write("text.txt", made_text());
  const auto train = [&](const std::string& run, int ranks) {
    return with_ranks({"train", "text", "--data", text, "--run", run, "--set", "d_model=16", "--set", "num_heads=2",
                          "--set", "num_layers=1", "--set", "d_ff=32", "--set", "context=16", "--set", "batch_size=6",
                          "--set", "batch_tokens=0", "--set", "data_shards=3", "--set", "accumulate_steps=2", "--set",
                          "max_steps=10", "--set", "eval_every=5", "--set", "sample_length=8", "--set", "threads=1"},
        ranks);
  };
  for (const int ranks : {1, 3}) {
    const Outcome outcome = train(folder_ / std::to_string(ranks), ranks);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
  }
  expect_same_bits(folder_ / "1", folder_ / "3");
}

// The run is stopped in the middle and goes on with another number of ranks; every rank that gets the signal of mpirun
// ends with the others, and rank 0 saves.
TEST_F(Ranks, AStoppedRunGoesOnWithAnotherNumberOfRanks) {
  const Arguments settings{"data_shards=4", "max_steps=300", "eval_every=100", "save_every=1000"};
  ASSERT_EQ(with_ranks(translation(folder_ / "whole", settings), 1).exit_code, 0);
  for (const std::string zero : {"1", "2"}) {
    const std::string run = folder_ / "run" + zero;
    Arguments arguments = translation(run, settings);
    arguments.insert(arguments.end(), {"--set", "zero=" + zero, "--ranks", "2"});
    Program program(arguments);
    while (program.running() && read_metrics(run).size() < 20) ::usleep(500);
    program.send(SIGTERM);
    const Outcome stopped = program.wait();
    EXPECT_EQ(stopped.exit_code, 0);
    EXPECT_EQ(stopped.error, "");
    EXPECT_LT(read_metrics(run).size(), 303u) << stopped.error;
    ASSERT_TRUE(exists(run + "/training_state.safetensors")) << stopped.error;

    arguments = translation(run, settings);
    arguments.push_back("--resume");
    const Outcome outcome = with_ranks(arguments, 1);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
    expect_same_bits(run, folder_ / "whole");
  }
}

// Each of these is one line of rank 0, and exit code 2.
TEST_F(Ranks, MistakesAreOneLine) {
  const auto message = [&](Arguments arguments, int ranks) {
    const Outcome outcome = with_ranks(std::move(arguments), ranks);
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_EQ(lines(outcome.error).size(), 1u) << outcome.error;
    EXPECT_FALSE(exists(folder_ / "run"));
    return outcome.error;
  };
  EXPECT_NE(message(translation(folder_ / "run", {"data_shards=3", "batch_size=18"}), 2)
                .find("2 ranks cannot share data_shards = 3 evenly"),
      std::string::npos);
  EXPECT_NE(message(translation(folder_ / "run", {"batch_size=15"}), 2)
                .find("batch_size = 15 cannot be cut into data_shards = 2 equal parts"),
      std::string::npos);
  ::setenv("LINNET_MPI_MODULE", "/nowhere/module.so", 1);
  EXPECT_NE(message(translation(folder_ / "run", {}), 2).find("has no MPI module"), std::string::npos);
  ::setenv("OMPI_COMM_WORLD_RANK", "1", 1), ::setenv("OMPI_COMM_WORLD_SIZE", "4", 1);  // of a job that has ended
  expect_user_error(run({"train", "dates", "--run", folder_ / "run"}), "has no MPI module");
  ::unsetenv("OMPI_COMM_WORLD_RANK"), ::unsetenv("OMPI_COMM_WORLD_SIZE"), ::unsetenv("LINNET_MPI_MODULE");
  EXPECT_NE(message({"train", "nothing", "--run", folder_ / "run"}, 2).find("nothing"), std::string::npos);
}

// `linnet train --ranks 2 ... 2>&1 | head -1`: nobody reads what it prints, and the model is trained all the same.
TEST_F(Ranks, TheyGoOnWhenTheirReaderHasGone) {
  std::string command = program_path();
  for (const std::string& argument : translation(folder_ / "run", {"data_shards=2"})) command += " '" + argument + "'";
  const std::string script = "set -o pipefail; LINNET_LOG=info " + command + " --ranks 2 2>&1 | head -1 >/dev/null";
  EXPECT_EQ(std::system(("bash -c \"" + script + "\"").c_str()), 0);
  ASSERT_EQ(with_ranks(translation(folder_ / "alone", {"data_shards=2"}), 1).exit_code, 0);
  expect_same_bits(folder_ / "alone", folder_ / "run");
}

// `exec linnet ... > >(reader)`: the shell's reader is a child of the program, which ends its ranks alone.
TEST_F(Ranks, AReaderBesideThemReadsToTheEnd) {
  std::string command = program_path();
  for (const std::string& argument : translation(folder_ / "run", {})) command += " '" + argument + "'";
  const std::string done = folder_ / "done", script = "(exec " + command +
                                                      " --ranks 2 > >(cat >/dev/null; sleep 1; echo read > " + done +
                                                      ") 2>&1); sleep 2; test -e " + done;
  EXPECT_EQ(std::system(("bash -c \"" + script + "\"").c_str()), 0);
}

// What torchrun starts on one machine, by its variables: the first process starts the ranks, the other ends.
TEST_F(Ranks, ProcessesOfTorchrunTrainTogether) {
  const Arguments settings{"data_shards=2"};
  ASSERT_EQ(with_ranks(translation(folder_ / "alone", settings), 1).exit_code, 0);
  const auto process = [&](const std::string& rank) {
    std::string command = "env MASTER_ADDR=localhost MASTER_PORT=29500 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 RANK=" + rank +
                          " LOCAL_RANK=" + rank + " LINNET_LOG=info '" + program_path() + "'";
    for (const std::string& argument : translation(folder_ / "run", settings)) command += " '" + argument + "'";
    return command + " >'" + (folder_ / rank) + "' 2>&1";
  };
  EXPECT_EQ(std::system(process("1").c_str()), 0);
  EXPECT_EQ(contents(folder_ / "1"), "");
  ASSERT_EQ(std::system(process("0").c_str()), 0) << contents(folder_ / "0");
  EXPECT_NE(contents(folder_ / "0").find("2 ranks of "), std::string::npos) << contents(folder_ / "0");
  expect_same_bits(folder_ / "alone", folder_ / "run");
}

TEST_F(Ranks, ADifferenceBetweenThemIsOneLine) {
  // Two programs of one mpirun with different settings.
  const auto start = [&](const char* seed) {
    std::string command = "-n 1 '" + program_path() + "'";
    for (const std::string& argument : translation(folder_ / "run", {std::string("seed=") + seed}))
      command += " '" + argument + "'";
    return command;
  };
  const std::string command = "mpirun --oversubscribe --bind-to none --allow-run-as-root " + start("1") + " : " +
                              start("2") + " >'" + (folder_ / "out") + "' 2>&1";
  EXPECT_NE(std::system(command.c_str()), 0);
  EXPECT_EQ(lines(contents(folder_ / "out")).at(0),
      "linnet: rank 1 has another configuration than rank 0: seed = 2, not seed = 1");
}
}  // namespace
}  // namespace linnet::testing
