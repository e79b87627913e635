// What a rank computes and sends in a step, from the plans of its trainer: the bridge between plans and the simulator
// (distributed/simulate/training_step.h).
#pragma once
#include <string>
#include <vector>

#include "distributed/comm/communicator.h"
#include "distributed/comm/shard_tree.h"
#include "engine/profile/plan_profile.h"
#include "distributed/simulate/training_step.h"
#include "tasks/planning/plan_memory.h"
#include "training/trainer/trainer.h"

namespace linnet {

// Where a rank's node times come from.
struct NodeTimes {
  MachineSpeed speed;  // estimates them, as estimated_step_seconds() does
  // Measured seconds of the plan "train.SHAPE", by node, and of the update; empty: they are estimated.
  int shape = -1;
  std::vector<double> measured = {};
  double update_seconds = 0;
};

struct NodeWork {
  std::string module;
  StepPhase phase;
  double seconds;
  double kept_bytes;  // that wait for the backward pass
  Traffic exchange;   // with the tensor group
};

// A part of the model that a pipeline does not cut: one of several equal layers, or what stands between them.
struct ModelBlock {
  std::string name;  // "decoder.layers.3"
  bool is_layer;
  double seconds = 0;  // forward and backward
  double kept_bytes = 0;
  int64_t parameters = 0;  // that are trained
};

// A value that a later block reads in the forward pass.
struct PassedValue {
  size_t from, to;  // the block that computes it, and the last that reads it
  double bytes;
};

struct RankWork {
  std::vector<NodeWork> nodes;  // of one micro-batch of the shape that takes longest
  double update_seconds = 0;
  size_t arena_bytes = 0;
  std::vector<ModelBlock> blocks;  // in the order of the forward pass
  std::vector<size_t> block_of;    // by node
  std::vector<PassedValue> passed;
  // Gradients that leave together, in the order in which they do, and the node after which each is complete.
  struct Bucket {
    size_t values;  // of the range that it is a part of
    Slice part;
    NodeId last_writer;
  };
  std::vector<Bucket> buckets;
  std::vector<size_t> ranges;  // trained values in each
  size_t counts = 0;           // values beside gradients that ranks add
  ShardShare shards;
  int64_t accumulate_steps = 1;
  bool divides_update = false;
  // Ranks add the gradient of each shard, and keep their own part alone (ZeRO stage 2); otherwise each adds its shards
  // first.
  bool adds_each_shard = false;
  double bytes_per_second = 0;  // of memory
};

RankWork work_of_rank(const Trainer& trainer, const NodeTimes& times);

// What work of a rank is made of.
inline constexpr size_t kLossTokensStops = 3;  // values beside gradients that ranks add
RegionId arena_of(const Store& store);
Traffic exchange_of(const Graph& graph, const Node& node);
std::string block_name(const std::string& module);  // "decoder.layers.3" of "decoder.layers.3.self_attention"
// What a rank's shards take beside their passes: each but the first is added to another, and all but the last are moved
// and cleared; with a divided update the norm of its slice.
double seconds_of_shards(double gradient_bytes, const ShardShare& shards, int data_ranks, bool divides_update,
                         double bytes_per_second);

// The first block of each stage, such that the stage with most work has as little as it can; the first is 0. User error
// when there are fewer layers than stages.
std::vector<size_t> balanced_cut(const std::vector<ModelBlock>& blocks, int stages);

// The step of all ranks. With a pipeline the rank's model is cut in balance, which is an estimate: no plan of a stage
// is made (tasks/planning/stage_work.h has those). User error where interleaved stages cannot have the micro-batches.
// `detailed`: the layers' names are kept, for traces.
TrainingStep step_of(const RankWork& work, const RankLayout& layout, bool detailed);

// Of the rank of a pipeline that takes most: the items of a whole model's memory, as its stages would have them.
MemoryForecast stage_memory(const MemoryForecast& whole, const RankWork& work, const RankLayout& layout);

}  // namespace linnet
