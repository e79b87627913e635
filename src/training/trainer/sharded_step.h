// A training step whose batch is cut into data shards, on one rank or on several. Each rank computes its shards one
// after the other; their gradients are added in the order of the shard tree (distributed/comm/shard_sum.h). So for one
// number of shards every number of ranks trains to the same bits.
//
//   ShardedStep shards(trainer, world);
//   shards.begin();
//   for each shard of this rank: { shards.accumulate(...) for each of its batches; shards.add(); }
//   shards.finish();
//   trainer.apply(...);
//   shards.share_update();
//
// On the CPU the ranks add the gradient in buckets, on a thread, while the backward pass of each rank's last batch
// still computes the others. On a GPU it stays in its memory where the ranks' devices have joined
// (distributed/comm/communicator.h).
//
// Where ranks divide the gradient (ZeRO stage 2), a rank keeps its slice of it alone: every shard is sent by itself.
// The tree's siblings are then on different ranks, whose shards the owners of the slices add at once
// (ShardSum::add_round).
//
// Saved buffers (running statistics) begin each shard with the values they had before the step; after it they are the
// mean of what the shards made of them.
#pragma once
#include "base/thread_pool.h"
#include "data/examples/batch.h"
#include "distributed/comm/shard_sum.h"
#include "training/trainer/ownership.h"
#include "training/trainer/step_graphs.h"
#include "training/trainer/trainer.h"

namespace linnet {

// The memory that a ShardedStep takes: gradients that wait for their sibling, and pieces of the other ranks'.
// `divided`: of gradients that ranks divide, or null.
void declare_shard_sums(Store& store, const ParameterLayout& layout, const ShardShare& share, const Ownership* divided);

class ShardedStep {
 public:
  // Of a trainer with several shards, whose store is allocated. Where ranks share the layers `world` are those that
  // have the same part of them, and `tensor` those of the tensor group: no thread sends then, as both would use the
  // messages at once, and who trains agrees on stops before the step. `device`: the same ranks on the trainer's device,
  // or null; it outlives this.
  explicit ShardedStep(Trainer& trainer, Communicator& world, Communicator* tensor = nullptr,
                       DeviceRanks* device = nullptr);

  // The batches of a step that are this rank's.
  BatchShare batches() const;

  void begin();
  // Trainer::accumulate() of batch `micro`, from 0, of the shard that add() ends.
  void accumulate(int shape, int64_t step, int64_t micro);
  void add();
  // Waits for all ranks. Throws Stopped on all of them when a stop was requested on any: nothing was updated then.
  void finish();
  // After the update, of which ranks that divide the moments have done a slice each: the parameters; and before an
  // evaluation or a checkpoint their moving average.
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
  std::vector<float> host_messages_;  // of gradients that go through the host
  std::vector<float> few_messages_;
  ShardSum sum_, few_sum_;
  ShardStack stack_;
  int64_t added_ = 0;                    // shards of this step so far
  std::vector<std::vector<float>> few_;  // of each node: loss, tokens, requests to stop, buffers
  std::vector<float> buffers_before_;    // the step
  std::vector<std::span<float>> nodes_;
  SharedSquares squares_;
  std::vector<float> scratch_;  // of a sum over the tensor ranks
  // Of the backward pass that sends.
  const int64_t waiting_at_last_;  // nodes that wait for this rank's last shard
  int64_t additions_of_last_ = 0;  // how many of them that shard is added to
  std::vector<GradientBucket> buckets_;
  std::map<int, std::vector<NodeId>> last_writers_;  // by shape, of each bucket
  std::vector<std::span<float>> sent_nodes_;
  // Of divided gradients.
  std::vector<std::vector<std::span<float>>> slices_;  // by range: gradient_slices()
  std::map<int, std::vector<HeldBucket>> held_;        // by shape; without a whole gradient
  const std::vector<HeldBucket>* sent_ = nullptr;      // of the shape that runs
  std::vector<float> few_of_round_;
  ThreadPool own_thread_{1};
  std::optional<OrderedWorker> sender_;  // where several ranks train on CPUs
};

}  // namespace linnet
