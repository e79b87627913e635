#include "ops/quantized/quantized.h"

#include "ops/embedding/embedding.h"
#include "ops/matmul/matmul.h"
#include "ops/pointwise/pointwise.h"

namespace linnet {
namespace {

void expect_packed(const TensorType& packed, const QuantizedAttrs& attrs) {
  expect(attrs.weight.shape.rank() == 2 && attrs.weight.shape[1] <= PackedShape::kMostColumns,
         "a weight of " + attrs.weight.text());
  const TensorType wanted{DType::kU8, {static_cast<int64_t>(attrs.packed().bytes())}};
  expect(packed == wanted, "got " + packed.text() + ", expected " + wanted.text());
}

std::vector<TensorType> infer_dequantize(const InferArgs& args) {
  expect_inputs(args, 1);
  const auto& attrs = args.attrs.as<QuantizedAttrs>();
  expect_packed(args.in[0], attrs);
  expect(is_float(attrs.weight.dtype), "a weight of " + attrs.weight.text());
  return {attrs.weight};
}

std::vector<TensorType> infer_embedding(const InferArgs& args) {
  expect_inputs(args, 2);
  const auto& attrs = args.attrs.as<QuantizedAttrs>();
  expect_packed(args.in[0], attrs);
  expect(args.in[1].dtype == DType::kI32, "got ids " + args.in[1].text() + ", expected i32");
  TensorType out{attrs.weight.dtype, args.in[1].shape};
  out.shape.push_back(attrs.weight.shape[1]);
  return {out};
}

std::vector<TensorType> infer_matmul(const InferArgs& args) {
  const auto& attrs = args.attrs.as<QuantizedMatmulAttrs>();
  expect_inputs(args, size_t{2} + attrs.bias + attrs.accumulate);
  expect_packed(args.in[1], attrs.weight);
  const Shape &a = args.in[0].shape, &weight = attrs.weight.weight.shape;
  expect(is_float(args.in[0].dtype) && a.rank() >= 2, "got " + args.in[0].text() + ", expected rows of floats");
  expect(a[-1] == weight[1], "got " + a.text() + " and a weight of " + weight.text());
  TensorType out = args.in[0];
  out.shape.set(-1, weight[0]);
  if (attrs.bias) expect(args.in[2].shape == Shape{weight[0]}, "bias of shape " + args.in[2].shape.text());
  if (attrs.accumulate) expect(args.in.back() == out, "accumulator of type " + args.in.back().text());
  return {out};
}

std::vector<Tensor> decompose_embedding(const DecomposeArgs& args) {
  const auto& attrs = args.node.attrs.as<QuantizedAttrs>();
  return {embedding(dequantize(args.in[0], attrs.packed(), attrs.weight.dtype), args.in[1])};
}

// The accumulator is the residual of a sum, and may be the result's memory.
bool matmul_may_overwrite(const Node& node, int, int input) {
  return node.attrs.as<QuantizedMatmulAttrs>().accumulate && input + 1 == static_cast<int>(node.in.size());
}

Attrs with_independent_rows(const Attrs& old) {
  auto attrs = old.as<QuantizedMatmulAttrs>();
  attrs.independent_rows = true;
  return attrs;
}

std::string format_name(WeightFormat format) { return enum_names(format)[static_cast<size_t>(format)]; }

std::string matmul_label(const Node& node) {
  const auto& attrs = node.attrs.as<QuantizedMatmulAttrs>();
  std::string text = "matmul+" + format_name(attrs.weight.format);
  if (attrs.bias) text += "+bias";
  if (attrs.activation != GemmActivation::kNone)
    text += "+" + std::string(enum_names(attrs.activation)[static_cast<size_t>(attrs.activation)]);
  return attrs.accumulate ? text + "+accumulate" : text;
}

double matmul_flops(const FlopsArgs& args) {
  return 2.0 * static_cast<double>(args.out[0].shape.elements()) * static_cast<double>(args.in[0].shape[-1]);
}

}  // namespace

const OpDef kDequantize{.name = "dequantize", .infer = infer_dequantize, .read_attrs = read_attrs<QuantizedAttrs>};

const OpDef kQuantizedEmbedding{.name = "quantized_embedding",
                                .infer = infer_embedding,
                                .read_attrs = read_attrs<QuantizedAttrs>,
                                .decompose = decompose_embedding};

const OpDef kQuantizedMatmul{.name = "quantized_matmul",
                             .infer = infer_matmul,
                             .read_attrs = read_attrs<QuantizedMatmulAttrs>,
                             .may_overwrite = matmul_may_overwrite,
                             .with_independent_rows = with_independent_rows,
                             .label = matmul_label,
                             .flops = matmul_flops};

Tensor dequantize(At packed, const PackedShape& shape, DType dtype) {
  const QuantizedAttrs attrs{.format = shape.format, .weight = {dtype, {shape.rows, shape.columns}}};
  return packed.value.graph->add_one(kDequantize, std::array{packed.value}, attrs, packed.where);
}

Tensor quantized_matmul(At a, Tensor packed, const PackedShape& shape) {
  const QuantizedMatmulAttrs attrs{
      .weight = {.format = shape.format, .weight = {a.value.type().dtype, {shape.rows, shape.columns}}}};
  return a.value.graph->add_one(kQuantizedMatmul, std::array{a.value, packed}, attrs, a.where);
}

}  // namespace linnet
