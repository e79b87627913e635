// What a value is: an element type and a concrete shape. Linnet has no symbolic or implicit sizes.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace linnet {

// kBF16 is the type in which a device stores activations (passes/storage_type.cpp); model code and CPU kernels never
// see it.
enum class DType : uint8_t { kF32, kF64, kI32, kU8, kBF16 };

const char* dtype_name(DType dtype);  // "f32", "f64", "i32", "u8", "bf16"
size_t dtype_size(DType dtype);       // bytes of one element
// What statistics, weights of norms, losses and sums are beside activations of this type: never narrower than f32.
inline DType full_type(DType dtype) { return dtype == DType::kBF16 ? DType::kF32 : dtype; }
inline bool is_float(DType dtype) { return dtype == DType::kF32 || dtype == DType::kF64 || dtype == DType::kBF16; }

constexpr int kMaxRank = 6;

// Sizes of up to six axes, stored in place. Rank 0 is a scalar with one element.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> sizes);
  explicit Shape(std::span<const int64_t> sizes);

  int rank() const { return rank_; }
  // Axis `axis`, counted from the end when negative: s[-1] is the last axis.
  int64_t operator[](int axis) const { return sizes_[static_cast<size_t>(axis < 0 ? axis + rank_ : axis)]; }
  void set(int axis, int64_t size) { sizes_[static_cast<size_t>(axis < 0 ? axis + rank_ : axis)] = size; }
  void push_back(int64_t size);
  int64_t elements() const;
  // Product of the sizes of axes [from, to).
  int64_t elements(int from, int to) const;
  std::span<const int64_t> sizes() const { return {sizes_.data(), static_cast<size_t>(rank_)}; }
  bool operator==(const Shape& other) const;
  std::string text() const;  // "[8, 16]"

 private:
  std::array<int64_t, kMaxRank> sizes_{};
  int rank_ = 0;
};

// Row-major strides, in elements, of a dense tensor of this shape.
Shape dense_strides(const Shape& shape);

struct TensorType {
  DType dtype = DType::kF32;
  Shape shape;
  bool operator==(const TensorType&) const = default;
  size_t bytes() const { return static_cast<size_t>(shape.elements()) * dtype_size(dtype); }
  std::string text() const { return std::string(dtype_name(dtype)) + shape.text(); }  // "f32[8, 16]"
};

}  // namespace linnet
