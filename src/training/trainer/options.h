// What a Trainer is told.
#pragma once
#include "distributed/comm/shard_sum.h"
#include "engine/passes/passes.h"
#include "engine/passes/tensor_parallel.h"
#include "engine/profile/step_profiler.h"
#include "training/trainer/fit_memory.h"
#include "training/trainer/step_graphs.h"

namespace linnet {

struct TrainerOptions {
  OptimizerAttrs optimizer;
  int64_t accumulate_steps = 1;
  // A step is this many batches, or groups of accumulate_steps, whose gradients are added in the order of the shard
  // tree; see training/trainer/sharded_step.h.
  ShardShare shards = {};
  // Tensor parallel: which rank of its group this is. The layout has the division (models/nn/tensor_parallel.h), losses
  // are those of the rank, and whoever runs steps is in the group's TensorGroupScope.
  TensorRank tensor = {};
  // Pipeline parallel: which stages this rank has. The layout has them (models/nn/pipeline_parallel.h), the trainer
  // cuts losses into them, and whoever runs steps and evaluations is in a PipelineScope. A step's micro-batches are its
  // accumulate_steps; a multiple of the ranks where each has several stages.
  PipelineRank pipeline = {};
  // ZeRO (Rajbhandari et al. 2020). Stage 1: each rank has the moments of a part of the parameters
  // (training/trainer/ownership.h), and updates it. Stage 2: and the gradients of that part; others it has only until
  // they were sent. Several accumulate_steps need the whole gradient between them.
  bool divide_moments = false, divide_gradients = false;
  LossScaleOptions loss_scale = {};  // for fp16
  int threads = 1;
  uint64_t seed = 1;  // of initial weights and dropout
  PassOptions passes = {};
  RecomputeMode recompute = RecomputeMode::kAuto;
  // Most bytes to take; 0: no limit. With kAuto, layers are computed again until the step fits. For a
  // SingleShapeLearner: of what it plans (SingleShapeLearner::memory_bytes()). For a session: with what the process
  // holds anyway; on a device, of its memory.
  uint64_t memory = 0;
  uint64_t memory_beside = 0;  // SingleShapeLearner: bytes of `memory` that something else takes
  bool training = true;        // false: only evaluation; no gradients and no moments
  bool verify_plans = true;    // see PlanOptions
  // find_non_finite() reads the graphs that were planned: losses are not traced again after bind().
  bool keep_graphs = false;
  // Of a layout with an owner: the store that has the weights. There is no state "parameters" then.
  const Store* owner = nullptr;
  // For a SingleShapeLearner, which makes the store itself: where it trains (open_backend("cuda")). Otherwise the store
  // says.
  const Backend* backend = &cpu_backend();
  // Which steps are profiled; if it is off, the environment variable LINNET_PROFILE decides.
  ProfileOptions profile = {};

  // Whether a step is Trainer::accumulate() and apply() instead of step(): it has several micro-batches, data shards or
  // stages of a pipeline.
  bool accumulates() const { return accumulate_steps > 1 || shards.shards > 1 || pipeline.ranks > 1; }
};

}  // namespace linnet
