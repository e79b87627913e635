#include "onnx/lowering/lowering.h"
#include <bit>
#include <cmath>
#include <limits>
#include "base/fail.h"
#include "engine/ir/op.h"
#include "engine/ops/movement/movement.h"

namespace linnet {
namespace {
void check_alike(const Graph& a, const Graph& b) {
  const auto alike = [&](NodeId id) {
    return a.node(id).op == b.node(id).op && a.node(id).in == b.node(id).in && a.node(id).out == b.node(id).out;
  };
  const NodeId shared = std::min(a.node_count(), b.node_count());
  NodeId same = 0;
  while (same < shared && alike(same)) ++same;
  if (same == a.node_count() && same == b.node_count() && a.value_count() == b.value_count() &&
      a.inputs().size() == b.inputs().size() && a.outputs().size() == b.outputs().size())
    return;
  fail_user("ONNX: the model's computation depends on the sizes of its inputs",
      same < a.node_count() ? ", first in " + a.where_text(same) : "");
}

// Elements [first, first + count) of a dense tensor whose axis i is axis order[i] of `values`.
void gather_arranged(
    const OnnxParameter& parameter, const std::vector<int64_t>& order, int64_t first, int64_t count, float* out) {
  const Shape& sizes = parameter.shape;
  const Shape strides = dense_strides(sizes);
  const int64_t row = order.empty() ? 1 : sizes[order.back()], step = order.empty() ? 1 : strides[order.back()];
  for (int64_t i = 0; i < count;) {
    int64_t at = 0, rest = first + i;
    for (size_t axis = order.size(); axis-- > 0; rest /= sizes[order[axis]])
      at += rest % sizes[order[axis]] * strides[order[axis]];
    const int64_t end = std::min(count, i + row - (first + i) % row);
    for (; i < end; ++i, at += step) out[i] = parameter.values[at];
  }
}

OnnxTensor parameter_tensor(const OnnxParameter& parameter, const std::vector<int64_t>& order) {
  const bool as_is = order == numbers_below<int64_t>(parameter.shape.rank());
  OnnxTensor tensor{.name = parameter.name + (as_is ? "" : ".transposed")};
  for (const int64_t axis : order) tensor.dims.push_back(parameter.shape[axis]);
  tensor.fill = [parameter, order](int64_t first, int64_t count, std::byte* out) {
    gather_arranged(parameter, order, first, count, reinterpret_cast<float*>(out));
  };
  return tensor;
}

std::string attribute_key(const OnnxAttribute& attribute) {
  std::string key = attribute.name + "=" + std::to_string(attribute.type) + ":" + attribute.s + ":" +
                    std::to_string(attribute.i) + ":" + std::to_string(std::bit_cast<uint32_t>(attribute.f));
  for (const int64_t value : attribute.ints) key += "," + std::to_string(value);
  for (const float value : attribute.floats) key += "," + std::to_string(std::bit_cast<uint32_t>(value));
  if (attribute.tensor)
    key.append(reinterpret_cast<const char*>(attribute.tensor->data.data()), attribute.tensor->data.size());
  return key;
}

std::string tensor_key(const OnnxTensor& tensor) {
  std::string key = element_name(tensor.element);
  for (const int64_t dim : tensor.dims) key += "," + std::to_string(dim);
  key += ":";
  key.append(reinterpret_cast<const char*>(tensor.data.data()), tensor.data.size());
  return key;
}

int64_t product_of_sizes(const std::vector<int>& symbols, std::span<const int64_t> sizes) {
  int64_t result = 1;
  for (const int symbol : symbols) result *= sizes[symbol];
  return result;
}

// The terms plus the constant that the first set asks for; empty: another set has another value.
std::optional<SymbolicSize> fit_terms(
    std::vector<SymbolicSize::Term> terms, std::span<const int64_t> values, const SizeSets& sets) {
  SymbolicSize size{.terms = std::move(terms)};
  size.constant = values[0] - size.at(sets[0]);
  for (size_t i = 0; i < values.size(); ++i)
    if (size.at(sets[i]) != values[i]) return std::nullopt;
  return size;
}

// constant + factor * the product, from the first two sets.
std::optional<SymbolicSize> fit_product(
    const std::vector<int>& symbols, std::span<const int64_t> values, const SizeSets& sets) {
  const int64_t run = product_of_sizes(symbols, sets[1]) - product_of_sizes(symbols, sets[0]);
  const int64_t rise = values[1] - values[0];
  if (run == 0 || rise == 0 || rise % run != 0) return std::nullopt;
  return fit_terms({{rise / run, symbols}}, values, sets);
}

// constant + factor * symbol + factor * symbol * symbol, from the first three sets.
std::optional<SymbolicSize> fit_square(int symbol, std::span<const int64_t> values, const SizeSets& sets) {
  if (sets.size() < 4) return std::nullopt;
  const auto x = [&](size_t i) { return static_cast<double>(sets[i][symbol]); };
  const auto rise = [&](size_t i) { return static_cast<double>(values[i] - values[0]) / (x(i) - x(0)); };
  if (x(1) == x(0) || x(2) == x(0) || x(2) == x(1)) return std::nullopt;
  const double square = (rise(2) - rise(1)) / (x(2) - x(1));
  const int64_t once = std::llround(rise(1) - square * (x(0) + x(1)));
  std::vector<SymbolicSize::Term> terms{{std::llround(square), {symbol, symbol}}};
  if (once != 0) terms.insert(terms.begin(), {once, {symbol}});
  return fit_terms(std::move(terms), values, sets);
}

bool is_behind_one(const SymbolicShape& longer, const SymbolicShape& shape) {
  return longer.size() == shape.size() + 1 && longer[0] == SymbolicSize{1} &&
         std::equal(shape.begin(), shape.end(), longer.begin() + 1);
}

// Replaces an output's Identity if the node before it can take the output's name.
void name_outputs(OnnxGraph& graph) {
  std::set<std::string> taken;
  for (const OnnxValueInfo& input : graph.inputs) taken.insert(input.name);
  for (const OnnxTensor& tensor : graph.initializers) taken.insert(tensor.name);
  std::map<std::string, std::string> renamed;
  for (const OnnxNode& node : graph.nodes)
    if (node.op == "Identity" && node.name == node.out[0] && !taken.contains(node.in[0]) &&
        contains(graph.outputs, node.out[0], &OnnxValueInfo::name))
      renamed.emplace(node.in[0], node.out[0]);
  std::erase_if(graph.nodes,
      [&](const OnnxNode& node) { return node.op == "Identity" && find_or(renamed, node.in[0], "") == node.out[0]; });
  for (OnnxNode& node : graph.nodes)
    for (auto* names : {&node.in, &node.out})
      for (std::string& name : *names) name = find_or(renamed, name, name);
}

void remove_unused(OnnxGraph& graph) {
  std::set<std::string> used;
  for (const OnnxValueInfo& output : graph.outputs) used.insert(output.name);
  std::vector<OnnxNode> kept;
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
    if (std::ranges::none_of(node->out, [&](const std::string& name) { return used.contains(name); })) continue;
    used.insert(node->in.begin(), node->in.end());
    kept.push_back(std::move(*node));
  }
  std::ranges::reverse(kept);
  graph.nodes = std::move(kept);
  std::erase_if(graph.initializers, [&](const OnnxTensor& tensor) { return !used.contains(tensor.name); });
}
}  // namespace

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
  const std::string& name = find_item(graph().inputs(), value, &GraphInput::value)->name;
  builder.input(name, onnx_element(graph().value(value).type.dtype), shape_of(value));
  names_[value] = name;
}

