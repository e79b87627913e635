// Operands of CPU kernels that read and write activations as fp32 or as bf16 (engine/kernels/stored_floats.h).
#pragma once
#include "engine/kernels/stored_floats.h"
#include "engine/ops/kernel.h"

namespace linnet {

inline StoredFloats stored(const TensorView& x) { return {x.data, x.type.dtype == DType::kBF16}; }
inline MutableStoredFloats mutable_stored(const TensorView& x) { return {x.data, x.type.dtype == DType::kBF16}; }

// Kernel::supports of kernels that take bf16, or fp32, for each of the operands and results that the op's storage rule
// reduces (OpDef::storage), and fp32 for all others.
inline bool f32_or_reduced(const KernelQuery& query) {
  const StorageRule rule = storage_of(query.node);
  const auto fits = [](const TensorType& type, Storage storage) {
    return !is_float(type.dtype) || type.dtype == DType::kF32 ||
           (type.dtype == DType::kBF16 && storage == Storage::kReduced);
  };
  for (size_t i = 0; i < query.in.size(); ++i)
    if (!fits(query.in[i], rule.operand(i))) return false;
  for (size_t i = 0; i < query.out.size(); ++i)
    if (!fits(query.out[i], rule.result(i))) return false;
  return true;
}

// The same, where they must all be of one type: nothing, or all that the rule reduces.
inline bool f32_or_all_reduced(const KernelQuery& query) {
  if (all_f32(query)) return true;
  const StorageRule rule = storage_of(query.node);
  for (size_t i = 0; i < query.in.size(); ++i)
    if (rule.operand(i) == Storage::kReduced && query.in[i].dtype != DType::kBF16) return false;
  for (size_t i = 0; i < query.out.size(); ++i)
    if (rule.result(i) == Storage::kReduced && query.out[i].dtype != DType::kBF16) return false;
  return f32_or_reduced(query);
}

}  // namespace linnet
