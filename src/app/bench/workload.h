// Training steps that benchmark Linnet, with model, loss and generated data. Data only depend on the workload, so that
// another program can read the same (`linnet bench NAME --write-data FILE`).
#pragma once
#include "engine/ops/optimizer/optimizer.h"
#include "models/nn/loss.h"
#include "models/nn/module.h"
#include "models/nn/trace.h"

namespace linnet {
// One loss input for all batches: type.shape is [batches, ...].
struct WorkloadInput {
  std::string name;
  TensorType type;
  std::vector<std::byte> data;
};

struct Workload {
  std::string name, description;
  std::string unit;            // "samples/s" or "tokens/s"
  double units_per_step = 0;   // samples or tokens, padding included
  bool forward_apart = false;  // measure the forward pass alone too
  std::shared_ptr<Module> model;
  LossFunction loss;
  OptimizerAttrs optimizer;
  double learning_rate = 0;
  int64_t batches = 0;
  std::vector<WorkloadInput> inputs;
};

struct WorkloadOptions {
  double dropout = -1;  // below 0: the workload's own
  int64_t batch = 0;    // examples of a batch; 0: the workload's own
};

struct WorkloadRow {
  std::string name, description;
};

std::vector<WorkloadRow> workload_rows();
// User error naming the nearest if there is no such workload.
Workload make_workload(const std::string& name, const WorkloadOptions& options = {});
}  // namespace linnet
