// Ops that move, repeat or make values.
#include "engine/ops/movement/movement.h"
#include "engine/ir/op.h"
#include "onnx/lowering/lowering.h"

namespace linnet {
namespace {
const std::vector<int> kSwapHeads{0, 2, 1, 3};

bool swaps_heads(const Node* node) { return is(node, kPermute) && node->attrs.as<PermuteAttrs>().order == kSwapHeads; }

// [B, T, H, D] as [B, T, H * D], or back.
bool joins_heads(const OnnxLowering& to, ValueId apart, ValueId rows) {
  const Shape &four = to.graph().value(apart).type.shape, &three = to.graph().value(rows).type.shape;
  return four.rank() == 4 && three.rank() == 3 && four[0] == three[0] && four[1] == three[1];
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
}  // namespace

std::string by_heads_in_onnx(OnnxLowering& to, ValueId rows, int64_t heads) {
  const Node* node = to.producer(rows);
  if (is(node, kReshape)) {
    const Node* before = to.producer(node->in[0]);
    if (swaps_heads(before) && joins_heads(to, node->in[0], rows) &&
        to.graph().value(before->in[0]).type.shape[1] == heads)
      return to.name_of(before->in[0]);
  }
  if (is(node, kConcat) && node->attrs.as<ConcatAttrs>().axis == 1) {
    std::vector<std::string> parts;
    for (const ValueId part : node->in) parts.push_back(by_heads_in_onnx(to, part, heads));
    return to.builder.add("Concat", parts, {int_attribute("axis", 2)});
  }
  const SymbolicShape& shape = to.shape_of(rows);
  const SymbolicShape apart{shape[0], shape[1], {heads}, {shape[2].constant / heads}};
  return to.builder.transpose(to.builder.reshape(to.name_of(rows), shape, apart), {0, 2, 1, 3});
}

// Unread parts are left out; a part read alone is a slice.
void lower_split(OnnxLowering& to) {
  if (to.form.separate_projections && separate_products(to)) return;
  const int64_t axis = to.attrs<SplitAttrs>().axis;
  const auto along = [&](size_t part) { return to.out_shape(part)[axis]; };
  SymbolicShape sizes;
  bool all = true;
  for (size_t i = 0; i < to.node().out.size(); ++i) {
    sizes.push_back(along(i));
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

void lower_concat(OnnxLowering& to) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < to.operands(); ++i) parts.push_back(to.in(i));
  to.add("Concat", parts, {int_attribute("axis", to.attrs<ConcatAttrs>().axis)});
}

void lower_permute(OnnxLowering& to) {
  const auto& order = to.attrs<PermuteAttrs>().order;
  const ValueId x = to.node().in[0];
  const Node* before = to.producer(x);
  if (order == kSwapHeads && is(before, kReshape) && joins_heads(to, x, before->in[0]))
    return to.set(0, by_heads_in_onnx(to, before->in[0], to.in_type(0).shape[2]));
  to.set(0, to.builder.transpose(to.in(0), {order.begin(), order.end()}));
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

void lower_literal(OnnxLowering& to) {
  const auto& attrs = to.attrs<LiteralAttrs>();
  const auto sizes = attrs.type.shape.sizes();
  const std::vector<int64_t> dims(sizes.begin(), sizes.end());
  const auto count = static_cast<size_t>(attrs.type.shape.elements());
  if (attrs.type.dtype == DType::kF32) {
    const auto* values = reinterpret_cast<const float*>(attrs.words.data());
    return to.set(0, to.builder.tensor(float_tensor(dims, {values, values + count})));
  }
  if (attrs.type.dtype != DType::kI32) to.fail("it holds other numbers than float32 and int32");
  const auto* values = reinterpret_cast<const int32_t*>(attrs.words.data());
  to.set(0, to.builder.tensor(int64_tensor(dims, {values, values + count})));
}
}  // namespace linnet
