// One rank of a pipeline (models/nn/pipeline_parallel.h): the plans of its stages, one or, interleaved, several
// "chunks". Passes follow distributed/comm/pipeline_order.h. A slot holds a micro-batch's saved activations; a chunk
// has one for each micro-batch in flight. The last stage computes both passes in one plan.
#pragma once
#include "distributed/comm/pipeline_order.h"
#include "distributed/comm/tensor_group.h"
#include "engine/exec/executor.h"
#include "engine/passes/passes.h"
#include "engine/plan/plan.h"
#include "models/nn/parameter_layout.h"
#include "models/nn/pipeline_parallel.h"

namespace linnet {
class PipelineStage {
 public:
  // `micro_batches`: at most so many before each finish(); 0: no training. `seed`: of the input "random".
  PipelineStage(
      const ParameterLayout& layout, Store& store, const SharedRegions& shared, int64_t micro_batches, uint64_t seed);

  // Declares buffers for messages of neighbors. Returns the graph that reads them, of the last chunk's evaluation or
  // the last stage's training, for the caller to plan.
  Graph with_ends(int shape, int chunk, const Graph& traced, bool training);
  // Plans the evaluation of a chunk that is not the rank's last.
  void plan_evaluation(
      int shape, int chunk, const Graph& traced, const PassOptions& passes, const PlanOptions& options);
  // Plans the training of a stage that is not the last.
  void plan_training(int shape, int chunk, const Graph& traced, const PassOptions& passes, const PlanOptions& options,
      std::vector<PassReport>* report);
  bool is_last(int chunk) const { return stages_.rank.stage(chunk).is_last(); }
  void bind();
  void add_plans(NamedPlans& plans) const;
  // Forward and backward plans by plan_training(), of any slot, and their memory.
  StepPlans training_plans(int shape, int chunk) const;
  PlanSize training_size(int shape, int chunk) const;

  // Begins the next micro-batch, whose arrays are where the loss reads them. `last`: the last stage's plan of `shape`.
  void accumulate(int shape, int64_t step, int64_t micro, const Executor* last, ThreadPool& pool);
  // Completes the begun micro-batches: the state "gradient" of shared parameters is summed over ranks, and "loss_sum"
  // and "token_count" are those of the last rank.
  void finish(ThreadPool& pool);
  // Sums over the ranks the squares of each one's own gradients, for the state "sum_of_squares".
  float sum_over_stages(float own, ThreadPool& pool) { return sum_over_ranks(group(), own, scratch_, pool); }
  // The same from the state "gradient".
  float sum_of_squares(ThreadPool& pool);
  // Runs the rank's part of an evaluation; loss and count come from the last rank. `executor`: of the last chunk.
  struct Totals {
    float sum, count;
  };
  Totals evaluate(int shape, const Executor& executor, ThreadPool& pool);

 private:
  struct End {  // where a message is received
    std::string name;
    Location location;
    TensorType type;
  };
  struct Ends {
    std::vector<End> in, gradient_in, shared, batch;
    std::vector<std::string> out, gradient_out;
  };
  struct Slot {
    Plan forward, backward;
    std::unique_ptr<Executor> run_forward, run_backward;
  };
  struct ChunkPlans {
    Ends evaluation, training;
    std::vector<Slot> slots;  // of a stage that is not the last
    Plan evaluate;            // of a chunk that is not the last
    std::unique_ptr<Executor> run_evaluate;
  };
  struct MicroBatch {
    int shape;
    int64_t step, micro;
    const Executor* last;
  };

  Graph take_ends(const Graph& graph, const std::string& prefix, int chunk, bool uses_slots, Ends& ends);
  ChunkPlans& at(int shape, int chunk);
  ChunkPlans& plans_of(const PipelinePass& pass) { return at(batch_of(pass).shape, pass.chunk); }
  const MicroBatch& batch_of(const PipelinePass& pass) const { return begun_[pass.micro]; }
  size_t slot_of(const PipelinePass& pass) const;
  std::string name_of(int shape, int chunk) const;
  bool is_interleaved() const { return stages_.rank.chunks > 1; }
  PipelineOrder order_of(int64_t micro_batches) const {
    return {stages_.rank.ranks, stages_.rank.chunks, micro_batches};
  }
  bool has_begun(const PipelineStep& step) const;
  // Runs the steps from next_ on whose micro-batches have begun.
  void run_begun(const std::vector<PipelineStep>& steps, ThreadPool& pool);
  void run_pass(const PipelineStep& step, ThreadPool& pool);
  bool is_of_batch(const std::string& input) const;
  void keep_batch(const Graph& graph);
  void copy_batch(int64_t micro, bool to_store) const;
  void add_shared_gradients(ThreadPool& pool);
  // Messages of the next exchange.
  void receive(const std::vector<End>& ends, int chunk, size_t slot, int from);
  void send(const Executor& executor, const std::vector<std::string>& outputs, int to);
  void send_result(const PipelinePass& pass);
  void exchange();
  std::span<std::byte> bytes_of(const End& end, int chunk, size_t slot) const;
  Communicator& group() const { return checked_group(store_.groups().pipeline, stages_.rank.ranks); }

  const ParameterLayout& layout_;
  const ModelStages& stages_;
  Store& store_;
  const SharedRegions shared_;
  RegionId messages_ = -1;
  std::vector<std::vector<RegionId>> slots_;                      // by chunk
  std::vector<std::vector<std::unique_ptr<ChunkPlans>>> shapes_;  // by shape and chunk
  // With interleaving: a forward result kept until its pair of passes is done (distributed/comm/pipeline_order.h); the
  // group's batches, which later chunks read.
  RegionId outbox_ = -1, waiting_ = -1;
  std::map<std::string, size_t> batch_bytes_;  // by array, of the largest shape
  size_t waiting_bytes_ = 0;                   // of a batch

  // A parameter that this rank shares with others.
  struct Shared {
    Shared(Communicator& pipeline, const std::vector<int>& of, std::span<float> gradient)
        : stages(pipeline, of), gradient(gradient) {}
    RankGroup stages;
    std::span<float> gradient;
  };
  std::vector<std::unique_ptr<Shared>> tied_;
  bool has_tied_ = false;  // tied_ is complete

  const std::vector<PipelineStep> steps_;
  const uint64_t seed_;
  std::vector<MicroBatch> begun_;  // since the last finish()
  size_t next_ = 0;                // of steps_
  std::vector<Communicator::Outgoing> outgoing_;
  std::vector<Communicator::Incoming> incoming_;
  std::vector<float> scratch_;
  std::vector<double> squares_;
};
}  // namespace linnet
