// One rank of a pipeline (models/nn/pipeline_parallel.h): the plans of its stages, one or with interleaving several
// "chunks", and their passes in the order of distributed/comm/pipeline_order.h. What a stage keeps of a micro-batch
// between the forward and the backward pass lies in a slot; a chunk has as many of them as micro-batches are on their
// way. The last stage computes both passes of a micro-batch in one plan.
#pragma once
#include "base/function_ref.h"
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
  // `micro_batches`: how many begin before each finish(), at most; 0: nothing is trained.
  PipelineStage(const ParameterLayout& layout, Store& store, const SharedRegions& shared, int64_t micro_batches);

  // Makes room in the store for what the neighbors send, and gives the graph of the last chunk's evaluation, or of the
  // last stage's training, as it reads that; the caller plans it.
  Graph with_ends(int shape, int chunk, const Graph& traced, bool training);
  // The evaluation of a chunk that is not the rank's last.
  void plan_evaluation(int shape, int chunk, const Graph& traced, const PassOptions& passes,
                       const PlanOptions& options);
  // The training of a stage that is not the last.
  void plan_training(int shape, int chunk, const Graph& traced, const PassOptions& passes, const PlanOptions& options,
                     std::vector<PassReport>* report);
  bool is_last(int chunk) const { return stages_.rank.stage(chunk).is_last(); }
  void bind();
  void add_plans(NamedPlans& plans) const;
  // Of plan_training(), forward and backward, of any slot; and what they take.
  std::pair<const Plan&, const Plan&> training_plans(int shape, int chunk) const;
  PlanSize training_size(int shape, int chunk) const;

  // The next micro-batch begins, whose arrays lie where the loss reads them. `last`: the last stage's plan of this
  // shape. set_random(step, micro) writes the graphs' input "random".
  using SetRandom = FunctionRef<void(int64_t step, int64_t micro)>;
  void accumulate(int shape, int64_t step, int64_t micro, const Executor* last, SetRandom set_random, ThreadPool& pool);
  // Completes the micro-batches that have begun: the state "gradient" of parameters that several ranks have is their
  // sum, and "loss_sum" and "token_count" are those of the last rank.
  void finish(SetRandom set_random, ThreadPool& pool);
  // Sum over the ranks of the squares that each has of its own parameters' gradients, for the state "sum_of_squares".
  float sum_over_stages(float own, ThreadPool& pool) { return sum_over(group(), own, pool); }
  // The same of the state "gradient" as it lies.
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
  // The plans of a chunk for a batch shape.
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
  // Those of a rank's steps, from next_ on, whose micro-batches have begun.
  void run_begun(const std::vector<PipelineStep>& steps, SetRandom set_random, ThreadPool& pool);
  void run_pass(const PipelineStep& step, SetRandom set_random, ThreadPool& pool);
  void keep_batch(const Graph& graph);
  void copy_batch(int64_t micro, bool to_store) const;
  void add_shared_gradients(ThreadPool& pool);
  float sum_over(Communicator& ranks, float own, ThreadPool& pool);
  // Messages of the exchange to come.
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
  // With interleaving: the result of a forward pass, until the pair of passes is done
  // (distributed/comm/pipeline_order.h); and the batches of a group, which later chunks read when others have begun.
  RegionId outbox_ = -1, waiting_ = -1;
  std::map<std::string, size_t> batch_bytes_;  // by array, of the largest shape
  size_t waiting_bytes_ = 0;                   // of a batch

  // A parameter that this rank and others have.
  struct Shared {
    Shared(Communicator& pipeline, const std::vector<int>& of, std::span<float> gradient)
        : stages(pipeline, of), gradient(gradient) {}
    RankGroup stages;
    std::span<float> gradient;
  };
  std::vector<std::unique_ptr<Shared>> tied_;
  bool has_tied_ = false;  // tied_ is complete

  const std::vector<PipelineStep> steps_;
  // Of the micro-batches since the last finish().
  std::vector<MicroBatch> begun_;
  size_t next_ = 0;  // of steps_
  std::vector<Communicator::Outgoing> outgoing_;
  std::vector<Communicator::Incoming> incoming_;
  std::vector<float> scratch_;
  std::vector<double> squares_;
};

}  // namespace linnet
