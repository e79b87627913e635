// The kernels of the fake GPU (fake_gpu_backend.cpp).
#pragma once
#include <vector>
#include "engine/ops/kernel.h"

namespace linnet::testing {
std::vector<BackendOp> fake_gpu_ops();
}  // namespace linnet::testing
