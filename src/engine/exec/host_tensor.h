// A tensor that owns its memory: what goes into and comes out of the interpreter.
#pragma once
#include <cstring>
#include <span>
#include <vector>

#include "engine/ir/tensor_type.h"

namespace linnet {

class HostTensor {
 public:
  HostTensor() = default;
  explicit HostTensor(TensorType type) : type_(type), words_(type.bytes() / 8 + 8) {}  // zeroed
  template <class T>
  HostTensor(TensorType type, std::span<const T> values) : HostTensor(type) {
    // An empty span may point nowhere, which memcpy does not accept.
    if (!values.empty()) std::memcpy(data(), values.data(), type.bytes());
  }

  const TensorType& type() const { return type_; }
  void* data() { return words_.data(); }
  const void* data() const { return words_.data(); }
  template <class T>
  std::span<T> as() {
    return {static_cast<T*>(data()), static_cast<size_t>(type_.shape.elements())};
  }
  template <class T>
  std::span<const T> as() const {
    return {static_cast<const T*>(data()), static_cast<size_t>(type_.shape.elements())};
  }
  // Element i as a double, whatever the type.
  double operator[](int64_t i) const;
  std::vector<double> values() const;

 private:
  TensorType type_;
  std::vector<double> words_;
};

}  // namespace linnet
