#include "engine/ir/tensor_type.h"
#include <algorithm>
#include "base/error.h"

namespace linnet {

const char* dtype_name(DType dtype) {
  switch (dtype) {
    case DType::kF32: return "f32";
    case DType::kF64: return "f64";
    case DType::kI32: return "i32";
    case DType::kU8: return "u8";
    case DType::kBF16: return "bf16";
  }
  return "?";
}

size_t dtype_size(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kI32: return 4;
    case DType::kF64: return 8;
    case DType::kBF16: return 2;
    case DType::kU8: return 1;
  }
  return 0;
}

Shape::Shape(std::initializer_list<int64_t> sizes) : Shape(std::span(sizes.begin(), sizes.size())) {}

Shape::Shape(std::span<const int64_t> sizes) {
  for (int64_t size : sizes) push_back(size);
}

void Shape::push_back(int64_t size) {
  if (rank_ == kMaxRank) fail_user("a tensor has more than " + std::to_string(kMaxRank) + " axes");
  sizes_[static_cast<size_t>(rank_++)] = size;
}

int64_t Shape::elements() const { return elements(0, rank_); }

int64_t Shape::elements(int from, int to) const {
  int64_t count = 1;
  for (int axis = from; axis < to; ++axis)
    if (__builtin_mul_overflow(count, sizes_[static_cast<size_t>(axis)], &count))
      fail_user("a tensor of shape " + text() + " has more elements than a program can count");
  return count;
}

void Shape::fail_axis(int axis) const {
  throw Error(ErrorKind::kShape, "there is no axis " + std::to_string(axis) + " in the shape " + text());
}

bool Shape::operator==(const Shape& other) const { return std::ranges::equal(sizes(), other.sizes()); }

std::string Shape::text() const {
  std::string text = "[";
  for (int axis = 0; axis < rank_; ++axis) text += (axis ? ", " : "") + std::to_string((*this)[axis]);
  return text + "]";
}

Shape dense_strides(const Shape& shape) {
  Shape strides = shape;
  int64_t stride = 1;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    strides.set(axis, stride);
    stride *= shape[axis];
  }
  return strides;
}

}  // namespace linnet
