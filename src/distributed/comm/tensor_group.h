// Tensor parallel: ranks that compute one model together, each with a part of its layers
// (engine/passes/tensor_parallel.h). Ranks are numbered first within a tensor group, then by pipeline stage: with T
// ranks in a group and P stages, rank r is number r % T of its tensor group, computes stage r / T % P, and is in model
// r / (T P). Ranks of the same number and stage train on different data.
#pragma once
#include <span>
#include <vector>
#include "base/thread_pool.h"
#include "distributed/comm/communicator.h"

namespace linnet {
std::vector<int> some_ranks(int first, int count, int step);

// Some ranks of a world as a communicator. All of them use it at the same point.
class RankGroup : public Communicator {
 public:
  // `ranks` of `world`, in ascending order, include this process's. The world outlives the group.
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

// A process's groups when the world is divided into models of `tensor_ranks` * `stages` ranks.
struct RankGroups {
  RankGroups(Communicator& world, int tensor_ranks, int stages = 1);
  RankGroup tensor;    // the ranks that share this rank's layers
  RankGroup pipeline;  // those that have the layers before and after them: number s of them is stage s
  RankGroup data;      // those that have the same part of the same layers
};

// Checks the group with which a plan runs: internal error unless it has `ranks` ranks.
Communicator& checked_group(Communicator* group, int ranks);

// values = the sum of all ranks' values in rank order, the same bits on every rank. `scratch`: sum_scratch_size()
// floats. Allocates only for more ranks than before.
void sum_over_ranks(Communicator& group, std::span<float> values, std::span<float> scratch, ThreadPool& pool);
size_t sum_scratch_size(size_t values, int ranks);
// The sum of one number of each rank; `scratch` grows as needed.
float sum_over_ranks(Communicator& group, float value, std::vector<float>& scratch, ThreadPool& pool);
constexpr size_t kSummedPiece = size_t{1} << 18;  // floats that are summed at once
// Whether each rank sends all values and computes the whole sum: one exchange in place of two, for few values.
constexpr bool sends_whole(size_t values, size_t ranks) { return values * ranks <= 4096; }
}  // namespace linnet
