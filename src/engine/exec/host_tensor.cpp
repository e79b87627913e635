#include "engine/exec/host_tensor.h"

#include <bit>

namespace linnet {

double HostTensor::operator[](int64_t i) const {
  switch (type_.dtype) {
    case DType::kF32:
      return as<float>()[static_cast<size_t>(i)];
    case DType::kF64:
      return as<double>()[static_cast<size_t>(i)];
    case DType::kI32:
      return as<int32_t>()[static_cast<size_t>(i)];
    case DType::kU8:
      return as<uint8_t>()[static_cast<size_t>(i)];
    case DType::kBF16:
      return std::bit_cast<float>(static_cast<uint32_t>(as<uint16_t>()[static_cast<size_t>(i)]) << 16);
  }
  return 0;
}

std::vector<double> HostTensor::values() const {
  std::vector<double> values;
  for (int64_t i = 0; i < type_.shape.elements(); ++i) values.push_back((*this)[i]);
  return values;
}

}  // namespace linnet
