// Training from a device-resident dataset, for models so small that the host's part of a step counts. The step graph
// gathers its batch and finds its rate, step and dropout counter, so that a device records many steps as one. Results
// equal those of Trainer::step on the same batches, bit for bit.
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
  int64_t steps_per_graph = 16;  // on a device: the most steps of one recording
};

class ResidentSteps {
 public:
  // Call before store.allocate(). The trainer uses the same store, and its steps are one micro-batch.
  ResidentSteps(
      Trainer& trainer, Store& store, const SharedRegions& shared, const LossFunction& loss, ResidentOptions options);
  void bind() { executor_ = std::make_unique<Executor>(plan_, store_, shared_); }  // call after store.allocate()

  // Copies all data of an input and waits until they have arrived.
  void stage(const std::string& input, std::span<const std::byte> data);

  // Sets the next steps, at most steps_per_chunk: step i is number first_step + i, has learning rate rates[i] and takes
  // the rows order[i * rows ... (i + 1) * rows). A row ~i is row i, but -1 for integer data.
  void begin_chunk(std::span<const int32_t> order, std::span<const float> rates, int64_t first_step);
  // Runs the next `steps`. On a device they are only queued.
  void run(int64_t steps);
  // Reports of the chunk's steps so far; waits for them.
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
