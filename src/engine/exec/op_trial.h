// One description of an op tests it in every way (after ggml's test-backend-ops). tests/op_harness.h lists these and
// adds tests for a GPU or its emulation; programs include it as linnet/testing.h.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>
#include "base/thread_pool.h"
#include "engine/exec/executor.h"
#include "engine/exec/interpreter.h"
#include "engine/ir/graph.h"
#include "engine/passes/passes.h"
#include "engine/plan/store.h"

namespace linnet {
struct OpTrialInput {
  Shape shape;
  bool integer = false;           // i32
  int32_t low = 0, high = 0;      // integers and bytes in [low, high)
  double center = 0, spread = 1;  // floats: uniform in center +- spread
  bool byte = false;              // u8
  bool full = false;              // fp32 also where activations are bf16: weights, statistics
  bool is_float() const { return !integer && !byte; }
};

struct OpTrial {
  std::vector<OpTrialInput> inputs;
  std::function<std::vector<Tensor>(Graph&, const std::vector<Tensor>&)> build;  // the outputs to check
  double tolerance = 2e-5;  // float32 against float64, relative to the norm
  bool differentiate = true;
  // Above 0: also test with activations stored as bf16, within this distance.
  double bf16_tolerance = 0;
};

// Outputs y0, y1, ...; with gradients also d0, d1, ... of sum(w_i * y_i) with respect to the float inputs x0, x1, ...
// With bf16 only the op's operands and results have it. `rounded`: fp32 throughout, rounded to bf16 where bf16 would
// be, so that the storage pass finds bf16 values.
Graph trial_graph(const OpTrial& op, DType dtype, bool with_gradients, bool rounded = false);
NamedTensors trial_inputs(const Graph& graph, const OpTrial& op);  // in float64, exact in float32
NamedTensors in_float32(const NamedTensors& tensors);
NamedTensors rounded_to_bf16(NamedTensors inputs, const OpTrial& op);  // rounds those that bf16 would store

// A graph's plan after all passes, in its own memory, on the CPU or another backend.
class PlannedGraph {
 public:
  PlannedGraph(const Graph& graph, int threads, const Backend& backend = cpu_backend(), PassOptions passes = {});
  NamedTensors run(const NamedTensors& inputs);

 private:
  Store store_;
  Plan plan_;
  ThreadPool pool_;
  std::optional<Executor> executor_;
};

std::vector<std::string> trial_problems(const OpTrial& op);  // what the CPU gets wrong, a line each

// Adds a line for each of `expected` that is not in `got` within `tolerance`.
void compare_close(const NamedTensors& got, const NamedTensors& expected, double tolerance, const std::string& what,
    std::vector<std::string>& problems);
void compare_bits(
    const NamedTensors& got, const NamedTensors& expected, const std::string& what, std::vector<std::string>& problems);

// Relative distance: ||a - b|| / (||b|| + tiny); infinite for different shapes.
double tensor_distance(const HostTensor& a, const HostTensor& b);
}  // namespace linnet
