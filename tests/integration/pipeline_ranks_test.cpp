// Ranks that compute the stages of one model, started as users start them: they train as one process does, and their
// checkpoints are those of one process.
#include "integration/shared_layers_testing.h"

namespace linnet::testing {
namespace {

class PipelineRanks : public SharedLayers {
 protected:
  // A step of two micro-batches.
  Arguments staged(const std::string& run, const Arguments& more = {}) const {
    Arguments arguments = gpt(run, {"--set", "accumulate_steps=2"});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
};

TEST_F(PipelineRanks, TrainAsOneProcessDoes) {
  expect_trained(with_ranks(staged("one"), 1));
  expect_trained(with_ranks(staged("two", {"--parallel", "pipeline=2"}), 2));
  expect_close_losses("two", "one");
  const auto of_one = of_split(read_metrics(folder_ / "one"), "valid"),
             of_two = of_split(read_metrics(folder_ / "two"), "valid");
  ASSERT_EQ(of_two.size(), of_one.size());
  EXPECT_NEAR(std::stod(of_two.back().loss), std::stod(of_one.back().loss), 1e-4);
  // The model that the stages have saved is used by one process.
  const Outcome eval = run({"eval", folder_ / "two"});
  EXPECT_EQ(eval.exit_code, 0) << eval.error;
}

TEST_F(PipelineRanks, CheckpointsGoOnWithAnotherLayout) {
  expect_trained(with_ranks(staged("one"), 1));
  const auto part = [&](const char* run, const char* steps, bool resumed, const Arguments& parallel, int ranks) {
    Arguments arguments = staged(run, parallel);
    arguments.insert(arguments.end(), {"--steps", steps});
    if (resumed) arguments.emplace_back("--resume");
    expect_trained(with_ranks(arguments, ranks));
  };
  part("there", "10", false, {"--parallel", "pipeline=2"}, 2);
  part("there", "20", true, {"--set", "parallel="}, 1);
  expect_close_losses("there", "one");
  part("back", "10", false, {"--parallel", "tensor=2"}, 2);
  part("back", "20", true, {"--parallel", "pipeline=2"}, 2);
  expect_close_losses("back", "one");
}

// Two models of two stages each on different data, with divided moments.
TEST_F(PipelineRanks, AreCombinedWithDataParallel) {
  const Arguments shards{"--set", "data_shards=2"};
  expect_trained(with_ranks(staged("one", shards), 1));
  Arguments parallel = shards;
  parallel.insert(parallel.end(), {"--parallel", "data=2,pipeline=2"});
  expect_trained(with_ranks(staged("four", parallel), 4));
  expect_close_losses("four", "one");
}

// The encoder on one rank and the decoder on the other; micro-batches of one step have several shapes.
TEST_F(PipelineRanks, TrainATranslationModel) {
  const auto train = [&](const char* run, int ranks, const Arguments& more) {
    Arguments arguments = translation(folder_ / run, {"accumulate_steps=3", "metric=loss", "threads=1"});
    arguments.insert(arguments.end(), more.begin(), more.end());
    expect_trained(with_ranks(arguments, ranks));
    return of_split(read_metrics(folder_ / run), "train");
  };
  const auto one = train("one", 1, {}), two = train("two", 2, {"--parallel", "pipeline=2"});
  ASSERT_FALSE(one.empty());
  ASSERT_EQ(two.size(), one.size());
  for (size_t i = 0; i < one.size(); ++i)
    EXPECT_NEAR(std::stod(two[i].loss), std::stod(one[i].loss), 1e-5 * std::stod(one[i].loss)) << "step " << i + 1;
}

TEST_F(PipelineRanks, PlansShowWhatEachStageTakes) {
  Arguments arguments = staged("unused", {"--ranks", "2", "--parallel", "pipeline=2"});
  arguments[0] = "plan";
  arguments.erase(arguments.begin() + 4, arguments.begin() + 6);  // --run
  const Outcome outcome = run(arguments);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_NE(outcome.out.find("stage 0: layers.0, "), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("stage 1: layers.1, "), std::string::npos) << outcome.out;
}

// Each of these is one line and exit code 2, and leaves no run folder.
TEST_F(PipelineRanks, WhatCannotBeCutIsRefused) {
  const auto expect_refused = [&](const Arguments& arguments, int ranks, const std::string& part) {
    const Outcome outcome = with_ranks(arguments, ranks);
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_EQ(lines(outcome.error).size(), 1u) << outcome.error;
    EXPECT_NE(outcome.error.find(part), std::string::npos) << outcome.error;
  };
  const auto with = [&](const Arguments& more) {
    Arguments all{"--parallel", "pipeline=2"};
    all.insert(all.end(), more.begin(), more.end());
    return staged("run", all);
  };
  expect_refused(with({}), 1, "--ranks must be a multiple of 2");
  expect_refused(with({"--set", "sample_length=20"}), 2, "sample_length = 0");
  expect_refused(with({"--set", "optimizer=muon"}), 2, "they need pipeline=1");
  expect_refused(staged("run", {"--parallel", "tensor=2,pipeline=2"}), 4, "are not combined");
  expect_refused(staged("run", {"--parallel", "pipeline=5"}), 5, "the model has 2 layers to cut between");
}

}  // namespace
}  // namespace linnet::testing