void OnnxLowering::bind_key_mask(ValueId lengths, const std::string& mask) {
  key_masks_[lengths] = mask;
  names_[lengths] = builder.add("Squeeze", {builder.reduce("ReduceSum", mask, {1}), builder.ints({1})});
}

void OnnxLowering::bind_parameter(ValueId value, const OnnxParameter& parameter) {
  parameters_[value] = parameter;
  names_[value] = builder.initializer(parameter_tensor(parameter, numbers_below<int64_t>(parameter.shape.rank())));
}

void OnnxLowering::run() {
  for (current_ = 0; current_ < graph().node_count(); ++current_) {
    const OnnxLower lower = find_onnx_lowering(node().op->name);
    if (!lower) fail("Linnet writes no operator of ONNX for it");
    sizes_read_ = false;
    lower(*this);
    if (!sizes_read_ && differs(&Node::attrs)) fail("an attribute depends on the sizes of the inputs");
  }
}

const SymbolicShape& OnnxLowering::out_shape(size_t result) {
  sizes_read_ = true;
  return shape_of(node().out[result]);
}

SymbolicSize OnnxLowering::fit(const std::function<int64_t(const Node&)>& number) {
  sizes_read_ = true;
  const std::vector<int64_t> values = mapped(traces_, [&](const Graph& trace) { return number(trace.node(current_)); });
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

std::string OnnxBuilder::fresh(const std::string& op) { return op + "_" + std::to_string(counts_[op]++); }

std::vector<std::string> OnnxBuilder::add_many(
    const std::string& op, std::vector<std::string> in, size_t results, std::vector<OnnxAttribute> attributes) {
  std::string key = op + "/" + std::to_string(results);
  for (const std::string& name : in) key += "/" + name;
  for (const OnnxAttribute& attribute : attributes) key += "|" + attribute_key(attribute);
  std::vector<std::string>& out = made_[key];
  if (!out.empty()) return out;
  const std::string name = fresh(op);
  for (size_t i = 0; i < results; ++i) out.push_back(results == 1 ? name : name + "." + std::to_string(i));
  graph_.nodes.push_back(
      {.name = name, .op = op, .in = std::move(in), .out = out, .attributes = std::move(attributes)});
  return out;
}

std::string OnnxBuilder::tensor(OnnxTensor tensor) {
  std::string& name = constants_[tensor_key(tensor)];
  if (name.empty()) {
    name = fresh("constant");
    graph_.nodes.push_back(named_node(name, "Constant", {}, {tensor_attribute("value", std::move(tensor))}));
  }
  return name;
}

std::string OnnxBuilder::ints(const std::vector<int64_t>& values) {
  return tensor(int64_tensor({static_cast<int64_t>(values.size())}, values));
}
std::string OnnxBuilder::integer(int64_t value) { return tensor(int64_tensor({}, {value})); }
std::string OnnxBuilder::number(double value) { return tensor(float_tensor({}, {static_cast<float>(value)})); }

// int64 [1], the size of an axis of an input.
std::string OnnxBuilder::symbol(int index) {
  for (const OnnxValueInfo& input : graph_.inputs) {
    const SymbolicShape& shape = input_shapes_[input.name];
    for (size_t axis = 0; axis < shape.size(); ++axis)
      if (shape[axis].as_symbol() == index)
        return add(
            "Gather", {add("Shape", {input.name}), ints({static_cast<int64_t>(axis)})}, {int_attribute("axis", 0)});
  }
  fail_internal("ONNX: no input has an axis of size ", symbols_[index]);
}

std::string OnnxBuilder::size(const SymbolicSize& size) {
  if (size.is_constant()) return ints({size.constant});
  std::string sum;
  for (const SymbolicSize::Term& term : size.terms) {
    std::string part;
    for (const int index : term.symbols) part = part.empty() ? symbol(index) : add("Mul", {part, symbol(index)});
    if (term.factor != 1) part = add("Mul", {part, ints({term.factor})});
    sum = sum.empty() ? part : add("Add", {sum, part});
  }
  return size.constant == 0 ? sum : add("Add", {sum, ints({size.constant})});
}

std::string OnnxBuilder::size_scalar(const SymbolicSize& size) {
  if (size.is_constant()) return integer(size.constant);
  return add("Squeeze", {this->size(size), ints({0})});
}

std::string OnnxBuilder::shape(const SymbolicShape& shape) {
  if (std::ranges::all_of(shape, &SymbolicSize::is_constant)) return ints(mapped(shape, &SymbolicSize::constant));
  const std::vector<std::string> parts = mapped(shape, [&](const SymbolicSize& size) { return this->size(size); });
  return parts.size() == 1 ? parts[0] : add("Concat", parts, {int_attribute("axis", 0)});
}

// Sizes that depend on the input are written as 0 (the same axis of x) and once as -1 (the rest).
std::string OnnxBuilder::reshape(const std::string& x, const SymbolicShape& from, const SymbolicShape& to) {
  if (from == to) return x;
  if (is_behind_one(to, from)) return unsqueeze(x, {0});
  if (is_behind_one(from, to)) return add("Squeeze", {x, ints({0})});
  std::vector<int64_t> sizes;
  int rest = 0;
  for (size_t axis = 0; axis < to.size(); ++axis) {
    const bool same = axis < from.size() && from[axis] == to[axis] && !to[axis].is_constant();
    const bool is_rest = !same && !to[axis].is_constant();
    rest += is_rest;
    sizes.push_back(same ? 0 : is_rest ? -1 : to[axis].constant);
  }
  return add("Reshape", {x, rest > 1 ? shape(to) : ints(sizes)});
}

std::string OnnxBuilder::transpose(const std::string& x, std::vector<int64_t> order) {
  if (std::ranges::is_sorted(order)) return x;
  return add("Transpose", {x}, {ints_attribute("perm", std::move(order))});
}

std::string OnnxBuilder::reduce(const std::string& op, const std::string& x, std::vector<int64_t> axes) {
  if (opset_ >= 18 || (op == "ReduceSum" && opset_ >= 13))
    return add(op, {x, ints(axes)}, {int_attribute("keepdims", 1)});
  return add(op, {x}, {ints_attribute("axes", std::move(axes)), int_attribute("keepdims", 1)});
}

std::string OnnxBuilder::cast(const std::string& x, OnnxElement element) {
  return add("Cast", {x}, {int_attribute("to", static_cast<int64_t>(element))});
}

std::string OnnxBuilder::initializer(OnnxTensor tensor) {
  const std::string name = tensor.name;
  if (initializers_.insert(name).second) graph_.initializers.push_back(std::move(tensor));
  return name;
}

OnnxValueInfo OnnxBuilder::info(const std::string& name, OnnxElement element, const SymbolicShape& shape) const {
  OnnxValueInfo value{.name = name, .element = element, .has_shape = true};
  for (const SymbolicSize& size : shape)
    value.dims.push_back(size.is_constant() ? OnnxDim{size.constant} : OnnxDim{-1, size.text(symbols_)});
  return value;
}

void OnnxBuilder::input(std::string name, OnnxElement element, const SymbolicShape& shape) {
  graph_.inputs.push_back(info(name, element, shape));
  input_shapes_[name] = shape;
}

void OnnxBuilder::output(std::string name, const std::string& value, OnnxElement element, const SymbolicShape& shape) {
  graph_.nodes.push_back(named_node(name, "Identity", {value}));
  graph_.outputs.push_back(info(name, element, shape));
}

OnnxGraph OnnxBuilder::finish(std::string name) {
  graph_.name = std::move(name);
  name_outputs(graph_);
  remove_unused(graph_);
  return std::move(graph_);
}

std::optional<int> SymbolicSize::as_symbol() const {
  if (constant != 0 || terms.size() != 1 || terms[0].factor != 1 || terms[0].symbols.size() != 1) return std::nullopt;
  return terms[0].symbols[0];
}

int64_t SymbolicSize::at(std::span<const int64_t> sizes) const {
  int64_t result = constant;
  for (const Term& term : terms) result += term.factor * product_of_sizes(term.symbols, sizes);
  return result;
}

std::string SymbolicSize::text(std::span<const std::string> names) const {
  std::string text;
  for (const Term& term : terms) {
    text += text.empty() ? (term.factor < 0 ? "-" : "") : (term.factor < 0 ? " - " : " + ");
    const int64_t size = term.factor < 0 ? -term.factor : term.factor;
    if (size != 1) text += std::to_string(size) + "*";
    for (size_t i = 0; i < term.symbols.size(); ++i) text += (i ? "*" : "") + names[term.symbols[i]];
  }
  if (constant != 0 || text.empty())
    text += text.empty() ? std::to_string(constant)
                         : (constant < 0 ? " - " : " + ") + std::to_string(constant < 0 ? -constant : constant);
  return text;
}

SymbolicSize operator+(SymbolicSize a, const SymbolicSize& b) {
  a.constant += b.constant;
  for (const SymbolicSize::Term& term : b.terms) {
    SymbolicSize::Term* same = find_item(a.terms, term.symbols, &SymbolicSize::Term::symbols);
    if (same) same->factor += term.factor;
    else a.terms.push_back(term);
  }
  std::erase_if(a.terms, [](const SymbolicSize::Term& term) { return term.factor == 0; });
  return a;
}

std::optional<SymbolicSize> fit_size(std::span<const int64_t> values, const SizeSets& sets) {
  const auto all_equal = std::ranges::adjacent_find(values, std::not_equal_to<>()) == values.end();
  if (all_equal) return SymbolicSize{values[0]};
  const int count = static_cast<int>(sets[0].size());
  for (int a = 0; a < count; ++a)
    if (const auto size = fit_product({a}, values, sets)) return size;
  for (int a = 0; a < count; ++a)
    for (int b = 0; b < count; ++b) {
      if (a < b)
        if (const auto size = fit_product({a, b}, values, sets)) return size;
      if (a == b) continue;
      for (const int64_t first : {1, 2})
        for (const int64_t second : {1, -1})
          if (const auto size = fit_terms({{first, {a}}, {second, {b}}}, values, sets)) return size;
    }
  for (int a = 0; a < count; ++a)
    if (const auto size = fit_square(a, values, sets)) return size;
  return std::nullopt;
}
}  // namespace linnet
