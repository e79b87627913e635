// Tensor parallel: ranks that compute one model together, each with a part of its layers
// (engine/passes/tensor_parallel.h). Ranks are numbered so that those of a tensor group follow each other, then the
// stages of a pipeline: with T ranks in a tensor group and P stages, rank r is number r % T of its tensor group,
// computes stage r / T % P, and is in model r / (T P). The ranks of the same number and stage train on different data.
#pragma once
#include <span>
#include <vector>
#include "base/thread_pool.h"
#include "distributed/comm/communicator.h"

namespace linnet {

std::vector<int> some_ranks(int first, int count, int step);

// Some of the ranks of a world as a communicator of their own. All of them use it at the same point.
class RankGroup : public Communicator {
 public:
  // `ranks` of `world`, in ascending order; this process's is one of them. The world outlives the group.
  RankGroup(Communicator& world, std::vector<int> ranks);
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(ranks_.size()); }
  void exchange(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming, Wait wait) override;

 private:
  Communicator& world_;
  const std::vector<int> ranks_;
  int rank_ = 0;
  std::vector<Outgoing> outgoing_;
  std::vector<Incoming> incoming_;
};

// What a process is in a division of the world into models of `tensor_ranks` * `stages` ranks.
struct RankGroups {
  RankGroups(Communicator& world, int tensor_ranks, int stages = 1);
  RankGroup tensor;    // the ranks that share this rank's layers
  RankGroup pipeline;  // those that have the layers before and after them: number s of them is stage s
  RankGroup data;      // those that have the same part of the same layers
};

// The group with which a plan is run. Internal error unless it has `ranks` ranks.
Communicator& checked_group(Communicator* group, int ranks);

// values = the sum of all ranks' values, the same bits on every rank: they are added in the order of the ranks.
// `scratch`: sum_scratch_size() floats. Allocates nothing after calls with as many ranks.
void sum_over_ranks(Communicator& group, std::span<float> values, std::span<float> scratch, ThreadPool& pool);
size_t sum_scratch_size(size_t values, int ranks);

}  // namespace linnet
