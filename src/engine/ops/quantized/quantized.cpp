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
  const auto& attrs = args.attrs.as<QuantizedAttrs>();
  expect_packed(args.in[0], attrs);
  expect(is_float(attrs.weight.dtype), "a weight of ", attrs.weight);
  return {attrs.weight};
}

std::vector<TensorType> infer_quantized_embedding(const InferArgs& args) {
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
  const auto& [weight, transposed] = args.attrs.as<QuantizeWeightAttrs>();
  const Shape& shape = weight.weight.shape;
  expect(weight.format == WeightFormat::kInt8 && shape.rank() == 2 && shape[1] <= PackedShape::kMostColumns,
      "a weight of ", weight.weight);
  const TensorType wanted{weight.weight.dtype, transposed ? Shape{shape[1], shape[0]} : shape};
  expect(args.in[0] == wanted, "got ", args.in[0], ", expected ", wanted);
  return {{DType::kU8, {static_cast<int64_t>(weight.packed().bytes())}}};
}

std::vector<TensorType> infer_rounding(const InferArgs& args) {
  expect(is_float(args.in[0].dtype), "got ", args.in[0]);
  expect(args.attrs.as<StaticRounding>().scale > 0, "a scale that is not positive");
  return {args.in[0]};
}

std::vector<TensorType> infer_round_bf16(const InferArgs& args) {
  const auto& weight = args.attrs.as<RoundBf16Attrs>().weight;
  expect(weight.format == WeightFormat::kBf16 && weight.weight.shape.rank() == 2, "a weight of another format");
  const TensorType wanted{weight.weight.dtype, {weight.weight.shape.elements()}};
  expect(args.in[0] == wanted, "got ", args.in[0], ", expected ", wanted);
  expect(args.in[1] == TensorType{DType::kI32, {4}}, "got random numbers of type ", args.in[1]);
  return {{DType::kU8, {static_cast<int64_t>(weight.packed().bytes())}}};
}

std::vector<Tensor> decompose_quantized_embedding(const DecomposeArgs& args) {
  const auto& attrs = args.attrs<QuantizedAttrs>();
  return {embedding(dequantize(args.in[0], attrs.packed(), attrs.weight.dtype), args.in[1])};
}

// The product without its weight.
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
  const std::string format = enum_name(attrs.weight.format);
  return kMatmul.label(product_of(node)) + "+" + format + (attrs.result_rounding.scale > 0 ? "+codes" : "");
}

double matmul_flops(const FlopsArgs& args) {
  return 2.0 * static_cast<double>(args.out[0].shape.elements()) * static_cast<double>(args.in[0].shape[-1]);
}
}  // namespace

const OpDef kDequantize{.name = "dequantize", .infer = takes<1, infer_dequantize>, .storage = [](const Node&) {
                          return StorageRule{.in = {Storage::kF32}, .out = {Storage::kAny}};
                        }};

const OpDef kQuantizedEmbedding{.name = "quantized_embedding",
    .infer = takes<2, infer_quantized_embedding>,
    .decompose = decompose_quantized_embedding};

const OpDef kQuantizedMatmul{.name = "quantized_matmul",
    .infer = infer_matmul,
    .may_overwrite = matmul_may_overwrite,
    .storage = [](const Node& node) { return kMatmul.storage(product_of(node)); },
    .with_independent_rows = quantized_with_independent_rows,
    .label = matmul_label,
    .flops = matmul_flops};

const OpDef kQuantizeWeight{.name = "quantize_weight", .infer = takes<1, infer_quantize>};

const OpDef kRoundActivations{.name = "round_activations",
    .infer = takes<1, infer_rounding>,
    .may_overwrite = overwrites_any,
    .algebra = always<Algebra::kElementwise>,
    .cheap = true};

const OpDef kRoundBf16{.name = "round_bf16", .infer = takes<2, infer_round_bf16>};

bool is_plain_product(const MatmulAttrs& product) {
  return product.trans_b && !product.trans_a && !product.pre_activation && !product.has_aux();
}

bool has_quantized_product(WeightFormat format, const MatmulAttrs& product) {
  return !product.trans_a && !product.row_sums && (product.trans_b || format != WeightFormat::kInt8);
}

QuantizedAttrs quantized_attrs(const PackedShape& shape, DType dtype, float input_scale) {
  return {shape.format, {dtype, {shape.rows, shape.columns}}, input_scale, shape.tail_rows, shape.tail_format};
}

Tensor dequantize(At packed, const PackedShape& shape, DType dtype, float input_scale) {
  return op_result(kDequantize, packed, {}, quantized_attrs(shape, dtype, input_scale));
}

Tensor round_activations(At a, const StaticRounding& rounding) { return op_result(kRoundActivations, a, {}, rounding); }

Tensor quantized_matmul(At a, Tensor packed, const PackedShape& shape) {
  return op_result(
      kQuantizedMatmul, a, {packed}, QuantizedMatmulAttrs{.weight = quantized_attrs(shape, a.value.type().dtype)});
}

Tensor round_bf16(At x, Tensor random, const PackedShape& shape, uint64_t site) {
  return op_result(kRoundBf16, x, {random}, RoundBf16Attrs{quantized_attrs(shape, x.value.type().dtype), site});
}

