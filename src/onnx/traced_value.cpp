#include "onnx/traced_value.h"

#include <cmath>
#include <limits>

#include "base/error.h"

namespace linnet {

bool is_float(OnnxElement element) {
  const auto dtype = element_dtype(element);
  return dtype && is_float(*dtype);
}

bool is_whole(OnnxElement element) { return !is_float(element) && element != OnnxElement::kBool; }

bool is_signed(OnnxElement element) {
  return element == OnnxElement::kInt8 || element == OnnxElement::kInt16 || element == OnnxElement::kInt32 ||
         element == OnnxElement::kInt64;
}

DType traced_dtype(OnnxElement element) {
  return element == OnnxElement::kDouble || is_whole(element) ? DType::kF64 : DType::kF32;
}

HostTensor read_host_tensor(const OnnxTensor& tensor) {
  const auto from = element_dtype(tensor.element);
  if (!from)
    fail_user("tensor \"" + tensor.name + "\" holds " + element_name(tensor.element) + ", which has no numbers here");
  if (tensor.dims.size() > kMaxRank)
    fail_user("tensor \"" + tensor.name + "\" has " + std::to_string(tensor.dims.size()) + " axes; " +
              std::to_string(kMaxRank) + " are possible");
  HostTensor host({traced_dtype(tensor.element), Shape(std::span<const int64_t>(tensor.dims))});
  const int64_t count = tensor.elements();
  if (is_float(*from) && *from != FileDType::kF64) {
    read_floats(*from, tensor.data.data(), count, host.as<float>().data());
  } else if (*from == FileDType::kF64) {
    if (count > 0) std::memcpy(host.data(), tensor.data.data(), tensor.data.size());
  } else {
    std::vector<int64_t> values(static_cast<size_t>(count));
    read_integers(*from, tensor.data.data(), count, values.data());
    for (size_t i = 0; i < values.size(); ++i) {
      if (tensor.element == OnnxElement::kBool)
        host.as<float>()[i] = values[i] != 0 ? 1.0F : 0.0F;
      else
        host.as<double>()[i] = static_cast<double>(values[i]);
    }
  }
  return host;
}

std::vector<int64_t> whole_numbers(const HostTensor& tensor) {
  std::vector<int64_t> result;
  for (const double value : tensor.values()) {
    constexpr double kLimit = 9223372036854775807.0;  // 2^63 as a double
    result.push_back(value >= kLimit    ? std::numeric_limits<int64_t>::max()
                     : value <= -kLimit ? std::numeric_limits<int64_t>::min()
                                        : static_cast<int64_t>(std::isnan(value) ? 0 : value));
  }
  return result;
}

TracedValue known_numbers(OnnxElement element, const Shape& shape, const std::vector<double>& values) {
  auto host = std::make_shared<HostTensor>(TensorType{traced_dtype(element), shape});
  for (size_t i = 0; i < values.size(); ++i) {
    if (host->type().dtype == DType::kF32)
      host->as<float>()[i] = static_cast<float>(values[i]);
    else
      host->as<double>()[i] = values[i];
  }
  return {.element = element, .known = std::move(host)};
}

TracedValue known_vector(const std::vector<int64_t>& values) {
  return known_numbers(OnnxElement::kInt64, {static_cast<int64_t>(values.size())}, {values.begin(), values.end()});
}

}  // namespace linnet
