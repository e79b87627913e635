// The flat gradient in pieces that several ranks add while the backward pass still computes others: it completes the
// gradients of the last layers first.
#pragma once
#include <vector>
#include "distributed/comm/communicator.h"
#include "engine/plan/plan.h"
#include "models/nn/parameter_layout.h"

namespace linnet {

// The elements [first, first + count) of a trained range: whole parameters, one after another.
struct GradientBucket {
  size_t range;  // of ParameterLayout::ranges()
  int64_t first, count;
};

// All trained parameters but packed ones, in buckets of at least about a sixteenth of them.
std::vector<GradientBucket> gradient_buckets(const ParameterLayout& layout);

// By bucket: the last node of the plan, which adds to the state "gradient", that writes to it; the number of nodes
// where that is done after all of them.
std::vector<NodeId> last_writers(const Plan& plan, const ParameterLayout& layout,
                                 const std::vector<GradientBucket>& buckets);

// In the order in which the plan completes them. Rank 0's order on every rank, all of which must call this.
void sort_by_completion(std::vector<GradientBucket>& buckets, const std::vector<NodeId>& last_writers,
                        Communicator& world);

// Where a plan of bucket_graph() (training/trainer/step_graphs.h) has a bucket, in the order of its buckets.
struct HeldBucket {
  NodeId ready;  // complete when this node is done
  NodeId hold;   // and in memory until this one
  Location location;
  float* values(const Store& store) const {
    return reinterpret_cast<float*>(store.location(location.region) + location.offset);
  }
};
std::vector<HeldBucket> held_buckets(const Plan& plan);

}  // namespace linnet
