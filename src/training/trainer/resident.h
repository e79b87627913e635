// Training from data that lie where the model is trained, for models so small that the host's part of a step counts:
// the step graph gathers its own batch and finds its own rate, step and dropout counter, so that many steps are one
// recording on a device. They are those of Trainer::step on the same batches, bit for bit.
//
//   ResidentSteps steps(trainer, store, shared, loss, {.data = {{"images", {DType::kU8, {n, 28, 28, 1}}},
//                                                               {"labels", {DType::kI32, {n}}}}});
//   store.allocate();  trainer.plans().bind();  steps.bind();  trainer.state().initialize();
//   steps.stage("images", bytes);  ...
//   for each chunk of steps:
//     steps.begin_chunk(order, rates, first_step);  // one upload
//     steps.run(rates.size());                      // queued
//     for (const StepReport& report : steps.reports()) ...
#pragma once
#include "training/trainer/trainer.h"

namespace linnet {

struct ResidentOptions {
  struct Input {
    std::string name;  // as the loss names its batch [rows, ...]
    TensorType type;   // [N, ...] of all data; N and rows are the same for every input
  };
  std::vector<Input> data;  // every input of the loss
  int64_t steps_per_chunk = 256;
  // On a device: how many steps are one recording, at most.
  int64_t steps_per_graph = 16;
};

// A step graph (training/trainer/step_graphs.h) whose data come from the inputs "resident.NAME" [N, ...] and whose
// `control` and `random` are rows of "resident.control" [steps, 2] and "resident.random" i32 [steps, 4].
// "resident.order" i32 [steps * rows] says which data are the batch of a step. States: "resident.cursor" i32 [1] counts
// the steps, "resident.ring" [steps, 3] takes each step's loss_sum, token_count and sum_of_squares.
Graph resident_graph(const Graph& step, const ResidentOptions& options);

class ResidentSteps {
 public:
  // Of a trainer of the same store, whose steps are one micro-batch. Before store.allocate().
  ResidentSteps(Trainer& trainer, Store& store, const SharedRegions& shared, const LossFunction& loss,
                ResidentOptions options);
  void bind() { executor_ = std::make_unique<Executor>(plan_, store_, shared_); }  // after store.allocate()

  // All data of an input; waits until they are where they are used.
  void stage(const std::string& input, std::span<const std::byte> data);

  // The steps to come, at most steps_per_chunk: step i is number first_step + i, has learning rate rates[i] and takes
  // the data order[i * rows ... (i + 1) * rows). A negative entry is no datum: zeros, and -1 where data are integers.
  void begin_chunk(std::span<const int32_t> order, std::span<const float> rates, int64_t first_step);
  // The next `steps` of them. On a device they are only queued.
  void run(int64_t steps);
  // Of the chunk's steps so far; waits for them.
  std::vector<StepReport> reports() const;

  int64_t rows() const { return rows_; }
  int64_t steps_per_chunk() const { return options_.steps_per_chunk; }
  int64_t steps_per_graph() const { return together_; }

 private:
  void declare(const Graph& graph);

  Store& store_;
  const SharedRegions shared_;
  const ResidentOptions options_;
  const uint64_t seed_;
  ThreadPool& pool_;
  int64_t rows_ = 0, together_ = 1;
  Plan plan_;
  std::unique_ptr<Executor> executor_;
  int64_t prepared_ = 0, done_ = 0;  // steps of the chunk
};

}  // namespace linnet
