// A tensor whose elements are written in the graph: tables and masks that are known when a model is traced. For uniform
// ones `fill` is shorter.
#pragma once
#include <vector>
#include "engine/ir/graph.h"
#include "engine/ops/kernel.h"

namespace linnet {

struct LiteralAttrs {
  TensorType type = {};
  std::vector<int64_t> words = {};  // the elements' bytes, padded with zeros to whole words
  void fields(FieldVisitor& visit) { visit("type", type), visit("words", words); }
  std::string text() const { return "type=" + type.text(); }
};

extern const OpDef kLiteral;

// `elements`: type.bytes() bytes.
Tensor literal(Graph& graph, TensorType type, const void* elements, SourceLine where = SourceLine::current());
// The same of f32 or f64, rounded from `values`.
Tensor literal(Graph& graph, TensorType type, const std::vector<double>& values);

}  // namespace linnet
