// An op's precision as cuBLASLt's.
#pragma once
#include "base/error.h"
#include "engine/device/cuda/cublaslt.h"
#include "engine/kernels/precision.h"

namespace linnet {

inline LtPrecision lt_precision(Precision precision) {
  switch (precision) {
    case Precision::kF32:
    case Precision::kF16: return LtPrecision::kF32;
    case Precision::kTf32: return LtPrecision::kTf32;
    case Precision::kBf16: return LtPrecision::kBf16;
  }
  fail_internal("an unknown precision");
}

}  // namespace linnet
