// The lowering of each op: what it is in ONNX, and the table of them. Those of attention are beside this file.
#include <algorithm>
#include <cmath>
#include <numbers>
#include "base/fail.h"
#include "base/functions.h"
#include "engine/ir/op.h"
#include "engine/ops/broadcast.h"
#include "engine/ops/conv2d/conv2d.h"
#include "engine/ops/cross_entropy/cross_entropy.h"
#include "engine/ops/embedding/embedding.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/norm/norm.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/pool/pool.h"
#include "engine/ops/reduce/reduce.h"
#include "onnx/lowering/lowering.h"

namespace linnet {
namespace {
std::string operand(OnnxLowering& to, size_t index, bool transposed) {
  std::vector<int64_t> order = numbers_below<int64_t>(to.in_type(index).shape.rank());
  if (transposed) std::swap(order[order.size() - 1], order[order.size() - 2]);
  return transposed ? to.arranged(index, order) : to.in(index);
}

std::string scaled_pixels(OnnxLowering& to, const std::string& bytes, const PixelScaling& scaling) {
  const std::vector<int64_t> channels{static_cast<int64_t>(scaling.scale.size())};
  OnnxBuilder& b = to.builder;
  const std::string scaled =
      b.add("Mul", {b.cast(bytes, OnnxElement::kFloat), b.tensor(float_tensor(channels, scaling.scale))});
  return b.add("Add", {scaled, b.tensor(float_tensor(channels, scaling.shift))});
}

// The node x weight^T, with a parameter as weight, that made a value; null: another node did.
const Node* linear_product(const OnnxLowering& to, ValueId value) {
  const Node* node = to.producer(value);
  if (!is(node, kMatmul) || !to.is_parameter(node->in[1])) return nullptr;
  const auto& attrs = node->attrs.as<MatmulAttrs>();
  return attrs.trans_b && !attrs.trans_a && to.graph().value(node->in[1]).type.shape.rank() == 2 ? node : nullptr;
}

// product + bias, of shape `result`. Gemm takes matrices alone, so leading axes are joined before and split after it.
std::string linear_as_gemm(OnnxLowering& to, const Node& product, ValueId bias, const SymbolicShape& result) {
  OnnxBuilder& b = to.builder;
  const std::string rows =
      b.add("Reshape", {to.name_of(product.in[0]), b.ints({-1, to.shape_of(product.in[1])[1].constant})});
  const std::string y = b.add("Gemm", {rows, to.arranged_value(product.in[1], {1, 0}), to.name_of(bias)});
  return b.add("Reshape", {y, b.shape(result)});
}

// Splits x weight^T + bias into products with rows of weight and bias. False: it is no such value.
bool separate_products(OnnxLowering& to) {
  const Node& node = to.node();
  const Node* sum = to.producer(node.in[0]);
  if (!sum || !sum->op->algebra || sum->op->algebra(*sum) != Algebra::kAdd || !to.is_parameter(sum->in[1]))
    return false;
  const Node* product = linear_product(to, sum->in[0]);
  if (!product || node.attrs.as<SplitAttrs>().axis != to.in_type(0).shape.rank() - 1) return false;
  int64_t first = 0;
  for (size_t i = 0; i < node.out.size(); ++i) {
    const int64_t count = to.out_type(i).shape[-1];
    const std::string weight = to.parameter_rows(product->in[1], static_cast<int>(i), first, count, {1, 0});
    const std::string bias = to.parameter_rows(sum->in[1], static_cast<int>(i), first, count, {0});
    const std::string y = to.builder.add("MatMul", {to.name_of(product->in[0]), weight});
    to.set(i, to.builder.add("Add", {y, bias}));
    first += count;
  }
  return true;
}

std::string lower(OnnxBuilder& builder, Scalar function, const std::vector<std::string>& in) {
  for (const OnnxFunctionRow& row : kOnnxFunctions)
    if (row.function == function) return builder.add(row.name, in);
  if (function == Scalar::kSquare) return builder.add("Mul", {in[0], in[0]});
  if (function == Scalar::kRsqrt) return builder.add("Reciprocal", {builder.add("Sqrt", in)});
  if (function == Scalar::kGreater) return builder.cast(builder.add("Greater", in), OnnxElement::kFloat);
  if (function == Scalar::kEqual) return builder.cast(builder.add("Equal", in), OnnxElement::kFloat);
  if (function == Scalar::kSelect) return builder.add("Where", {builder.cast(in[0], OnnxElement::kBool), in[1], in[2]});
  fail_internal("ONNX: no operator for ", scalar_name(function));
}

// x * (1 + erf(x / sqrt(2))) / 2 in the nodes that runtimes recognize as Gelu.
std::string gelu_in_onnx(OnnxBuilder& b, const std::string& x) {
  const std::string erf = b.add("Erf", {b.add("Div", {x, b.number(std::numbers::sqrt2)})});
  return b.add("Mul", {b.add("Mul", {x, b.add("Add", {erf, b.number(1)})}), b.number(0.5)});
}

// x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))), likewise.
std::string gelu_tanh_in_onnx(OnnxBuilder& b, const std::string& x) {
  const std::string cube = b.add("Mul", {b.add("Pow", {x, b.number(3)}), b.number(0.044715)});
  const std::string inner =
      b.add("Mul", {b.add("Add", {x, cube}), b.number(std::numbers::sqrt2 * std::numbers::inv_sqrtpi)});
  return b.add("Mul", {b.add("Mul", {x, b.number(0.5)}), b.add("Add", {b.add("Tanh", {inner}), b.number(1)})});
}

// Whether the node adds a bias to the projection after attention.
bool ends_attention(OnnxLowering& to) {
  const Node& node = to.node();
  if (node.op->algebra(node) != Algebra::kAdd || to.in_type(1).shape.rank() != 1) return false;
  const Node* product = linear_product(to, node.in[0]);
  const Node* before = product ? to.producer(product->in[0]) : nullptr;
  return before && before->op->product == ProductKind::kAttention;
}

std::vector<int64_t> reduced_axes(const Shape& small, const Shape& full) {
  std::vector<int64_t> axes;
  const Broadcast kind = *find_broadcast(small, full);
  int kept = 0;  // trailing axes of a suffix
  if (kind == Broadcast::kSuffix)
    for (int64_t elements = 1; elements < small.elements(); ++kept) elements *= full[-1 - kept];
  for (int axis = 0; axis < full.rank(); ++axis) {
    const bool stays = kind == Broadcast::kSuffix ? axis >= full.rank() - kept
                                                  : kind != Broadcast::kScalar && small[axis] == full[axis];
    if (!stays) axes.push_back(axis);
  }
  return axes;
}

void lower_matmul(OnnxLowering& to) {
  const auto& attrs = to.attrs<MatmulAttrs>();
  if (to.operands() != 2) to.fail("it was joined with other ops");
  to.add("MatMul", {operand(to, 0, attrs.trans_a), operand(to, 1, attrs.trans_b)});
}

// `op` of images and filters; the output padding may be empty.
void convolution(OnnxLowering& to, const char* op, const std::vector<int64_t>& output_padding) {
  const auto& attrs = to.attrs<Conv2dAttrs>();
  OnnxBuilder& b = to.builder;
  std::vector<OnnxAttribute> attributes{ints_attribute("strides", {attrs.stride, attrs.stride}),
      ints_attribute("dilations", {attrs.dilation, attrs.dilation}), int_attribute("group", attrs.groups),
      ints_attribute("pads", {attrs.padding, attrs.padding, attrs.padding, attrs.padding})};
  if (!output_padding.empty()) attributes.push_back(ints_attribute("output_padding", output_padding));
  const std::string y = b.add(op, {b.transpose(to.in(0), {0, 3, 1, 2}), to.arranged(1, {0, 3, 1, 2})}, attributes);
  to.set(0, b.transpose(y, {0, 2, 3, 1}));
}

// ONNX has the padding that is added to the result instead of the result's size.
void lower_conv2d_input_grad(OnnxLowering& to) {
  const auto& attrs = to.attrs<Conv2dAttrs>();
  std::vector<int64_t> output_padding;
  for (const int axis : {1, 2}) {
    const SymbolicSize &from = to.in_shape(0)[axis], &result = to.out_shape(0)[axis];
    if (!from.is_constant() || !result.is_constant()) to.fail("the size of its images is open");
    const int64_t reach = attrs.dilation * (to.in_type(1).shape[axis] - 1) + 1;
    output_padding.push_back(result.constant - (from.constant - 1) * attrs.stride + 2 * attrs.padding - reach);
  }
  convolution(to, "ConvTranspose", output_padding);
}

// The largest of windows of images with their channels first.
void max_pool(OnnxLowering& to, const std::string& x, int64_t size, int64_t stride) {
  if (to.is_used(1)) to.fail("the places of its results are read");
  const std::string y = to.builder.add(
      "MaxPool", {x}, {ints_attribute("kernel_shape", {size, size}), ints_attribute("strides", {stride, stride})});
  to.set(0, to.builder.transpose(y, {0, 2, 3, 1}));
}

void lower_conv_relu_pool(OnnxLowering& to) {
  const auto& attrs = to.attrs<ConvReluPoolAttrs>();
  OnnxBuilder& b = to.builder;
  const std::string x = attrs.scaling.scale.empty() ? to.in(0) : scaled_pixels(to, to.in(0), attrs.scaling);
  const std::string y = b.add("Conv", {b.transpose(x, {0, 3, 1, 2}), to.arranged(1, {0, 3, 1, 2}), to.in(2)},
      {ints_attribute("strides", {1, 1}), ints_attribute("pads", {1, 1, 1, 1})});
  max_pool(to, b.add("Relu", {y}), 2, 2);
}

void lower_max_pool(OnnxLowering& to) {
  const auto& attrs = to.attrs<MaxPoolAttrs>();
  max_pool(to, to.builder.transpose(to.in(0), {0, 3, 1, 2}), attrs.size, attrs.stride);
}

// Unread parts are left out; a part read alone is a slice.
void lower_split(OnnxLowering& to) {
  if (to.form.separate_projections && separate_products(to)) return;
  const int64_t axis = to.attrs<SplitAttrs>().axis;
  SymbolicShape sizes;
  bool all = true;
  for (size_t i = 0; i < to.node().out.size(); ++i) {
    sizes.push_back(to.out_shape(i)[axis]);
    all = all && to.is_used(i);
  }
  if (all) {
    const std::vector<std::string> parts =
        to.builder.add_many("Split", {to.in(0), to.builder.shape(sizes)}, sizes.size(), {int_attribute("axis", axis)});
    for (size_t i = 0; i < parts.size(); ++i) to.set(i, parts[i]);
    return;
  }
  SymbolicSize start;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const SymbolicSize end = start + sizes[i];
    if (to.is_used(i))
      to.set(i,
          to.builder.add("Slice", {to.in(0), to.builder.size(start), to.builder.size(end), to.builder.ints({axis})}));
    start = end;
  }
}

void lower_fill(OnnxLowering& to) {
  const auto& attrs = to.attrs<FillAttrs>();
  if (attrs.type.dtype == DType::kI32) {
    const SymbolicSize value =
        to.fit([](const Node& node) { return static_cast<int64_t>(node.attrs.as<FillAttrs>().value); });
    return to.add("Expand", {to.builder.size(value), to.builder.shape(to.out_shape(0))});
  }
  if (attrs.type.dtype != DType::kF32) to.fail("it fills with other numbers than float32 and int32");
  const OnnxTensor value = float_tensor({1}, {static_cast<float>(attrs.value)});
  to.add("ConstantOfShape", {to.builder.shape(to.out_shape(0))}, {tensor_attribute("value", value)});
}

// The elements of a literal of float32 or int32.
std::vector<double> numbers_of(const LiteralAttrs& attrs) {
  const auto* floats = reinterpret_cast<const float*>(attrs.words.data());
  const auto* whole = reinterpret_cast<const int32_t*>(attrs.words.data());
  return mapped(attrs.type.shape.elements(),
      [&](int64_t i) -> double { return attrs.type.dtype == DType::kF32 ? floats[i] : whole[i]; });
}

// A literal whose rows count from a number on, as many as the sizes say.
void lower_positions(OnnxLowering& to) {
  OnnxBuilder& b = to.builder;
  const std::string first = b.size(to.fit([&](const Node& node) {
    const auto& attrs = node.attrs.as<LiteralAttrs>();
    const std::vector<double> numbers = numbers_of(attrs);
    for (size_t i = 0; i < numbers.size(); ++i)
      if (numbers[i] != numbers[0] + static_cast<double>(i % attrs.type.shape[-1]))
        to.fail("its numbers depend on the sizes of the inputs");
    return static_cast<int64_t>(numbers[0]);
  }));
  const std::string row = b.add("Range", {b.integer(0), b.size_scalar(to.out_shape(0).back()), b.integer(1)});
  const std::string all = b.add("Expand", {b.add("Add", {row, first}), b.shape(to.out_shape(0))});
  to.set(0, b.cast(all, onnx_element(to.out_type(0).dtype)));
}

void lower_literal(OnnxLowering& to) {
  const auto& attrs = to.attrs<LiteralAttrs>();
  if (attrs.type.dtype != DType::kF32 && attrs.type.dtype != DType::kI32)
    to.fail("it holds other numbers than float32 and int32");
  if (to.differs(&Node::attrs)) return lower_positions(to);
  const std::vector<int64_t> dims(attrs.type.shape.sizes().begin(), attrs.type.shape.sizes().end());
  const std::vector<double> numbers = numbers_of(attrs);
  to.set(0, to.builder.tensor(attrs.type.dtype == DType::kF32 ? float_tensor(dims, {numbers.begin(), numbers.end()})
                                                              : int64_tensor(dims, {numbers.begin(), numbers.end()})));
}

// A constant of an expression, which may be a size, or 1 through one: of a mean.
std::string constant(OnnxLowering& to, size_t at) {
  const auto value_of = [&](const Node& node) {
    const std::vector<Instruction>& code = node.attrs.as<PointwiseAttrs>().expression.code;
    const std::vector<Instruction>& known = to.attrs<PointwiseAttrs>().expression.code;
    if (!std::ranges::equal(code, known, {}, &Instruction::function, &Instruction::function))
      to.fail("its formula depends on the sizes of the inputs");
    return code[at].constant;
  };
  const double value = value_of(to.node());
  if (!to.differs(value_of)) return to.builder.number(value);
  const bool inverse = std::abs(value) < 1;
  const SymbolicSize size = to.fit([&](const Node& node) {
    const double number = inverse ? 1 / value_of(node) : value_of(node);
    if (std::abs(number - std::round(number)) > 1e-6 * std::abs(number))
      to.fail("a number depends on the sizes of the inputs, and is neither a size nor 1 through one");
    return std::llround(number);
  });
  const std::string number = to.builder.cast(to.builder.size_scalar(size), OnnxElement::kFloat);
  return inverse ? to.builder.add("Reciprocal", {number}) : number;
}

void lower_pointwise(OnnxLowering& to) {
  const Expression& expression = to.attrs<PointwiseAttrs>().expression;
  if (expression == gelu_expression()) return to.set(0, gelu_in_onnx(to.builder, to.in(0)));
  if (expression == gelu_tanh_expression()) return to.set(0, gelu_tanh_in_onnx(to.builder, to.in(0)));
  if (to.form.causal_mask_size > 0 && ends_attention(to))
    return to.set(0, linear_as_gemm(to, *to.producer(to.node().in[0]), to.node().in[1], to.out_shape(0)));
  std::vector<std::string> values;
  for (const Instruction& in : expression.code) {
    std::vector<std::string> operands;
    if (in.function != Scalar::kInput && in.function != Scalar::kConstant)
      for (const int16_t operand : {in.a, in.b, in.c})
        if (operand >= 0) operands.push_back(values[operand]);
    values.push_back(in.function == Scalar::kInput      ? to.in(in.a)
                     : in.function == Scalar::kConstant ? constant(to, values.size())
                                                        : lower(to.builder, in.function, operands));
  }
  to.set(0, values.back());
}

void lower_reduce(OnnxLowering& to) {
  const std::vector<int64_t> axes = reduced_axes(to.out_type(0).shape, to.in_type(0).shape);
  SymbolicShape kept = to.in_shape(0);
  for (const int64_t axis : axes) kept[axis] = {1};
  const Reduction kind = to.attrs<ReduceAttrs>().kind;
  const char* name = kind == Reduction::kSum ? "ReduceSum" : kind == Reduction::kMax ? "ReduceMax" : "ReduceLogSumExp";
  const std::string y = to.builder.reduce(name, to.in(0), axes);
  to.set(0, to.builder.reshape(y, kept, to.out_shape(0)));
}

// LayerNormalization from opset 17 on; before, and for root-mean-square norms, nodes that ONNX Runtime fuses.
void lower_layer_norm(OnnxLowering& to) {
  const auto& attrs = to.attrs<LayerNormAttrs>();
  if (to.is_used(1) || to.is_used(2)) to.fail("its mean or deviation is read");
  OnnxBuilder& b = to.builder;
  if (b.opset() >= 17 && attrs.centered && attrs.has_weight) {
    std::vector<std::string> in{to.in(0), to.in(1)};
    if (attrs.has_bias) in.push_back(to.in(2));
    return to.add("LayerNormalization", in,
        {int_attribute("axis", -1), float_attribute("epsilon", static_cast<float>(attrs.epsilon))});
  }
  std::string y = to.in(0);
  if (attrs.centered) y = b.add("Sub", {y, b.reduce("ReduceMean", y, {-1})});
  const std::string variance = b.reduce("ReduceMean", b.add("Pow", {y, b.number(2)}), {-1});
  y = b.add("Div", {y, b.add("Sqrt", {b.add("Add", {variance, b.number(attrs.epsilon)})})});
  if (attrs.has_weight) y = b.add("Mul", {y, to.in(1)});
  if (attrs.has_bias) y = b.add("Add", {y, to.in(to.operands() - 1)});
  to.set(0, y);
}

// Equal elements may change places.
void lower_argsort(OnnxLowering& to) {
  const auto& attrs = to.attrs<ArgsortAttrs>();
  OnnxBuilder& b = to.builder;
  const std::string& x = to.in(0);
  const std::string count = attrs.count > 0 ? b.ints({attrs.count}) : b.size(to.in_shape(0).back());
  const std::string places =
      b.add_many("TopK", {x, count}, 2, {int_attribute("axis", -1), int_attribute("largest", attrs.descending)})[1];
  if (!attrs.flat) return to.set(0, places);
  const std::string all = b.add("Range", {b.integer(0), b.add("Size", {x}), b.integer(1)});
  const std::string numbers = b.add("Reshape", {all, b.add("Shape", {x})});
  to.add("Add", {places, b.add("Slice", {numbers, b.ints({0}), b.ints({1}), b.ints({-1})})});
}

// [...] -> [..., rows], or along `axis`: 1 at each id.
std::string one_hot_in_onnx(OnnxBuilder& b, const std::string& ids, int64_t rows, int64_t axis) {
  return b.add("OneHot", {ids, b.integer(rows), b.tensor(float_tensor({2}, {0, 1}))}, {int_attribute("axis", axis)});
}

// ONNX counts negative targets from the end; these have a class of their own here, which is cut off.
void lower_one_hot(OnnxLowering& to) {
  OnnxBuilder& b = to.builder;
  const int64_t classes = to.attrs<OneHotAttrs>().classes;
  const std::string all = one_hot_in_onnx(b, b.add("Max", {to.in(0), b.integer(-1)}), classes + 1, -1);
  to.add("Slice", {all, b.ints({0}), b.ints({classes}), b.ints({-1})});
}

// The sums of rows by id, as a product with the ids' one-hot rows.
void lower_embedding_grad(OnnxLowering& to) {
  OnnxBuilder& b = to.builder;
  const auto& attrs = to.attrs<EmbeddingGradAttrs>();
  if (attrs.padding >= 0 || attrs.accumulate) to.fail("it is a gradient");
  const std::string ids = b.add("Reshape", {to.in(1), b.ints({-1})});
  const std::string rows = b.add("Reshape", {to.in(0), b.ints({-1, to.in_type(0).shape[-1]})});
  to.add("MatMul", {one_hot_in_onnx(b, ids, attrs.vocab_size, 0), rows});
}
}  // namespace

