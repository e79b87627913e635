// A training step whose batch is cut into data shards. Each rank computes its shards in turn; gradients are added in
// the order of the shard tree (distributed/comm/shard_sum.h), which gives the same bits on any number of ranks.
//
//   ShardedStep shards(trainer, world);
//   shards.begin();
//   for each shard of this rank: { shards.accumulate(...) for each of its batches; shards.add(); }
//   shards.finish();
//   trainer.apply(...);
//   shards.share_update();
//
// On the CPU a thread adds buckets of the gradient over the ranks while the backward pass of a rank's last batch still
// computes others. Gradients stay in GPU memory if the ranks' devices are joined (distributed/comm/communicator.h).
//
// Where ranks divide the gradient (ZeRO stage 2), a rank keeps only its slice and sends every shard by itself. The
// tree's siblings are then on different ranks, and the slices' owners add them at once (ShardSum::add_round).
//
// Saved buffers (running statistics) start each shard with their values before the step; their mean is kept.
#pragma once
#include "base/thread_pool.h"
#include "data/examples/batch.h"
#include "distributed/comm/shard_sum.h"
#include "training/trainer/step_graphs.h"
#include "training/trainer/trainer.h"
#include "training/trainer/training_state.h"

namespace linnet {
// Declares a ShardedStep's memory: gradients that wait for their sibling, and pieces of other ranks' gradients.
// `divided`: for gradients that ranks divide, or null.
void declare_shard_sums(Store& store, const ParameterLayout& layout, const ShardShare& share, const Ownership* divided);

class ShardedStep {
 public:
  // The trainer has several shards, and its store is allocated. Where ranks share layers, `world` has the ranks with
  // the same part and `tensor` the tensor group; no thread sends then, as both would use the messages at once, and the
  // caller agrees on stops before the step. `device`: the same ranks on the trainer's device, or null; outlives this.
  explicit ShardedStep(
      Trainer& trainer, Communicator& world, Communicator* tensor = nullptr, DeviceRanks* device = nullptr);

  BatchShare batches() const;

  void begin();
  // Trainer::accumulate() of batch `micro`, from 0, of the shard that add() ends.
  void accumulate(int shape, int64_t step, int64_t micro);
  void add();
  // Waits for all ranks. Throws Stopped on all, before any update, if a stop was requested on any.
  void finish();
  // Where ranks divide the update, share_update() sends each one's parameters to all after it; share_average() sends
  // the moving average before an evaluation or a checkpoint.
  void share_update();
  void share_average();

 private:
  bool divides_gradients() const { return state_.divides_gradients(); }
  int64_t first_micro(int64_t shard) const;
  void accumulate_and_send(int shape, int64_t step, int64_t micro);
  void accumulate_and_send_held(int shape, int64_t step, int64_t micro);
  void send(size_t bucket, ThreadPool& pool, Communicator::Wait wait);
  void sum_part(size_t range, Slice part, int64_t additions, size_t waiting, ThreadPool& pool, Communicator::Wait wait);
  void read_few(std::vector<float>& few) const;
  void add_round();
  void add_squares();
  void share_slices(const char* state);
  std::span<float> waiting_gradient(size_t index) const;
  void keep_for_sibling(std::span<float> into);
  std::span<const float> own_gradient(size_t range) const;
  void reset_shard();

  Trainer& trainer_;
  const TrainingState& state_;  // the trainer's
  Communicator& world_;
  Communicator* const tensor_;  // null: every rank has whole layers
  DeviceRanks* const device_;   // null: gradients are added on the host
  const bool shares_layers_;    // in a tensor group, or as stages of a pipeline
  const Store& store_;
  const ShardShare share_;
  const std::span<float> gradient_;  // where accumulate() adds; empty: in the plan's memory, see HeldBucket
  const std::span<float> buffers_;
  std::vector<float> host_messages_;  // gradients sent through the host
  std::vector<float> few_messages_;
  ShardSum sum_, few_sum_;
  ShardStack stack_;
  int64_t added_ = 0;                    // shards of this step so far
  std::vector<std::vector<float>> few_;  // of each node: loss, tokens, requests to stop, buffers
  std::vector<float> buffers_before_;    // before the step
  std::vector<std::span<float>> nodes_;
  SharedSquares squares_;
  std::vector<float> scratch_;  // for sums over tensor ranks
  // For the backward pass that sends.
  const int64_t waiting_at_last_;  // nodes that wait for this rank's last shard
  int64_t additions_of_last_ = 0;  // how many of them it is added to
  std::vector<GradientBucket> buckets_;
  std::map<int, std::vector<NodeId>> last_writers_;  // by shape, of each bucket
  std::vector<std::span<float>> sent_nodes_;
  // For divided gradients.
  std::vector<std::vector<std::span<float>>> slices_;  // by range: gradient_slices()
  std::map<int, std::vector<HeldBucket>> held_;        // by shape; without a whole gradient
  const std::vector<HeldBucket>* sent_ = nullptr;      // of the running shape
  std::vector<float> few_of_round_;
  ThreadPool own_thread_{1};
  std::optional<OrderedWorker> sender_;  // if several ranks train on CPUs
};
}  // namespace linnet
