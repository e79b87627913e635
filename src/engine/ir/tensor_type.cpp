#include "engine/ir/tensor_type.h"
#include <algorithm>
#include "base/fail.h"
#include "base/numbers.h"

namespace linnet {
std::span<const char* const> enum_names(DType) {
  static constexpr std::array kNames{"f32", "f64", "i32", "u8", "bf16"};
  return kNames;
}

const char* dtype_name(DType dtype) { return enum_names(dtype)[static_cast<size_t>(dtype)]; }

size_t dtype_size(DType dtype) {
  constexpr std::array<size_t, 5> kSizes{4, 8, 4, 1, 2};  // in the order of DType
  return kSizes[static_cast<size_t>(dtype)];
}

Shape::Shape(std::initializer_list<int64_t> sizes) : Shape(std::span(sizes.begin(), sizes.size())) {}

Shape::Shape(std::span<const int64_t> sizes) {
  for (int64_t size : sizes) push_back(size);
}

void Shape::push_back(int64_t size) {
  if (rank_ == kMaxRank) fail_user("a tensor has more than ", kMaxRank, " axes");
  sizes_[rank_++] = size;
}

int64_t Shape::elements() const { return elements(0, rank_); }

int64_t Shape::elements(int from, int to) const {
  int64_t count = 1;
  for (int axis = from; axis < to; ++axis)
    if (__builtin_mul_overflow(count, sizes_[axis], &count))
      fail_user("a tensor of shape ", text(), " has more elements than a program can count");
  return count;
}

void Shape::fail_axis(int axis) const {
  throw Error(ErrorKind::kShape, "there is no axis " + std::to_string(axis) + " in the shape " + text());
}

bool Shape::operator==(const Shape& other) const { return std::ranges::equal(sizes(), other.sizes()); }

std::string Shape::text() const { return list_text(sizes()); }

Shape dense_strides(const Shape& shape) {
  Shape strides = shape;
  int64_t stride = 1;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    strides.set(axis, stride);
    stride *= shape[axis];
  }
  return strides;
}

int64_t strided_extent(const Shape& shape, const Shape& strides) {
  int64_t last = 0;
  for (int axis = 0; axis < shape.rank(); ++axis) last += (shape[axis] - 1) * strides[axis];
  return shape.elements() > 0 ? last + 1 : 0;
}
}  // namespace linnet