OnnxLower find_onnx_lowering(std::string_view op) {
  static const std::map<std::string_view, OnnxLower> table{
      {"argmax",
          [](OnnxLowering& to) {
            to.add("ArgMax", {to.in(0)}, {int_attribute("axis", -1), int_attribute("keepdims", 0)});
          }},
      {"attention", lower_attention},
      {"broadcast",
          [](OnnxLowering& to) {
            to.add("Expand", {to.in(0), to.builder.shape(to.out_shape(0))});
          }},
      {"cast",
          [](OnnxLowering& to) { to.set(0, to.builder.cast(to.in(0), onnx_element(to.attrs<CastAttrs>().dtype))); }},
      {"concat",
          [](OnnxLowering& to) {
            const std::vector<std::string> parts = mapped(to.operands(), [&](size_t i) { return to.in(i); });
            to.add("Concat", parts, {int_attribute("axis", to.attrs<ConcatAttrs>().axis)});
          }},
      {"argsort", lower_argsort}, {"conv2d", [](OnnxLowering& to) { convolution(to, "Conv", {}); }},
      {"conv2d_input_grad", lower_conv2d_input_grad}, {"conv_relu_pool", lower_conv_relu_pool},
      {"cumsum",
          [](OnnxLowering& to) {
            const auto& attrs = to.attrs<CumsumAttrs>();
            to.add("CumSum", {to.in(0), to.builder.integer(attrs.axis)}, {int_attribute("reverse", attrs.reverse)});
          }},
      {"distance_buckets", lower_distance_buckets},
      {"embedding",
          [](OnnxLowering& to) {
            to.add("Gather", {to.in(0), to.in(1)}, {int_attribute("axis", 0)});
          }},
      {"embedding_grad", lower_embedding_grad}, {"fill", lower_fill}, {"layer_norm", lower_layer_norm},
      {"literal", lower_literal}, {"mask_scores", lower_mask_scores}, {"matmul", lower_matmul},
      {"max_pool", lower_max_pool}, {"one_hot", lower_one_hot}, {"permute", lower_permute},
      {"pointwise", lower_pointwise}, {"reduce", lower_reduce},
      {"reshape", [](OnnxLowering& to) { to.set(0, to.builder.reshape(to.in(0), to.in_shape(0), to.out_shape(0))); }},
      {"rope", lower_rope},
      {"scale_pixels",
          [](OnnxLowering& to) { to.set(0, scaled_pixels(to, to.in(0), to.attrs<ScalePixelsAttrs>().scaling)); }},
      {"softmax", [](OnnxLowering& to) { to.add("Softmax", {to.in(0)}, {int_attribute("axis", -1)}); }},
      {"split", lower_split}, {"stop_gradient", [](OnnxLowering& to) { to.set(0, to.in(0)); }}};
  return find_or(table, op, nullptr);
}
}  // namespace linnet
