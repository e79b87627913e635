// The handle of a value in a graph that is being recorded. It has no numbers, which exist only when the graph runs.
#pragma once
#include <concepts>
#include <cstdint>
#include "engine/ir/source_line.h"
#include "engine/ir/tensor_type.h"

namespace linnet {
class Graph;

using ValueId = int32_t;       // number of a value in its graph
using ScopeId = int32_t;       // number of a module path in its graph
constexpr int32_t kNone = -1;  // no value, node or scope

// A value of the graph that is being recorded, valid until the recording ends. A default-constructed tensor is
// undefined and stands for an optional operand that is left out. Use as a condition does not compile.
struct Tensor {
  Graph* graph = nullptr;  // null for an undefined tensor
  ValueId id = kNone;      // number of the value in the graph
  // The number of the graph in the process, by which a tensor that has outlived its graph is recognized; 0: unchecked.
  uint32_t stamp = 0;

  bool defined() const { return graph != nullptr; }  // whether it is a value
  // Element type and shape. Throws Error(kUser) for an undefined tensor and after the recording has ended.
  TensorType type() const;
  Shape shape() const { return type().shape; }  // sizes of the axes; throws as type() does
  // Size of one axis, counted from the end when negative. Throws Error(kShape) if there is no such axis.
  int64_t dim(int axis) const { return shape()[axis]; }
  // Deleted: a tensor has no number while the graph is recorded; where(condition, a, b) chooses by element.
  explicit operator bool() const = delete;
};

// A tensor and the line of the program that used it, for error messages. Every op's function takes its first operand
// so, as a converting constructor can have default arguments and an operator cannot.
struct At {
  // `w` is the caller's line.
  At(Tensor v, SourceLine w = SourceLine::current()) : value(v), where(w) {}  // NOLINT
  // From a type that converts to a tensor, such as Parameter.
  template <class T>
  requires std::convertible_to<const T&, Tensor> At(const T& v, SourceLine w = SourceLine::current())
      : value(v), where(w) {}  // NOLINT
  Tensor value;                // the tensor
  SourceLine where;            // the line that used it
};
}  // namespace linnet
