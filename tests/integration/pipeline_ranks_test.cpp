// Ranks that compute the stages of one model, started as users start them: they train as one process does, and their
// checkpoints are those of one process.
#include <map>
#include "integration/shared_layers_testing.h"
#include "parsed_json.h"

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

// Four ranks: two stages, whose layers two ranks divide; and eight, two such models on different data.
TEST_F(PipelineRanks, AreCombinedWithTensorParallel) {
  const Arguments shards{"--set", "data_shards=2", "--set", "clip_norm=0.5", "--set", "ema_decay=0.9"};
  const auto train = [&](const char* run, const char* parallel, int ranks) {
    Arguments arguments = shards;
    if (ranks > 1) arguments.insert(arguments.end(), {"--parallel", parallel});
    expect_trained(with_ranks(staged(run, arguments), ranks));
  };
  train("one", "", 1);
  train("four", "tensor=2,pipeline=2", 4);
  expect_close_losses("four", "one");
  train("eight", "data=2,tensor=2,pipeline=2", 8);
  expect_close_losses("eight", "one");
  const Outcome eval = run({"eval", folder_ / "eight"});
  EXPECT_EQ(eval.exit_code, 0) << eval.error;
}

TEST_F(PipelineRanks, CheckpointsOfAllLayoutsGoOnWithOthers) {
  const Arguments shards{"--set", "data_shards=2"};
  expect_trained(with_ranks(staged("one", shards), 1));
  const auto part = [&](const char* run, const char* steps, bool resumed, const char* parallel, int ranks) {
    Arguments arguments = staged(run, shards);
    if (resumed) arguments.insert(arguments.end(), {"--resume", "--set", std::string("parallel=") + parallel});
    else arguments.insert(arguments.end(), {"--parallel", parallel});
    arguments.insert(arguments.end(), {"--steps", steps});
    expect_trained(with_ranks(arguments, ranks));
  };
  part("alone", "10", false, "tensor=2,pipeline=2", 4);
  part("alone", "20", true, "", 1);
  expect_close_losses("alone", "one");
  part("data", "10", false, "tensor=2,pipeline=2", 4);
  part("data", "20", true, "data=2", 2);
  expect_close_losses("data", "one");
}

// Two ranks with two stages each: the embeddings and the second layer, the first layer and the output layer.
TEST_F(PipelineRanks, InterleaveTheirStages) {
  expect_trained(with_ranks(staged("one", {"--set", "accumulate_steps=4"}), 1));
  const Arguments interleaved{"--set", "accumulate_steps=4", "--parallel", "pipeline=2,interleave=2"};
  expect_trained(with_ranks(staged("two", interleaved), 2));
  expect_close_losses("two", "one");
}

// Rows of several documents: each micro-batch has its own positions and beginnings, which both of its passes read.
TEST_F(PipelineRanks, TrainOnDocuments) {
  std::string documents, text = words_in_order();
  for (size_t at = 0, size = 20; at < text.size(); at += size, size = 20 + at % 90) {
    std::string part = text.substr(at, size);
    std::ranges::replace(part, '\n', ' ');
    documents += "{\"text\": \"" + part + "\"}\n";
  }
  text_ = folder_.write("documents.jsonl", documents);
  expect_trained(with_ranks(staged("one"), 1));
  for (const std::string parallel : {"pipeline=2", "pipeline=2,interleave=2"}) {
    SCOPED_TRACE(parallel);
    expect_trained(with_ranks(staged(parallel, {"--parallel", parallel}), 2));
    expect_close_losses(parallel, "one");
  }
}

// Micro-batches of one step have several shapes.
TEST_F(PipelineRanks, TrainATranslationModel) {
  const auto train = [&](const char* run, int ranks, const Arguments& more) {
    Arguments arguments = translation(folder_ / run, {"accumulate_steps=3", "metric=loss", "threads=1"});
    arguments.insert(arguments.end(), more.begin(), more.end());
    expect_trained(with_ranks(arguments, ranks));
    return of_split(read_metrics(folder_ / run), "train");
  };
  const auto one = train("one", 1, {});
  ASSERT_FALSE(one.empty());
  for (const char* parallel : {"pipeline=2", "pipeline=encoder-decoder"}) {
    SCOPED_TRACE(parallel);
    const auto two = train(parallel, 2, {"--parallel", parallel});
    ASSERT_EQ(two.size(), one.size());
    for (size_t i = 0; i < one.size(); ++i)
      EXPECT_NEAR(std::stod(two[i].loss), std::stod(one[i].loss), 1e-5 * std::stod(one[i].loss)) << "step " << i + 1;
  }
}

// Passes of one rank's row, in their order: "F0" is the forward pass of micro-batch 0, "B" backward, "FB" both at once.
std::vector<std::string> passes_of(const ParsedJson& trace, int rank) {
  std::map<double, std::string> passes;
  for (const auto& event : trace["traceEvents"])
    if (event["pid"] == rank && event["args"].contains("Micro-batch")) {
      const std::string name = event["name"];
      passes[event["ts"]] = (name == "forward"       ? "F"
                                : name == "backward" ? "B"
                                                     : "FB") +
                            std::to_string(event["args"]["Micro-batch"].get<int>());
    }
  std::vector<std::string> order;
  for (const auto& [when, pass] : passes) order.push_back(pass);
  return order;
}

