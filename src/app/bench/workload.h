// The training steps that Linnet is measured by, each with its model, its loss and made data. The data is a function of
// the workload alone, so that another program can be given the same (`linnet bench NAME --write-data FILE`).
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>
#include "base/hash.h"
#include "engine/ops/optimizer/optimizer.h"
#include "models/nn/loss.h"
#include "models/nn/module.h"
#include "models/nn/trace.h"

namespace linnet {

// One input of the loss, for all batches: type.shape is [batches, ...].
struct WorkloadInput {
  std::string name;
  TensorType type;
  std::vector<std::byte> data;
};

struct Workload {
  std::string name, description;
  std::string unit;            // "samples/s" or "tokens/s"
  double units_per_step = 0;   // samples or tokens, padding included
  bool forward_apart = false;  // the forward pass is measured alone too
  std::shared_ptr<Module> model;
  LossFunction loss;
  OptimizerAttrs optimizer;
  double learning_rate = 0;
  int64_t batches = 0;
  std::vector<WorkloadInput> inputs;
};

struct WorkloadOptions {
  double dropout = -1;  // below 0: the workload's own
  int64_t batch = 0;    // examples in a batch; 0: the workload's own
};

struct WorkloadRow {
  std::string name, description;
};

std::vector<WorkloadRow> workload_rows();
// User error, with the nearest name, when there is none of this name.
Workload make_workload(const std::string& name, const WorkloadOptions& options = {});

// One function per family; `variant` is what stands behind the dash of the name.
Workload transformer_workload(const WorkloadOptions& options, int64_t length);
// `batch` is the workload's own, where the options have none.
Workload cnn_workload(const WorkloadOptions& options, int64_t batch);
Workload resnet_workload(const WorkloadOptions& options, int64_t depth, int64_t size, int64_t batch);
Workload gpt_workload(const WorkloadOptions& options, bool large, int64_t batch);
Workload bert_workload(const WorkloadOptions& options, int64_t batch);

// Whole numbers for made data: the same on every machine.
class MadeNumbers {
 public:
  explicit MadeNumbers(uint64_t seed) : state_(seed) {}
  // Uniform in [low, high).
  int32_t next(int64_t low, int64_t high) {
    return static_cast<int32_t>(low +
                                static_cast<int64_t>(next_splitmix64(state_) % static_cast<uint64_t>(high - low)));
  }

 private:
  uint64_t state_;
};

template <class T>
WorkloadInput workload_input(std::string name, DType dtype, Shape shape, const std::vector<T>& values) {
  WorkloadInput input{std::move(name), {dtype, shape}, std::vector<std::byte>(values.size() * sizeof(T))};
  std::memcpy(input.data.data(), values.data(), input.data.size());
  return input;
}

}  // namespace linnet
