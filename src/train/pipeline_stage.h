// One rank of a pipeline (nn/pipeline_parallel.h): the plans of its stage, and the order in which micro-batches pass
// through them (1F1B; Narayanan et al. 2019). Each stage but the last first computes the forward passes of as many
// micro-batches as there are stages behind it; then the forward pass of one follows the backward pass of another, until
// all are done. So a stage keeps the activations of at most so many micro-batches and one more, each in a slot of its
// own. The last stage computes both passes of a micro-batch in one plan.
//
// With P stages and M micro-batches a stage has nothing to do for (P - 1) / (M + P - 1) of a step.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "comm/pipeline_group.h"
#include "comm/tensor_group.h"
#include "exec/executor.h"
#include "nn/parameter_layout.h"
#include "nn/pipeline_parallel.h"
#include "passes/passes.h"
#include "plan/plan_file.h"

namespace linnet {

class PipelineStage {
 public:
  // `micro_batches`: of a step, or of a data shard: how many begin at most before finish().
  PipelineStage(const ParameterLayout& layout, Store& store, const SharedRegions& shared, int64_t micro_batches);

  // Planning. Makes room in the store for what the neighbors send, and gives the graph that was traced, of an
  // evaluation, or of training on the last stage, as it reads that; the caller plans it.
  Graph with_ends(int shape, const Graph& traced, bool training);
  // The training of a stage that is not the last.
  void plan_training(int shape, const Graph& traced, const PassOptions& passes, const PlanOptions& options,
                     std::vector<PassReport>* report);
  bool is_last() const { return stages_.rank.is_last(); }
  void bind();
  void add_plans(NamedPlans& plans) const;
  // What the plans of a shape's training take.
  PlanSize training_size(int shape) const;

  // Running, by ranks that are in a PipelineScope. The next micro-batch begins, whose arrays lie where the loss reads
  // them. `last`: the last stage's plan of this shape. set_random(step, micro) writes the graphs' input "random".
  using SetRandom = FunctionRef<void(int64_t step, int64_t micro)>;
  void accumulate(int shape, int64_t step, int64_t micro, const Executor* last, SetRandom set_random, ThreadPool& pool);
  // All micro-batches that have begun are done: the state "gradient" of parameters that several stages have is their
  // sum, and "loss_sum" and "token_count" are those of the last stage.
  void finish(SetRandom set_random, ThreadPool& pool);
  // Sum over the stages of the squares that each has of its own parameters' gradients, for the state "sum_of_squares".
  float sum_over_stages(float own, ThreadPool& pool);
  // The same of the state "gradient" as it lies.
  float sum_of_squares(ThreadPool& pool);
  // Runs the stage's part of an evaluation; loss and count come from the last stage.
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
  struct Shape {
    Ends evaluation, training;
    std::vector<Slot> slots;  // of a stage that is not the last
  };
  struct MicroBatch {
    int shape;
    int64_t step, micro;
  };

  Graph take_ends(const Graph& graph, const std::string& prefix, bool uses_slots, Ends& ends);
  Shape& at(int shape);
  void load_batch(const Ends& ends, size_t slot) const;
  void run_backward(SetRandom set_random, ThreadPool& pool);
  void add_shared_gradients(ThreadPool& pool);
  // Messages of the exchange to come.
  void receive(const std::vector<End>& ends, size_t slot, int from);
  void send(const Executor& executor, const std::vector<std::string>& outputs, int to);
  void send_pending();
  void exchange();
  std::span<std::byte> bytes_of(const End& end, size_t slot) const;
  Communicator& group() const { return pipeline_group(stages_.rank.stages); }
  int before() const { return stages_.rank.stage - 1; }
  int behind() const { return stages_.rank.stage + 1; }

  const ParameterLayout& layout_;
  const ModelStages& stages_;
  Store& store_;
  const SharedRegions shared_;
  RegionId messages_ = -1;
  std::vector<RegionId> slots_;
  std::vector<std::unique_ptr<Shape>> shapes_;

  // A parameter that this stage and others have.
  struct Shared {
    Shared(Communicator& pipeline, const std::vector<int>& of, std::span<float> gradient)
        : stages(pipeline, of), gradient(gradient) {}
    RankGroup stages;
    std::span<float> gradient;
  };
  std::vector<std::unique_ptr<Shared>> tied_;
  bool has_tied_ = false;  // tied_ is complete

  // Of the micro-batches since the last finish().
  std::vector<MicroBatch> begun_;
  size_t done_ = 0;  // backward passes
  // Has run last and has the gradients of stage inputs, which were not sent yet.
  const Executor* pending_ = nullptr;
  const std::vector<std::string>* pending_names_ = nullptr;
  std::vector<Communicator::Outgoing> outgoing_;
  std::vector<Communicator::Incoming> incoming_;
  std::vector<float> scratch_;
  std::vector<double> squares_;
};

}  // namespace linnet
