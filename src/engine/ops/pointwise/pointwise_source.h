// CUDA source of an elementwise expression: one kernel, a thread for `step` neighbors of the result. It computes in
// fp32 with the definitions of engine/kernels/pointwise/expression.h and needs no header, so that NVRTC compiles it
// anywhere; tests also compile it for the CPU.
#pragma once
#include <string>
#include <vector>
#include "engine/ir/tensor_type.h"
#include "engine/kernels/pointwise/expression.h"

namespace linnet {
struct PointwiseSource {
  struct Operand {
    DType dtype;  // f32 or bf16
    Broadcast kind;
  };
  const Expression& expression;
  std::vector<Operand> operands;
  DType result;
  // Divides the number of elements of the result, of a suffix and a prefix's repetitions; operands and result are
  // aligned to min(step elements, 16 bytes). 1: no conditions.
  int step = 1;
  bool wide_indices = false;  // 2^31 elements or more
};

constexpr int kPointwiseThreads = 256;

std::string pointwise_prelude();  // shared by all such kernels
// struct PointwiseArguments and begin_kernel() of engine/kernels/cuda/launch.cuh as text.
std::string pointwise_arguments_text();
// extern "C" __global__ void name(PointwiseArguments)
std::string pointwise_kernel(const PointwiseSource& source, const std::string& name);

// The argument of a generated kernel, whose source holds this struct as text, too.

struct PointwiseArguments {
  long long count;
  const void* in[16];
  long long size[16];  // of a suffix, its elements; of a prefix, how often each is repeated
  void* out;
};
}  // namespace linnet
