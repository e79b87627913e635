// Operands of CPU kernels that may be bf16 in memory (kernels/stored_floats.h).
#pragma once
#include <algorithm>

#include "kernels/stored_floats.h"
#include "ops/kernel.h"

namespace linnet {

inline StoredFloats stored(const TensorView& view) { return {view.data, view.type.dtype == DType::kBF16}; }
inline MutableStoredFloats stored_result(const TensorView& view) {
  return {view.data, view.type.dtype == DType::kBF16};
}

inline bool any_bf16(const KernelQuery& query) {
  const auto is_bf16 = [](const TensorType& type) { return type.dtype == DType::kBF16; };
  return std::ranges::any_of(query.in, is_bf16) || std::ranges::any_of(query.out, is_bf16);
}

}  // namespace linnet
