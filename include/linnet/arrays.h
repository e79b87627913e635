// Named arrays with memory of their own: a batch, or what a model gives for one.
#pragma once
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <span>
#include <string>
#include <type_traits>
#include <vector>
#include "linnet/tensor_type.h"

namespace linnet {
// Types of arrays by name: what the inputs of one batch shape are.
using InputTypes = std::map<std::string, TensorType>;

// The element type that a C++ type is; float, double, int32_t and uint8_t have one.
template <class T> constexpr DType dtype_of() {
  static_assert(sizeof(T) == 0,
      "arrays have elements of type float, double, int32_t or uint8_t; of int64_t and bool, "
      "which they store as int32_t and uint8_t, they can be set");
  return DType::kF32;
}
// Of float.
template <> constexpr DType dtype_of<float>() { return DType::kF32; }
// Of double.
template <> constexpr DType dtype_of<double>() { return DType::kF64; }
// Of int32_t.
template <> constexpr DType dtype_of<int32_t>() { return DType::kI32; }
// Of uint8_t.
template <> constexpr DType dtype_of<uint8_t>() { return DType::kU8; }

// The values as int32_t. Throws Error(kUser) that names array, place and value where one does not fit.
std::vector<int32_t> narrowed(const std::string& name, std::span<const int64_t> values);

// What arrays have for a type of values: int32_t for int64_t, in which other programs have ids and labels, uint8_t of 0
// and 1 for bool, any other type itself.
template <class T> using Stored =
    std::conditional_t<std::is_same_v<T, int64_t>, int32_t, std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>>;

// The values as arrays have them. Throws as narrowed() does.
template <class T, class Values> auto stored(const std::string& name, const Values& values) {
  if constexpr (std::is_same_v<T, int64_t>) return narrowed(name, std::span<const int64_t>(values));
  else if constexpr (std::is_same_v<T, bool>) return std::vector<uint8_t>(values.begin(), values.end());
  else return std::span<const T>(values);
}

// Arrays by name, each with a type. May be copied and moved.
class Arrays {
 public:
  // None.
  Arrays();
  // All of these types, filled with zeros.
  explicit Arrays(const InputTypes& types);
  // Copies.
  Arrays(const Arrays& other);
  // Copies.
  Arrays& operator=(const Arrays& other);
  // Moves.
  Arrays(Arrays&& other) noexcept;
  // Moves.
  Arrays& operator=(Arrays&& other) noexcept;
  // Frees the memory.
  ~Arrays();

  // Adds or replaces an array of this shape; of int64_t an i32 array, of bool a u8 array. Throws Error(kUser) unless
  // there are as many values as elements, and where an integer does not fit.
  template <class T> Arrays& set(const std::string& name, const Shape& shape, std::span<const T> values) {
    return set_values<T>(name, shape, values);
  }
  // The same from a vector.
  template <class T> Arrays& set(const std::string& name, const Shape& shape, const std::vector<T>& values) {
    return set_values<T>(name, shape, values);
  }
  // The same from a list: set<float>("x", {2}, {0, 1}).
  template <class T> Arrays& set(const std::string& name, const Shape& shape, std::initializer_list<T> values) {
    return set(name, shape, std::span<const T>(values.begin(), values.size()));
  }
  // Adds or replaces an array by its bytes. Throws Error(kUser) unless there are as many as the type has.
  void set_bytes(const std::string& name, const TensorType& type, std::span<const std::byte> bytes);

  // The values of an array, row-major. Throws Error(kUser) when there is none of that name or its elements are of
  // another type. Valid until the array is replaced.
  template <class T> std::span<const T> get(const std::string& name) const {
    const std::span<const std::byte> bytes = checked(name, dtype_of<T>());
    return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
  }
  // The same to write to.
  template <class T> std::span<T> get(const std::string& name) {
    const std::span<const std::byte> bytes = checked(name, dtype_of<T>());
    return {reinterpret_cast<T*>(const_cast<std::byte*>(bytes.data())), bytes.size() / sizeof(T)};
  }
  // The bytes of an array; Error(kUser) when there is none of that name.
  std::span<const std::byte> bytes(const std::string& name) const;
  // Whether there is an array of that name.
  bool has(const std::string& name) const;
  // Element type and shape; Error(kUser) when there is none of that name.
  const TensorType& type(const std::string& name) const;
  // All types.
  InputTypes types() const;

  // How many samples there are, of the rows that the arrays have; the rows behind them are padding. 0: as many as rows.
  int64_t samples = 0;

 private:
  struct Entry {
    TensorType type;
    std::vector<std::byte> bytes;
  };
  template <class T, class Values>
  Arrays& set_values(const std::string& name, const Shape& shape, const Values& values) {
    const auto kept = stored<T>(name, values);
    set_bytes(name, {dtype_of<Stored<T>>(), shape}, std::as_bytes(std::span(kept)));
    return *this;
  }
  std::span<const std::byte> checked(const std::string& name, DType dtype) const;
  const Entry& find(const std::string& name) const;

  std::map<std::string, Entry> entries_;
};

// The indices of the k largest values, the largest first; equal ones in their order, NaN behind all. Throws
// Error(kUser) unless 0 <= k <= values.size().
std::vector<int32_t> top_k(std::span<const float> values, int64_t k);
}  // namespace linnet
