// What a value is: an element type and a concrete shape. Linnet has no symbolic or implicit sizes.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace linnet {

// The type of a tensor's elements.
enum class DType : uint8_t {
  kF32,   // 32-bit floating point: the type of parameters and activations
  kF64,   // 64-bit floating point: the type in which the interpreter computes references
  kI32,   // 32-bit integers: token ids, labels, lengths
  kU8,    // bytes: images
  kBF16,  // stored activations alone; model code never sees it
};

// The names of all element types, in their order: "f32", "f64", "i32", "u8", "bf16".
std::span<const char* const> enum_names(DType);
// The name of an element type.
const char* dtype_name(DType dtype);
// The number of bytes of one element.
size_t dtype_size(DType dtype);
// What statistics, weights of norms, losses and sums are beside activations of this type: never narrower than f32.
inline DType full_type(DType dtype) { return dtype == DType::kBF16 ? DType::kF32 : dtype; }
// Whether the elements are floating-point numbers.
inline bool is_float(DType dtype) { return dtype == DType::kF32 || dtype == DType::kF64 || dtype == DType::kBF16; }

// The most axes of a shape.
constexpr int kMaxRank = 6;

// Sizes of up to six axes, stored in place. Rank 0 is a scalar with one element.
class Shape {
 public:
  // The shape of a scalar: no axes.
  Shape() = default;
  // The sizes of the axes, the outermost first. Throws Error(kUser) for more than kMaxRank.
  Shape(std::initializer_list<int64_t> sizes);
  // The same from a span.
  explicit Shape(std::span<const int64_t> sizes);

  // The number of axes.
  int rank() const { return rank_; }
  // The size of an axis, counted from the end when negative: s[-1] is the last axis. Throws Error(kShape) when there is
  // no such axis.
  int64_t operator[](int axis) const { return sizes_[slot(axis)]; }
  // Changes the size of an axis. Throws as operator[] does.
  void set(int axis, int64_t size) { sizes_[slot(axis)] = size; }
  // Adds a last axis. Throws Error(kUser) when there are kMaxRank already.
  void push_back(int64_t size);
  // The number of elements: the product of all sizes.
  int64_t elements() const;
  // Product of the sizes of axes [from, to).
  int64_t elements(int from, int to) const;
  // The sizes of all axes; valid as long as the shape.
  std::span<const int64_t> sizes() const { return {sizes_.data(), static_cast<size_t>(rank_)}; }
  // Whether rank and sizes are equal.
  bool operator==(const Shape& other) const;
  // The shape as messages show it: "[8, 16]".
  std::string text() const;

 private:
  size_t slot(int axis) const {
    const int counted = axis < 0 ? axis + rank_ : axis;
    if (counted < 0 || counted >= rank_) fail_axis(axis);
    return static_cast<size_t>(counted);
  }
  [[noreturn]] void fail_axis(int axis) const;

  std::array<int64_t, kMaxRank> sizes_{};
  int rank_ = 0;
};

// Row-major strides, in elements, of a dense tensor of this shape.
Shape dense_strides(const Shape& shape);
// From the first element to behind the last one, in elements; 0 where there are none.
int64_t strided_extent(const Shape& shape, const Shape& strides);

// What is known of a tensor before it has numbers.
struct TensorType {
  // The type of its elements.
  DType dtype = DType::kF32;
  // The sizes of its axes.
  Shape shape;
  // Whether both are equal.
  bool operator==(const TensorType&) const = default;
  // The number of bytes of all elements.
  size_t bytes() const { return static_cast<size_t>(shape.elements()) * dtype_size(dtype); }
  // The type as messages show it: "f32[8, 16]".
  std::string text() const { return std::string(dtype_name(dtype)) + shape.text(); }
};

}  // namespace linnet
