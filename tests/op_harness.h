// One description of an op tests it in every way (after ggml's test-backend-ops):
//
//   - the float64 reference against finite differences, for every float operand;
//   - a fused op's decomposition against it, values, in float64;
//   - the fast float32 kernels against the float64 reference, values and gradients;
//   - the planned executor, after all passes, against the interpreter on the same kernels: bit for bit;
//   - 1, 2 and 3 threads: bit for bit;
//   - where the case asks for it, a plan that stores activations in bf16, against the float64 reference on rounded
//     operands, with 1, 2 and 3 threads bit for bit;
//   - and on a backend (a GPU, or its emulation): the plan, run twice (as it comes and recorded), against the float64
//     reference, and both runs bit for bit; where the case asks for it, in bf16 too; and kernel by kernel, each value
//     in memory of its own, bit for bit (isolated_run.h).
#pragma once
#include <functional>
#include <string>
#include <vector>
#include "engine/exec/op_trial.h"
#include "engine/ir/graph.h"
#include "engine/plan/store.h"

namespace linnet::testing {
using OpInput = OpTrialInput;
using OpCase = OpTrial;

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
