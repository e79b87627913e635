// The handle of a value in a graph that is being recorded. It has a type and no numbers: numbers exist when the graph
// runs.
#pragma once
#include <concepts>
#include <cstdint>
#include "engine/ir/source_line.h"
#include "engine/ir/tensor_type.h"

namespace linnet {

class Graph;

// The number of a value in its graph.
using ValueId = int32_t;
// The number of a module path in its graph.
using ScopeId = int32_t;
// No value, node or scope.
constexpr int32_t kNone = -1;

// A value of the graph that is being recorded. It may be used until the recording ends. A default-constructed tensor is
// undefined; it stands for an optional operand that is left out. Using a tensor as a condition does not compile.
struct Tensor {
  // The graph that the value is in; null for an undefined tensor.
  Graph* graph = nullptr;
  // The number of the value in the graph.
  ValueId id = kNone;
  // Identifies the graph among all of the process, so that a tensor that has outlived its graph is recognized; 0: not
  // checked.
  uint32_t stamp = 0;

  // Whether the tensor is a value at all.
  bool defined() const { return graph != nullptr; }
  // Element type and shape. Throws Error(kUser) for an undefined tensor and after the recording has ended.
  TensorType type() const;
  // Sizes of the axes. Throws as type() does.
  Shape shape() const { return type().shape; }
  // Size of one axis, counted from the end when negative. Throws Error(kShape) when there is no such axis.
  int64_t dim(int axis) const { return shape()[axis]; }
  // Deleted: a tensor has no number while the graph is recorded; where(condition, a, b) chooses by element.
  explicit operator bool() const = delete;
};

// A tensor together with the line of the program that used it, which error messages name. Operators cannot take default
// arguments, but a converting constructor can: every op's function takes its first operand this way.
struct At {
  // `w` is the caller's line.
  At(Tensor v, SourceLine w = SourceLine::current()) : value(v), where(w) {}  // NOLINT
  // What stands for a tensor, as a Parameter does.
  template <class T>
  requires std::convertible_to<const T&, Tensor> At(const T& v, SourceLine w = SourceLine::current())
      : value(v), where(w) {}  // NOLINT
  // The tensor.
  Tensor value;
  // The line that used it.
  SourceLine where;
};

}  // namespace linnet
