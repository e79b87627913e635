#include "engine/ops/quantized/quantized.h"
#include "engine/ops/embedding/embedding.h"
#include "engine/ops/pointwise/pointwise.h"

namespace linnet {

void expect_packed(const TensorType& packed, const QuantizedAttrs& attrs) {
  expect(attrs.weight.shape.rank() == 2 && attrs.weight.shape[1] <= PackedShape::kMostColumns, "a weight of ",
         attrs.weight);
  const TensorType wanted{DType::kU8, {static_cast<int64_t>(attrs.packed().bytes())}};
  expect(packed == wanted, "got ", packed, ", expected ", wanted);
}

namespace {

std::vector<TensorType> infer_dequantize(const InferArgs& args) {
  expect_inputs(args, 1);
  const auto& attrs = args.attrs.as<QuantizedAttrs>();
  expect_packed(args.in[0], attrs);
  expect(is_float(attrs.weight.dtype), "a weight of ", attrs.weight);
  return {attrs.weight};
}

std::vector<TensorType> infer_embedding(const InferArgs& args) {
  expect_inputs(args, 2);
  const auto& attrs = args.attrs.as<QuantizedAttrs>();
  expect_packed(args.in[0], attrs);
  expect(args.in[1].dtype == DType::kI32, "got ids ", args.in[1], ", expected i32");
  TensorType out{attrs.weight.dtype, args.in[1].shape};
  out.shape.push_back(attrs.weight.shape[1]);
  return {out};
}

// As a matmul with the weight for its second operand.
std::vector<TensorType> infer_matmul(const InferArgs& args) {
  const auto& attrs = args.attrs.as<QuantizedMatmulAttrs>();
  expect(args.in.size() >= 2, "got ", args.in.size(), " operands");
  expect_packed(args.in[1], attrs.weight);
  expect(has_quantized_product(attrs.weight.format, attrs.product), "a product that the weight's format does not have");
  std::vector<TensorType> in(args.in.begin(), args.in.end());
  const bool reads_codes = in[0].dtype == DType::kU8, writes_codes = attrs.result_rounding.scale > 0;
  const bool has_codes = attrs.weight.format == WeightFormat::kInt8;
  expect(has_codes || (!reads_codes && !writes_codes), "codes of activations for a weight that is not of 8 bits a row");
  expect(!reads_codes || attrs.rounding.scale > 0, "got codes of activations without a scale");
  expect(!writes_codes || is_plain_product(attrs.product), "codes as a result of another product");
  if (reads_codes) in[0].dtype = attrs.weight.weight.dtype;
  in[1] = {in[0].dtype, attrs.weight.weight.shape};
  std::vector<TensorType> out = kMatmul.infer({Attrs(attrs.product), in});
  if (writes_codes) out[0].dtype = DType::kU8;
  return out;
}

std::vector<TensorType> infer_quantize(const InferArgs& args) {
  expect_inputs(args, 1);
  const auto& [weight, transposed] = args.attrs.as<QuantizeWeightAttrs>();
  const Shape& shape = weight.weight.shape;
  expect(weight.format == WeightFormat::kInt8 && shape.rank() == 2 && shape[1] <= PackedShape::kMostColumns,
         "a weight of ", weight.weight);
  const TensorType wanted{weight.weight.dtype, transposed ? Shape{shape[1], shape[0]} : shape};
  expect(args.in[0] == wanted, "got ", args.in[0], ", expected ", wanted);
  return {{DType::kU8, {static_cast<int64_t>(weight.packed().bytes())}}};
}

std::vector<TensorType> infer_rounding(const InferArgs& args) {
  expect_inputs(args, 1);
  expect(is_float(args.in[0].dtype), "got ", args.in[0]);
  expect(args.attrs.as<RoundingAttrs>().scale > 0, "a scale that is not positive");
  return {args.in[0]};
}

std::vector<Tensor> decompose_embedding(const DecomposeArgs& args) {
  const auto& attrs = args.attrs<QuantizedAttrs>();
  return {embedding(dequantize(args.in[0], attrs.packed(), attrs.weight.dtype), args.in[1])};
}

// What the product is, without its weight.
Node product_of(const Node& node) {
  Node product = node;
  product.op = &kMatmul, product.attrs = node.attrs.as<QuantizedMatmulAttrs>().product;
  return product;
}

bool matmul_may_overwrite(const Node& node, int output, int input) {
  const bool writes_codes = node.attrs.as<QuantizedMatmulAttrs>().result_rounding.scale > 0;
  return !writes_codes && kMatmul.may_overwrite(product_of(node), output, input);
}

Attrs quantized_with_independent_rows(const Attrs& old) {
  auto attrs = old.as<QuantizedMatmulAttrs>();
  attrs.product.independent_rows = true;
  return attrs;
}

std::string matmul_label(const Node& node) {
  const auto& attrs = node.attrs.as<QuantizedMatmulAttrs>();
  const std::string format = enum_names(attrs.weight.format)[static_cast<size_t>(attrs.weight.format)];
  return kMatmul.label(product_of(node)) + "+" + format + (attrs.result_rounding.scale > 0 ? "+codes" : "");
}

double matmul_flops(const FlopsArgs& args) {
  return 2.0 * static_cast<double>(args.out[0].shape.elements()) * static_cast<double>(args.in[0].shape[-1]);
}

}  // namespace

const OpDef kDequantize{.name = "dequantize", .infer = infer_dequantize, .storage = [](const Node&) {
                          return StorageRule{.in = {Storage::kF32}, .out = {Storage::kAny}};
                        }};

const OpDef kQuantizedEmbedding{
    .name = "quantized_embedding", .infer = infer_embedding, .decompose = decompose_embedding};

const OpDef kQuantizedMatmul{.name = "quantized_matmul",
                             .infer = infer_matmul,
                             .may_overwrite = matmul_may_overwrite,
                             .storage = [](const Node& node) { return kMatmul.storage(product_of(node)); },
                             .with_independent_rows = quantized_with_independent_rows,
                             .label = matmul_label,
                             .flops = matmul_flops};

const OpDef kQuantizeWeight{.name = "quantize_weight", .infer = infer_quantize};

const OpDef kRoundActivations{.name = "round_activations",
                              .infer = infer_rounding,
                              .may_overwrite = [](const Node&, int, int) { return true; },
                              .algebra = always<Algebra::kElementwise>,
                              .cheap = true};

bool is_plain_product(const MatmulAttrs& product) {
  return product.trans_b && !product.trans_a && !product.pre_activation && !product.has_aux();
}

bool has_quantized_product(WeightFormat format, const MatmulAttrs& product) {
  return !product.trans_a && !product.row_sums && (product.trans_b || format != WeightFormat::kInt8);
}

Tensor dequantize(At packed, const PackedShape& shape, DType dtype, float input_scale) {
  QuantizedAttrs attrs{.weight = {dtype, {shape.rows, shape.columns}}, .input_scale = input_scale};
  attrs.take(shape);
  return packed.value.graph->add_one(kDequantize, std::array{packed.value}, attrs, packed.where);
}

RoundingAttrs rounding_attrs(const StaticRounding& rounding) {
  const auto& [scale, zero, least, most, any_weight, largest_error] = rounding;
  return {scale, zero, least, most, any_weight, largest_error};
}

Tensor round_activations(At a, const StaticRounding& rounding) {
  return a.value.graph->add_one(kRoundActivations, std::array{a.value}, rounding_attrs(rounding), a.where);
}

Tensor quantized_matmul(At a, Tensor packed, const PackedShape& shape) {
  QuantizedMatmulAttrs attrs{.weight = {.weight = {a.value.type().dtype, {shape.rows, shape.columns}}}};
  attrs.weight.take(shape);
  return a.value.graph->add_one(kQuantizedMatmul, std::array{a.value, packed}, attrs, a.where);
}

}  // namespace linnet
