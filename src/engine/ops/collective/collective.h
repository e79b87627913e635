// Exchanges between the ranks of a tensor group (distributed/comm/tensor_group.h), which all run the same nodes in
// order. The gradient of a whole value is the same on every rank; a summand's gradient is the sum's; a value that each
// rank uses for its part of the layers gets a part of its gradient from each.
//
//   all_reduce   the sum of all ranks' x; its gradient is passed through
//   share        x itself, for nodes that are divided; its gradient is the sum of all ranks'
//   all_gather   the whole of a value whose axis is divided; its gradient is cut
//   hold         0, once all operands are computed: keeps their memory for readers outside of the graph
//                (training/trainer/sharded_step.h); no gradient
//
// CPU only. A single rank has no such nodes.
#pragma once
#include "engine/ops/kernel.h"
#include "engine/ops/sharding.h"

namespace linnet {
struct CollectiveAttrs {
  int ranks = 1;
  void fields(FieldVisitor& visit) { visit("ranks", ranks); }
};

struct AllGatherAttrs {
  int axis = 0;
  std::vector<int64_t> parts = {};  // as Sharding::parts
  int rank = 0, ranks = 1;
  void fields(FieldVisitor& visit) {
    visit("axis", axis), visit("parts", parts), visit("rank", rank), visit("ranks", ranks);
  }
};

extern const OpDef kAllReduce, kShare, kAllGather, kHold, kStageOutput;

Tensor all_reduce(At x, const TensorRank& rank);
Tensor share(At x, const TensorRank& rank);
// `sharding`: how x is divided.
Tensor all_gather(At x, const Sharding& sharding, const TensorRank& rank);
Tensor hold(At x, std::span<const Tensor> others);
// The rank's part of a whole value, without an exchange.
Tensor cut(At x, const Sharding& sharding, const TensorRank& rank);

// The end of a pipeline stage's forward pass (engine/passes/tensor_parallel.h): a scalar in place of the loss, which
// only later stages know. Operands are the values for the next stage and their gradients, which come from there:
//
//   forward:   0
//   backward:  d(value[i]) = gradient[i]
//
// Those gradients include the loss's scale, so the result's gradient is not read. gradients[i] has the type of
// values[i]; there is at least one. Result: fp32 [].
Tensor stage_output(
    std::span<const Tensor> values, std::span<const Tensor> gradients, SourceLine where = SourceLine::current());

// For sums over ranks on a GPU: into[i] += from[i]; queued.
void add_values_cuda(Device* device, float* into, const float* from, int64_t count);
}  // namespace linnet
