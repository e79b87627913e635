// Ops that look at a row as a whole: norms, reductions, softmax, lookups.
#include "engine/ops/broadcast.h"
#include "engine/ops/layer_norm/layer_norm.h"
#include "engine/ops/reduce/reduce.h"
#include "onnx/lowering/lowering.h"

namespace linnet {
namespace {

const char* operator_of(Reduction kind) {
  return kind == Reduction::kSum ? "ReduceSum" : kind == Reduction::kMax ? "ReduceMax" : "ReduceLogSumExp";
}

// The axes of `full` that are summed over to get `small`.
std::vector<int64_t> reduced_axes(const Shape& small, const Shape& full) {
  std::vector<int64_t> axes;
  const Broadcast kind = *find_broadcast(small, full);
  int kept = 0;  // trailing axes of a suffix
  if (kind == Broadcast::kSuffix)
    for (int64_t elements = 1; elements < small.elements(); ++kept) elements *= full[-1 - kept];
  for (int axis = 0; axis < full.rank(); ++axis) {
    const bool stays = kind == Broadcast::kPrefix ? small[axis] == full[axis]
                                                  : kind == Broadcast::kSuffix && axis >= full.rank() - kept;
    if (!stays) axes.push_back(axis);
  }
  return axes;
}

void lower_reduce(OnnxLowering& to) {
  const std::vector<int64_t> axes = reduced_axes(to.out_type(0).shape, to.in_type(0).shape);
  SymbolicShape kept = to.in_shape(0);
  for (const int64_t axis : axes) kept[static_cast<size_t>(axis)] = {1};
  const std::string y = to.builder.reduce(operator_of(to.attrs<ReduceAttrs>().kind), to.in(0), axes);
  to.set(0, to.builder.reshape(y, kept, to.out_shape(0)));
}

// LayerNormalization from opset 17 on. Before, and for root-mean-square norms, the nodes that ONNX Runtime joins.
std::string normalized(OnnxLowering& to, const LayerNormAttrs& attrs) {
  OnnxBuilder& b = to.builder;
  std::string x = to.in(0);
  if (attrs.centered) x = b.add("Sub", {x, b.reduce("ReduceMean", x, {-1})});
  const std::string variance = b.reduce("ReduceMean", b.add("Pow", {x, b.number(2)}), {-1});
  return b.add("Div", {x, b.add("Sqrt", {b.add("Add", {variance, b.number(attrs.epsilon)})})});
}

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
  std::string y = normalized(to, attrs);
  if (attrs.has_weight) y = b.add("Mul", {y, to.in(1)});
  if (attrs.has_bias) y = b.add("Add", {y, to.in(to.operands() - 1)});
  to.set(0, y);
}

}  // namespace

std::span<const OnnxLoweringRow> row_lowerings() {
  static constexpr OnnxLoweringRow kRows[] = {
      {"argmax",
       [](OnnxLowering& to) {
         to.add("ArgMax", {to.in(0)}, {int_attribute("axis", -1), int_attribute("keepdims", 0)});
       }},
      {"embedding",
       [](OnnxLowering& to) {
         to.add("Gather", {to.in(0), to.in(1)}, {int_attribute("axis", 0)});
       }},
      {"layer_norm", lower_layer_norm},
      {"reduce", lower_reduce},
      {"softmax", [](OnnxLowering& to) { to.add("Softmax", {to.in(0)}, {int_attribute("axis", -1)}); }},
  };
  return kRows;
}

}  // namespace linnet
