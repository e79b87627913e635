#include "engine/ops/literal/literal.h"
#include <cstring>

namespace linnet {
namespace {

std::vector<TensorType> infer_literal(const InferArgs& args) {
  expect_inputs(args, 0);
  const auto& attrs = args.attrs.as<LiteralAttrs>();
  expect(attrs.words.size() == (attrs.type.bytes() + 7) / 8,
         std::to_string(attrs.words.size()) + " words of data for " + attrs.type.text());
  return {attrs.type};
}

void run_literal(const KernelArgs& args) {
  const auto& attrs = args.node.attrs.as<LiteralAttrs>();
  if (attrs.type.bytes() > 0) std::memcpy(args.out[0].data, attrs.words.data(), attrs.type.bytes());
}

}  // namespace

const OpDef kLiteral{.name = "literal",
                     .infer = infer_literal,
                     .gradient = [](const GradientArgs&) -> std::vector<Tensor> { return {}; }};
LINNET_KERNELS(literal, {"reference", nullptr, nullptr, run_literal})

Tensor literal(Graph& graph, TensorType type, const void* elements, SourceLine where) {
  LiteralAttrs attrs{.type = type};
  attrs.words.resize((type.bytes() + 7) / 8);
  if (type.bytes() > 0) std::memcpy(attrs.words.data(), elements, type.bytes());
  return graph.add_one(kLiteral, {}, std::move(attrs), where);
}

Tensor literal(Graph& graph, TensorType type, const std::vector<double>& values) {
  if (type.dtype == DType::kF64) return literal(graph, type, values.data());
  const std::vector<float> floats(values.begin(), values.end());
  return literal(graph, type, floats.data());
}

}  // namespace linnet
