// The type of a value: an element type and a concrete shape. Linnet has no symbolic sizes.
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

// Names of all element types in order: "f32", "f64", "i32", "u8", "bf16".
std::span<const char* const> enum_names(DType);
const char* dtype_name(DType dtype);  // "f32"
size_t dtype_size(DType dtype);       // bytes of one element
// The type of statistics, norm weights, losses and sums beside activations of this type: never below f32.
inline DType full_type(DType dtype) { return dtype == DType::kBF16 ? DType::kF32 : dtype; }
// Whether the elements are floating-point numbers.
inline bool is_float(DType dtype) { return dtype == DType::kF32 || dtype == DType::kF64 || dtype == DType::kBF16; }

constexpr int kMaxRank = 6;  // most axes of a shape

// Sizes of up to six axes, stored in place. Rank 0 is a scalar with one element.
class Shape {
 public:
  Shape() = default;  // a scalar: no axes
  // The sizes of the axes, the outermost first. Throws Error(kUser) for more than kMaxRank.
  Shape(std::initializer_list<int64_t> sizes);
  explicit Shape(std::span<const int64_t> sizes);  // the same

  int rank() const { return rank_; }  // number of axes
  // The size of an axis, counted from the end when negative. Throws Error(kShape) if there is no such axis.
  int64_t operator[](int axis) const { return sizes_[slot(axis)]; }
  // Changes the size of an axis. Throws as operator[] does.
  void set(int axis, int64_t size) { sizes_[slot(axis)] = size; }
  // Adds a last axis. Throws Error(kUser) beyond kMaxRank.
  void push_back(int64_t size);
  int64_t elements() const;                  // the product of all sizes
  int64_t elements(int from, int to) const;  // product of axes [from, to)
  // The sizes of all axes; valid as long as the shape.
  std::span<const int64_t> sizes() const { return {sizes_.data(), static_cast<size_t>(rank_)}; }
  bool operator==(const Shape& other) const;  // equal rank and sizes
  std::string text() const;                   // "[8, 16]"

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

Shape dense_strides(const Shape& shape);  // row-major strides, in elements, of a dense tensor
// From the first element to behind the last one, in elements; 0 if there are none.
int64_t strided_extent(const Shape& shape, const Shape& strides);

// The type of a tensor.
struct TensorType {
  DType dtype = DType::kF32;  // element type
  Shape shape;                // sizes of the axes

  bool operator==(const TensorType&) const = default;                                         // whether both are equal
  size_t bytes() const { return static_cast<size_t>(shape.elements()) * dtype_size(dtype); }  // bytes of all elements
  std::string text() const { return std::string(dtype_name(dtype)) + shape.text(); }          // "f32[8, 16]"
};
}  // namespace linnet
