// The graphs of a training step, built from a loss.
//
//   accumulate   forward and backward of one micro-batch; adds to the states "gradient", "loss_sum" and "token_count"
//   bucket       the same with gradients that are in memory only until they were sent (ZeRO stage 2)
//   apply        divides by the tokens, clips, updates the parameters and their moments; clears those states
//   single       both in one, when a step is one micro-batch: the gradient is never added up in memory
//   evaluate     forward only
//
// States of each trained range (models/nn/parameter_layout.h), with its suffix: "parameters", "moment1", "moment2"
// (Adam), "ema" (optional), "gradient" [range.count], and those of other optimizers (training/trainer/range_update.h);
// "loss_sum", "token_count" []. Other inputs: "parameters.frozen", "control" [2] = {learning rate, step from 1},
// "random" i32 [4], "loss_scale" [] (optional), and those of the loss. Outputs of single, apply and evaluate:
// "loss_sum", "token_count"; of single and apply also "sum_of_squares" (of the undivided gradient).
#pragma once
#include "distributed/comm/communicator.h"
#include "engine/ops/optimizer/optimizer.h"
#include "engine/plan/plan.h"
#include "models/nn/loss.h"
#include "models/nn/parameter_layout.h"
#include "models/nn/trace.h"

namespace linnet {
// Pieces of the flat gradient that ranks add while the backward pass, last layers first, still computes others.

// Elements [first, first + count) of a trained range: consecutive whole parameters.
struct GradientBucket {
  size_t range;  // of ParameterLayout::ranges()
  int64_t first, count;
};

// All trained parameters but packed ones, in buckets of at least about a sixteenth of them.
std::vector<GradientBucket> gradient_buckets(const ParameterLayout& layout);

// The last node of the plan that writes to each bucket; the number of nodes if it is complete only after all.
std::vector<NodeId> last_writers(
    const Plan& plan, const ParameterLayout& layout, const std::vector<GradientBucket>& buckets);

// Sorts by completion in rank 0's plan. All ranks must call this.
void sort_by_completion(
    std::vector<GradientBucket>& buckets, const std::vector<NodeId>& last_writers, Communicator& world);

// When a plan of bucket_graph() has a bucket in memory, in the order of its buckets.
struct HeldBucket {
  NodeId ready;  // complete when this node is done
  NodeId hold;   // and in memory until this one
  Location location;
  float* values(const Store& store) const {
    return reinterpret_cast<float*>(store.location(location.region) + location.offset);
  }
};
std::vector<HeldBucket> held_buckets(const Plan& plan);

struct RangeSlice {
  size_t range;  // of ParameterLayout::ranges()
  int64_t first, count;
};

// That part as a range of its own, whose states have this suffix: "parameters.own", "moment1.1.own".
inline constexpr const char* kOwnSuffix = ".own";
TrainedRange part_of(const TrainedRange& range, const RangeSlice& part);

struct StepOptions {
  DType dtype = DType::kF32;
  OptimizerAttrs optimizer;
  // Gradients are those of the loss times the input "loss_scale" []; the update and "sum_of_squares" divide it out.
  bool scales_loss = false;
  // Of a rank's stage (models/nn/pipeline_parallel.h); accumulate_graph() only has its parameters.
  int chunk = 0;
};

Graph single_graph(const ParameterLayout& layout, const LossFunction& loss, const StepOptions& options);
Graph accumulate_graph(const ParameterLayout& layout, const LossFunction& loss, const StepOptions& options);
// accumulate_graph() of a step's only micro-batch without the states "gradient": each bucket is a tensor [count] of the
// same bits. One node `hold` (ops/collective) for each, in order, reads it when the next bucket is complete; whoever
// runs the graph waits there until the bucket was sent. `sorts`: by completion.
Graph bucket_graph(const ParameterLayout& layout, const LossFunction& loss, const StepOptions& options,
    std::vector<GradientBucket>& buckets, bool sorts);
Graph apply_graph(const ParameterLayout& layout, const StepOptions& options);
// Updates slices of the parameters; other processes update the rest. "sum_of_squares" [] of all gradients is an input.
// Gradients are the states "gradient" of whole ranges, or else of the slices, which are not cleared.
Graph apply_slices_graph(const ParameterLayout& layout, std::span<const RangeSlice> slices, const StepOptions& options,
    bool has_whole_gradient);
// `flat_name`: "parameters", or "ema" to evaluate the moving average.
Graph evaluate_graph(
    const ParameterLayout& layout, const LossFunction& loss, const std::string& flat_name, DType dtype = DType::kF32);

// The loss factor in fp16 training (Micikevicius et al. 2018), which keeps small gradients from rounding to zero. It
// grows while nothing overflows; an overflow halves it and skips the step.
struct LossScaleOptions {
  double initial = 0;           // a power of two from 1 to 2^24; 0: the loss is not scaled
  int64_t growth_steps = 2000;  // consecutive steps without overflow after which the scale doubles
  bool is_on() const { return initial > 0; }
};

struct LossScale {
  static constexpr double kLeast = 1, kMost = 1 << 24;
  double value = 1;
  int64_t clean_steps = 0;    // since the last change of the scale
  int64_t skipped_steps = 0;  // of the whole run

  // At the smallest scale an overflow has another cause.
  bool can_skip() const { return value > kLeast; }
  // Counts a step that was applied, or skipped because its gradient overflowed.
  void count(bool finite, int64_t growth_steps) {
    if (!finite) {
      value = std::max(value / 2, kLeast), clean_steps = 0, ++skipped_steps;
    } else if (++clean_steps >= growth_steps) {
      value = std::min(value * 2, kMost), clean_steps = 0;
    }
  }
  bool operator==(const LossScale&) const = default;
};
}  // namespace linnet
