// The order in which the ranks of a pipeline compute the passes of micro-batches, and what they exchange in between.
//
// With one stage on each rank: one forward pass and one backward pass in turn (1F1B; Narayanan et al. 2019,
// "PipeDream"). Each rank but the last first computes as many forward passes as there are ranks behind it.
//
// With several stages ("chunks") on each rank, interleaved 1F1B (Narayanan et al. 2021, "Megatron-LM", section 2.2):
// stage s is chunk s / ranks of rank s % ranks. Micro-batches pass in groups of as many as there are ranks through
// chunk 0 of all ranks, then through chunk 1, and so on: a rank idles for (p - 1) / (m v) of the time it works, with p
// ranks, v chunks and m micro-batches. A last group may have fewer; ranks then wait where the others would be.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

namespace linnet {

// "data=2,pipeline=3" of 6 ranks: each 3 ranks compute one model together, of which each has some of the layers, and
// two such models train on different data. Ranks are numbered as in distributed/comm/tensor_group.h: those of a tensor
// group follow each other, then the stages of a pipeline, then the groups that train on different data.
struct RankLayout {
  int data = 1, tensor = 1, pipeline = 1;
  int interleave = 1;  // stages of each rank of a pipeline
  // "pipeline=encoder-decoder": two ranks, the encoder on one and the decoder on the other
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

// A pass of a micro-batch through a stage.
struct PipelinePass {
  bool is_forward;
  int chunk;
  int64_t micro;
  bool operator==(const PipelinePass&) const = default;
};

// Those of a rank, in their order.
std::vector<PipelinePass> pipeline_passes(const PipelineOrder& order, int rank);

// What a rank does next: first it exchanges messages with its neighbors, all of them at once, then it computes.
struct PipelineStep {
  // By the passes of this rank that make what is sent and need what is received.
  std::vector<PipelinePass> sends, receives;
  std::optional<PipelinePass> pass;
  // The last stage computes both passes of a micro-batch at once; then `pass` is the forward pass.
  bool with_backward = false;
};

// No rank waits for one that waits for it, also where a message arrives only when its receiver asks for it.
std::vector<PipelineStep> pipeline_steps(const PipelineOrder& order, int rank);

// The most micro-batches that a chunk of a rank has begun and not finished at a time: from when the input of the
// forward pass is received to the end of the backward pass.
std::vector<int64_t> pipeline_slots(const PipelineOrder& order, int rank);

// The rank that a pass's result goes to, and the one that its input comes from; -1: none, as at the ends of the model.
int pipeline_receiver(const PipelineOrder& order, int rank, const PipelinePass& pass);
int pipeline_sender(const PipelineOrder& order, int rank, const PipelinePass& pass);

}  // namespace linnet
