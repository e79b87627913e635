#include "onnx/lowering/lowering.h"
#include <limits>
#include <numeric>
#include "base/fail.h"
#include "engine/ir/op.h"
#include "engine/ops/movement/movement.h"

namespace linnet {
namespace {
using To = OnnxLowering;

void check_alike(const Graph& a, const Graph& b) {
  bool alike = a.node_count() == b.node_count() && a.value_count() == b.value_count() &&
               a.inputs().size() == b.inputs().size() && a.outputs().size() == b.outputs().size();
  for (NodeId id = 0; alike && id < a.node_count(); ++id)
    alike = a.node(id).op == b.node(id).op && a.node(id).in == b.node(id).in && a.node(id).out == b.node(id).out;
  if (!alike) fail_user("ONNX: the model's computation depends on the sizes of its inputs");
}

// Elements [first, first + count) of a dense tensor whose axis i is axis order[i] of `values`.
void gather_arranged(
    const OnnxParameter& parameter, const std::vector<int64_t>& order, int64_t first, int64_t count, float* out) {
  const Shape strides = dense_strides(parameter.shape);
  const int rank = parameter.shape.rank();
  std::vector<int64_t> index(rank), sizes, steps;
  for (const int64_t axis : order) {
    sizes.push_back(parameter.shape[axis]);
    steps.push_back(strides[axis]);
  }
  int64_t at = 0, rest = first;
  for (int axis = rank; axis-- > 0;) {
    const auto a = static_cast<size_t>(axis);
    index[a] = rest % sizes[a];
    rest /= sizes[a];
    at += index[a] * steps[a];
  }
  for (int64_t i = 0; i < count; ++i) {
    out[i] = parameter.values[at];
    for (int axis = rank; axis-- > 0;) {
      const auto a = static_cast<size_t>(axis);
      at += steps[a];
      if (++index[a] < sizes[a]) break;
      at -= sizes[a] * steps[a];
      index[a] = 0;
    }
  }
}

std::vector<int64_t> in_order(int rank) {
  std::vector<int64_t> order(rank);
  std::iota(order.begin(), order.end(), 0);
  return order;
}

OnnxTensor parameter_tensor(const OnnxParameter& parameter, const std::vector<int64_t>& order) {
  const bool as_is = order == in_order(parameter.shape.rank());
  OnnxTensor tensor{.name = parameter.name + (as_is ? "" : ".transposed")};
  for (const int64_t axis : order) tensor.dims.push_back(parameter.shape[axis]);
  tensor.fill = [parameter, order](int64_t first, int64_t count, std::byte* out) {
    gather_arranged(parameter, order, first, count, reinterpret_cast<float*>(out));
  };
  return tensor;
}
}  // namespace

OnnxLower find_onnx_lowering(std::string_view op) {
  static const std::map<std::string_view, OnnxLower> table{
      {"argmax",
          [](To& to) {
            to.add("ArgMax", {to.in(0)}, {int_attribute("axis", -1), int_attribute("keepdims", 0)});
          }},
      {"attention", lower_attention},
      {"broadcast",
          [](To& to) {
            to.add("Expand", {to.in(0), to.builder.shape(to.out_shape(0))});
          }},
      {"cast", [](To& to) { to.set(0, to.builder.cast(to.in(0), onnx_element(to.attrs<CastAttrs>().dtype))); }},
      {"concat", lower_concat}, {"conv2d", lower_conv2d}, {"conv_relu_pool", lower_conv_relu_pool},
      {"distance_buckets", lower_distance_buckets},
      {"embedding",
          [](To& to) {
            to.add("Gather", {to.in(0), to.in(1)}, {int_attribute("axis", 0)});
          }},
      {"fill", lower_fill}, {"layer_norm", lower_layer_norm}, {"literal", lower_literal},
      {"mask_scores", lower_mask_scores}, {"matmul", lower_matmul}, {"max_pool", lower_max_pool},
      {"permute", lower_permute}, {"pointwise", lower_pointwise}, {"reduce", lower_reduce},
      {"reshape", [](To& to) { to.set(0, to.builder.reshape(to.in(0), to.in_shape(0), to.out_shape(0))); }},
      {"rope", lower_rope}, {"scale_pixels", lower_scale_pixels},
      {"softmax", [](To& to) { to.add("Softmax", {to.in(0)}, {int_attribute("axis", -1)}); }}, {"split", lower_split},
      {"stop_gradient", [](To& to) { to.set(0, to.in(0)); }}};
  const auto found = table.find(op);
  return found == table.end() ? nullptr : found->second;
}

OnnxElement onnx_element(DType dtype) {
  return dtype == DType::kI32 ? OnnxElement::kInt64 : onnx_element(file_dtype(dtype));
}

OnnxLowering::OnnxLowering(
    OnnxBuilder& builder, std::span<const Graph> traces, const SizeSets& sets, const OnnxForm& form)
    : builder(builder), form(form), traces_(traces), sets_(sets), uses_(count_uses(traces[0])) {
  for (const Graph& trace : traces) check_alike(traces[0], trace);
  std::vector<int64_t> sizes(traces.size());
  for (ValueId id = 0; id < graph().value_count(); ++id) {
    SymbolicShape& shape = shapes_.emplace_back();
    for (int axis = 0; axis < graph().value(id).type.shape.rank(); ++axis) {
      for (size_t i = 0; i < traces.size(); ++i) sizes[i] = traces[i].value(id).type.shape[axis];
      const auto size = fit_size(sizes, sets);
      if (!size) fail_user("ONNX: a tensor's size does not follow from the sizes of the inputs");
      shape.push_back(*size);
    }
  }
}

void OnnxLowering::bind_input(ValueId value) {
  for (const GraphInput& input : graph().inputs()) {
    if (input.value != value) continue;
    const TensorType type = graph().value(value).type;
    builder.input(input.name, onnx_element(type.dtype), shape_of(value));
    names_[value] = input.name;
  }
}

void OnnxLowering::bind_key_mask(ValueId lengths, const std::string& mask) {
  key_masks_[lengths] = mask;
  names_[lengths] = builder.add("Squeeze", {builder.reduce("ReduceSum", mask, {1}), builder.ints({1})});
}

void OnnxLowering::bind_parameter(ValueId value, const OnnxParameter& parameter) {
  parameters_[value] = parameter;
  names_[value] = builder.initializer(parameter_tensor(parameter, in_order(parameter.shape.rank())));
}

void OnnxLowering::run() {
  for (current_ = 0; current_ < graph().node_count(); ++current_) {
    const OnnxLower lower = find_onnx_lowering(node().op->name);
    if (!lower) fail("ONNX has no operator for it");
    sizes_read_ = false;
    lower(*this);
    if (!sizes_read_ && attributes_differ()) fail("an attribute depends on the sizes of the inputs");
  }
}

bool OnnxLowering::attributes_differ() const {
  for (const Graph& trace : traces_)
    if (!(trace.node(current_).attrs == node().attrs)) return true;
  return false;
}

const SymbolicShape& OnnxLowering::out_shape(size_t result) {
  sizes_read_ = true;
  return shape_of(node().out[result]);
}

SymbolicSize OnnxLowering::fit(const std::function<int64_t(const Node&)>& number) {
  sizes_read_ = true;
  std::vector<int64_t> values;
  for (const Graph& trace : traces_) values.push_back(number(trace.node(current_)));
  const auto size = fit_size(values, sets_);
  if (!size) fail("an attribute depends on the sizes of the inputs in no simple way");
  return *size;
}

std::string OnnxLowering::arranged_value(ValueId id, const std::vector<int64_t>& order) {
  const auto found = parameters_.find(id);
  if (found == parameters_.end() || uses_[id] > 1) return builder.transpose(name_of(id), order);
  return builder.initializer(parameter_tensor(found->second, order));
}

std::string OnnxLowering::parameter_rows(
    ValueId id, int part, int64_t first, int64_t count, const std::vector<int64_t>& order) {
  OnnxParameter rows = parameters_.at(id);
  rows.name += "." + std::to_string(part);
  rows.values += first * rows.shape.elements(1, rows.shape.rank());
  rows.shape.set(0, count);
  return builder.initializer(parameter_tensor(rows, order));
}

std::string OnnxLowering::key_mask(size_t operand, const SymbolicSize& keys) {
  const ValueId id = node().in[operand];
  const double lowest = std::numeric_limits<float>::lowest();
  std::string counts;  // 1 where a key counts
  if (const auto found = key_masks_.find(id); found != key_masks_.end()) {
    // The fusion of causal attention needs the cast before the new axes, the other one after.
    const bool cast_first = form.causal_mask_size > 0;
    const std::string mask = cast_first ? builder.cast(found->second, OnnxElement::kFloat) : found->second;
    counts = builder.unsqueeze(builder.unsqueeze(mask, {1}), {2});
    if (!cast_first) counts = builder.cast(counts, OnnxElement::kFloat);
  } else {
    const std::string locations =
        builder.add("Range", {builder.integer(0), builder.size_scalar(keys), builder.integer(1)});
    const std::string within = builder.add("Less", {locations, builder.unsqueeze(in(operand), {1, 2, 3})});
    counts = builder.cast(within, OnnxElement::kFloat);
  }
  return builder.add("Mul", {builder.add("Sub", {builder.number(1), counts}), builder.number(lowest)});
}

void OnnxLowering::fail(const std::string& problem) const {
  fail_user("cannot export ", graph().where_text(current_), " to ONNX: ", problem);
}
}  // namespace linnet