namespace {
constexpr int64_t kMostPixels = 1 << 24;  // of an axis, a filter or a step: products of two stay within 64 bits
constexpr double kMostElements = 1e12;

bool is_valid(const WindowAxis& axis, int64_t length) {
  const auto within = [](int64_t x, int64_t least) { return x >= least && x <= kMostPixels; };
  return within(axis.size, 1) && within(axis.stride, 1) && within(axis.dilation, 1) && within(axis.before, 0) &&
         within(axis.after, 0) && length <= kMostPixels && axis.count(length) > 0;
}

bool is_valid(const StaticRounding& r) {  // a rounding to bytes
  return r.zero >= 0 && r.zero <= 255 && r.least >= 0 && r.least <= r.most && r.most <= 255;
}

// x, y or a residual: floats, or codes by a rounding with a scale.
bool has_form(const TensorType& type, const StaticRounding& rounding) {
  return type.dtype == DType::kU8 ? rounding.scale > 0 && is_valid(rounding) : is_float(type.dtype);
}

// Checks the operands after the weight, for results of this type.
void expect_epilogue(const InferArgs& args, const TensorType& y) {
  const auto& attrs = args.attrs.as<QuantizedConv2dAttrs>();
  const Shape row{y.shape[-1]};
  const auto expect_row = [&](bool wanted, size_t at) {
    if (wanted)
      expect(is_float(args.in[at].dtype) && args.in[at].shape == row, "got ", args.in[at],
          ", expected a number for each filter");
  };
  expect_row(attrs.scale, attrs.scale_at());
  expect_row(attrs.bias, attrs.bias_at());
  if (!attrs.residual) return;
  const TensorType& residual = args.in[attrs.residual_at()];
  expect(residual.shape == y.shape && has_form(residual, attrs.residual_rounding) &&
             (residual.dtype == DType::kU8) == (attrs.residual_rounding.scale > 0),
      "got a residual ", residual, " for results ", y);
}

std::vector<TensorType> infer_quantized_conv2d(const InferArgs& args) {
  const auto& attrs = args.attrs.as<QuantizedConv2dAttrs>();
  expect_inputs(args, static_cast<size_t>(2 + attrs.scale + attrs.bias + attrs.residual));
  const TensorType& x = args.in[0];
  expect_packed(args.in[1], attrs.weight);
  expect(attrs.weight.format == WeightFormat::kInt8 && has_form(x, attrs.rounding) && x.shape.rank() == 4, "got ", x,
      ", expected floats or codes [N, H, W, C] and filters of 8 bits");
  expect(is_valid(attrs.vertical, x.shape[1]) && is_valid(attrs.horizontal, x.shape[2]),
      "windows that do not fit images of ", x);
  const Int8ConvolutionSizes sizes = attrs.sizes(x.shape);
  const double padded = static_cast<double>(attrs.vertical.padded(x.shape[1])) *
                        static_cast<double>(attrs.horizontal.padded(x.shape[2])) * static_cast<double>(x.shape[0]) *
                        static_cast<double>(x.shape[3]);
  expect(padded <= kMostElements, "images of ", x, " with zeros around them are too large");
  // The number of columns is limited, so these divisions detect sizes whose product would overflow.
  const int64_t columns = attrs.weight.weight.shape[1], taps = columns / std::max<int64_t>(1, x.shape[3]);
  expect(taps / sizes.vertical.size == sizes.horizontal.size && columns == sizes.patch(), "filters of ",
      attrs.weight.weight, " for ", x);
  const bool is_dynamic = attrs.rounding.scale == 0 && (attrs.rounding.zero == 0 || attrs.rounding.zero == 128);
  expect((attrs.rounding.scale > 0 || is_dynamic) && is_valid(attrs.rounding) && is_valid(attrs.result_rounding) &&
             attrs.result_rounding.scale >= 0,
      "a rounding to other numbers than bytes");
  const DType floats = x.dtype == DType::kU8 ? attrs.weight.weight.dtype : x.dtype;
  const TensorType y{attrs.result_rounding.scale > 0 ? DType::kU8 : floats,
      {x.shape[0], sizes.out_height(), sizes.out_width(), attrs.weight.weight.shape[0]}};
  expect_epilogue(args, y);
  return {y};
}

std::string quantized_conv2d_label(const Node& node) {
  const auto& attrs = node.attrs.as<QuantizedConv2dAttrs>();
  std::string text = "quantized_conv2d";
  if (attrs.scale) text += "+scale";
  if (attrs.bias) text += "+bias";
  if (attrs.residual) text += "+residual";
  if (attrs.relu) text += "+relu";
  return attrs.result_rounding.scale > 0 ? text + "+codes" : text;
}

double quantized_conv2d_flops(const FlopsArgs& args) {
  const auto& attrs = args.attrs<QuantizedConv2dAttrs>();
  return 2.0 * static_cast<double>(args.out[0].shape.elements()) * static_cast<double>(attrs.weight.weight.shape[1]);
}
}  // namespace

const OpDef kQuantizedConv2d{.name = "quantized_conv2d",
    .infer = infer_quantized_conv2d,
    .label = quantized_conv2d_label,
    .flops = quantized_conv2d_flops};

Tensor quantized_conv2d(At x, Tensor packed, const PackedShape& shape, const StaticRounding& rounding,
    const WindowAxis& vertical, const WindowAxis& horizontal) {
  return op_result(kQuantizedConv2d, x, {packed},
      QuantizedConv2dAttrs{.weight = quantized_attrs(shape, x.value.type().dtype),
          .rounding = rounding,
          .vertical = vertical,
          .horizontal = horizontal});
}
}  // namespace linnet