// One step of `micros` micro-batches on a stage: as many forward passes as there are stages behind it, then a forward
// and a backward pass in turn.
std::vector<std::string> one_forward_one_backward(int stage, int stages, int micros) {
  std::vector<std::string> order;
  int done = 0;
  for (int micro = 0; micro < micros; ++micro) {
    order.push_back((stage + 1 == stages ? "FB" : "F") + std::to_string(micro));
    if (stage + 1 < stages && micro + 1 >= stages - stage) order.push_back("B" + std::to_string(done++));
  }
  while (stage + 1 < stages && done < micros) order.push_back("B" + std::to_string(done++));
  return order;
}

TEST_F(PipelineRanks, ProfilesAreOneTraceOfAllStages) {
  for (const int stages : {2, 4}) {
    const std::string run = std::to_string(stages), micros = std::to_string(stages + 1);
    const Outcome outcome =
        with_ranks(staged(run, {"--set", "accumulate_steps=" + micros, "--set", "num_layers=4", "--set", "max_steps=4",
                                   "--parallel", "pipeline=" + run, "--profile", "wait=1,warmup=1,active=1"}),
            stages);
    expect_trained(outcome);
    const auto trace = ParsedJson::parse(contents(folder_ / run + "/profile/steps-3-3.pt.trace.json"));
    EXPECT_EQ(trace["distributedInfo"]["world_size"], stages);
    std::map<int, std::string> names;
    std::map<int, double> steps;
    for (const auto& event : trace["traceEvents"]) {
      if (event["name"] == "process_name") names[event["pid"]] = event["args"]["name"];
      if (event["name"] == "ProfilerStep#3") steps[event["pid"]] = event["ts"];
      if (event["ph"] == "X") {
        EXPECT_GE(event["ts"], 0) << event;
      }
    }
    ASSERT_EQ(names.size(), static_cast<size_t>(stages));
    EXPECT_EQ(steps.size(), names.size());
    for (int rank = 0; rank < stages; ++rank) {
      EXPECT_EQ(names[rank],
          "rank " + std::to_string(rank) + ", stage " + std::to_string(rank) + " of " + std::to_string(stages));
      EXPECT_EQ(passes_of(trace, rank), one_forward_one_backward(rank, stages, stages + 1)) << "rank " << rank;
    }
    const auto summary = ParsedJson::parse(contents(folder_ / run + "/profile/steps-3-3.summary.json"));
    EXPECT_EQ(summary["pipeline"]["stages"], stages);
    EXPECT_EQ(summary["pipeline"]["micro_batches"], stages + 1);
    EXPECT_DOUBLE_EQ(summary["pipeline"]["bubble_in_theory"].get<double>(), (stages - 1.0) / (stages + 1));
    // Stages that depend on each other cannot all compute all of the time.
    EXPECT_GT(summary["pipeline"]["bubble"].get<double>(), 0);
  }
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

TEST_F(PipelineRanks, PlansShowTheEncoderAndTheDecoder) {
  Arguments arguments = translation(folder_ / "unused", {"metric=loss", "threads=1"});
  arguments[0] = "plan";
  const auto run_option = std::ranges::find(arguments, std::string("--run"));
  ASSERT_NE(run_option, arguments.end());
  arguments.erase(run_option, run_option + 2);
  arguments.insert(arguments.end(), {"--ranks", "2", "--parallel", "pipeline=encoder-decoder"});
  const Outcome outcome = run(arguments);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_NE(outcome.out.find("stage 0: encoder.layers.0"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("stage 1: decoder.layers.0"), std::string::npos) << outcome.out;
}

// Each of these is one line and exit code 2, and leaves no run folder.
TEST_F(PipelineRanks, WhatCannotBeCutIsRefused) {
  const auto expect_refused = [&](const Arguments& arguments, int ranks, const std::string& part) {
    expect_user_error(with_ranks(arguments, ranks), part);
  };
  const auto with = [&](const Arguments& more) {
    Arguments all{"--parallel", "pipeline=2"};
    all.insert(all.end(), more.begin(), more.end());
    return staged("run", all);
  };
  expect_refused(with({}), 1, "--ranks must be a multiple of 2");
  expect_refused(with({"--set", "sample_length=20"}), 2, "sample_length = 0");
  expect_refused(with({"--set", "optimizer=muon"}), 2, "they need pipeline=1");
  expect_refused(
      staged("run", {"--parallel", "pipeline=encoder-decoder"}), 2, "for models with an encoder and a decoder");
  expect_refused(staged("run", {"--parallel", "pipeline=2,interleave=2", "--set", "accumulate_steps=3"}), 2,
      "set accumulate_steps to a multiple of 2, not 3");
  expect_refused(staged("run", {"--parallel", "data=2,interleave=2"}), 2, "interleave is of a pipeline");
  expect_refused(staged("run", {"--parallel", "pipeline=5"}), 5, "the model has 2 layers to cut between");
}
}  // namespace
}  // namespace linnet::testing
