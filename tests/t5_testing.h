// The loss of T5 without the lengths of targets, which tests train by.
#pragma once
#include "engine/ops/cross_entropy/cross_entropy.h"
#include "models/modules/t5.h"

namespace linnet {
// Inputs of the graph: "source" i32 [batch, source_length], "source_lengths" i32 [batch], "target_in" and "targets" i32
// [batch, target_length]; a negative target is left out.
inline Loss t5_loss(T5& model, Trace& trace, int64_t batch, int64_t source_length, int64_t target_length) {
  const auto ids = [&](const char* name, Shape shape) { return trace.input(name, {DType::kI32, shape}); };
  const Tensor source = ids("source", {batch, source_length}), source_lengths = ids("source_lengths", {batch});
  const Tensor target_in = ids("target_in", {batch, target_length}), targets = ids("targets", {batch, target_length});
  const Tensor sum = model.loss(source, source_lengths, target_in, {}, targets, 0);
  return {sum, count_targets(targets, sum.type().dtype)};
}
}  // namespace linnet
