// The order in which the ranks of a pipeline compute passes of micro-batches, and what they exchange in between.
//
// One stage per rank: one forward and one backward pass in turn (1F1B; Narayanan et al. 2019, "PipeDream"). Each rank
// first computes as many forward passes as there are ranks behind it, the last rank none.
//
// Several stages ("chunks") per rank: interleaved 1F1B (Narayanan et al. 2021, "Megatron-LM", section 2.2). Stage s is
// chunk s / ranks of rank s % ranks. Groups of as many micro-batches as ranks pass chunk 0 of all ranks, then chunk 1,
// and so on: with p ranks, v chunks and m micro-batches a rank idles for (p - 1) / (m v) of its working time. A smaller
// last group makes ranks wait where the missing ones would be.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

namespace linnet {
// "data=2,pipeline=3" of 6 ranks: 3 ranks compute one model together, some layers each, and two such models train on
// different data. Ranks are numbered as in distributed/comm/tensor_group.h: first within a tensor group, then by
// pipeline stage, then by the data.
struct RankLayout {
  int data = 1, tensor = 1, pipeline = 1;
  int interleave = 1;  // stages of each rank of a pipeline
  // "pipeline=encoder-decoder": the encoder is on one rank and the decoder on another
  bool splits_encoder = false;
  int ranks() const { return data * ranks_of_model(); }
  int ranks_of_model() const { return tensor * pipeline; }
  int stages() const { return pipeline * interleave; }
  bool operator==(const RankLayout&) const = default;
};

struct PipelineOrder {
  int ranks = 1, chunks = 1;
  int64_t micro_batches = 1;
};

struct PipelinePass {
  bool is_forward;
  int chunk;
  int64_t micro;
  bool operator==(const PipelinePass&) const = default;
};

std::vector<PipelinePass> pipeline_passes(const PipelineOrder& order, int rank);  // the passes of a rank, in order

// A rank first exchanges all of these messages with its neighbors at once, then computes.
struct PipelineStep {
  // Named by the passes of this rank that make what is sent and need what is received.
  std::vector<PipelinePass> sends, receives;
  std::optional<PipelinePass> pass;
  // The last stage computes both passes of a micro-batch at once; `pass` is then the forward pass.
  bool with_backward = false;
};

// Free of deadlocks, even if a message arrives only once its receiver asks for it.
std::vector<PipelineStep> pipeline_steps(const PipelineOrder& order, int rank);

// For each chunk of a rank, the most micro-batches in flight at one time. A micro-batch is in flight from receiving its
// input of the forward pass to the end of its backward pass.
std::vector<int64_t> pipeline_slots(const PipelineOrder& order, int rank);

// The rank that a pass's result goes to, and the one its input comes from; -1 at the ends of the model.
int pipeline_receiver(const PipelineOrder& order, int rank, const PipelinePass& pass);
int pipeline_sender(const PipelineOrder& order, int rank, const PipelinePass& pass);
}  // namespace linnet
