// One description of an op tests it in every way (after ggml's test-backend-ops):
//
//   - the float64 reference against finite differences, for every float operand;
//   - a fused op's decomposition against it, values, in float64;
//   - the fast float32 kernels against the float64 reference, values and gradients;
//   - the planned executor, after all passes, against the interpreter on the same kernels: bit for bit;
//   - 1, 2 and 3 threads: bit for bit;
//   - and on a backend (a GPU, or its emulation): the plan, run twice (as it comes and recorded), against the float64
//     reference, and both runs bit for bit; where the case asks for it, in bf16 too; and kernel by kernel, each value
//     in memory of its own, bit for bit (isolated_run.h).
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "exec/interpreter.h"
#include "ir/graph.h"
#include "plan/store.h"

namespace linnet::testing {

struct OpInput {
  Shape shape;
  bool integer = false;           // i32
  int32_t low = 0, high = 0;      // integers and bytes in [low, high)
  double center = 0, spread = 1;  // floats: uniform in center +- spread
  bool byte = false;              // u8
  bool full = false;              // fp32 also where activations are bf16: weights, statistics
};

struct OpCase {
  std::vector<OpInput> inputs;
  std::function<std::vector<Tensor>(Graph&, const std::vector<Tensor>&)> build;  // the outputs to check
  double tolerance = 2e-5;  // float32 against float64, relative to the norm
  bool differentiate = true;
  // Above 0: on a backend once more with floats stored as bf16, within this distance.
  double bf16_tolerance = 0;
};

void check_op(const OpCase& op);

// The graph's outputs by the interpreter's two sets of kernels and, where there is a backend, by a plan on it: for
// values that check_op does not draw.
std::vector<NamedTensors> run_everywhere(const Graph& graph, const NamedTensors& inputs);

// What plans are also run on: null for none. Defined by tests/real_backend.cpp or tests/cuda_emulation.
const Backend* tested_backend();
// From now on it runs threads and blocks in another order, if it can: results must not change.
void disturb_backend(bool disturbed);

// The relative distance of two tensors: ||a - b|| / (||b|| + tiny).
double distance(const HostTensor& a, const HostTensor& b);

}  // namespace linnet::testing
