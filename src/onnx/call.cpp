#include "onnx/call.h"
#include <algorithm>
#include <cmath>
#include <limits>
#include "engine/ir/op.h"
#include "engine/ops/movement/movement.h"
#include "onnx/compose.h"

namespace linnet {
namespace {
std::string_view name_of(const OnnxOperatorRow& row) { return row.name; }

std::vector<int64_t> whole_numbers(const HostTensor& tensor) {
  return mapped(tensor.values(), [](double value) {
    constexpr double kLimit = 9223372036854775807.0;  // 2^63 as a double
    return value >= kLimit    ? std::numeric_limits<int64_t>::max()
           : value <= -kLimit ? std::numeric_limits<int64_t>::min()
                              : static_cast<int64_t>(std::isnan(value) ? 0 : value);
  });
}

template <class T> T value_or(const OnnxAttribute* attribute, T OnnxAttribute::*value, const T& otherwise = {}) {
  return attribute ? attribute->*value : otherwise;
}
}  // namespace

const TracedValue& OnnxCall::in(size_t i) const {
  if (!has(i)) fail("operand " + std::to_string(i) + " is missing");
  return in_[i];
}

Tensor OnnxCall::tensor(size_t i) { return tensor(i, traced_dtype(element(i))); }

Tensor OnnxCall::tensor(size_t i, DType dtype) {
  const TracedValue& value = in(i);
  if (!value.tensor.defined() && dtype == DType::kF32 && is_whole(value.element))
    return values(value.shape(), value.known->values(), dtype);
  if (!value.tensor.defined()) return cast(constant(value), dtype);
  return cast(value.tensor, dtype);
}

std::vector<double> OnnxCall::numbers(size_t i) const {
  const TracedValue& value = in(i);
  if (value.known) return value.known->values();
  if (value.initial) return read_host_tensor(*value.initial).values();
  fail("operand " + std::to_string(i) + " (\"" + node_.in[i] + "\") must be known before the network runs");
}

std::vector<int64_t> OnnxCall::ints(size_t i) const {
  if (in(i).known) return whole_numbers(*in(i).known);
  numbers(i);
  fail("operand " + std::to_string(i) + " must be whole numbers");
}

double OnnxCall::number(size_t i, double otherwise) const {
  if (!has(i)) return otherwise;
  const std::vector<double> values = numbers(i);
  if (values.size() != 1) fail("operand " + std::to_string(i) + " must be one number");
  return values[0];
}

const OnnxAttribute* OnnxCall::find(const char* name) const {
  asked_.insert(name);
  return node_.find(name);
}

void OnnxCall::check_attributes() const {
  // Attributes without effect: hints, those for training or refused types alone, and broadcasting flags before opset 7.
  static const std::set<std::string> harmless{"broadcast", "consumed_inputs", "is_test", "kernel_shape", "momentum",
      "ratio", "round_mode", "saturate", "seed", "spatial", "stash_type", "storage_order"};
  for (const OnnxAttribute& attribute : node_.attributes)
    if (!asked_.contains(attribute.name) && !harmless.contains(attribute.name))
      fail("attribute \"" + attribute.name + "\" is not supported");
}

int64_t OnnxCall::integer(const char* name, int64_t otherwise) const {
  return value_or(find(name), &OnnxAttribute::i, otherwise);
}
double OnnxCall::real(const char* name, double otherwise) const {
  const OnnxAttribute* attribute = find(name);
  return attribute ? static_cast<double>(attribute->f) : otherwise;
}
std::string OnnxCall::text(const char* name, const std::string& otherwise) const {
  return value_or(find(name), &OnnxAttribute::s, otherwise);
}
std::vector<int64_t> OnnxCall::list(const char* name, const std::vector<int64_t>& otherwise) const {
  return value_or(find(name), &OnnxAttribute::ints, otherwise);
}
std::vector<float> OnnxCall::reals(const char* name) const { return value_or(find(name), &OnnxAttribute::floats); }
std::vector<std::string> OnnxCall::texts(const char* name) const {
  return value_or(find(name), &OnnxAttribute::strings);
}
const OnnxTensor* OnnxCall::tensor_attribute(const char* name) const {
  const OnnxAttribute* attribute = find(name);
  return attribute ? attribute->tensor.get() : nullptr;
}

int OnnxCall::axis(int64_t axis, int rank) const {
  if (axis < -rank || axis >= rank)
    fail("axis " + std::to_string(axis) + " of a tensor of " + std::to_string(rank) + " axes");
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

// Results in bfloat16 are rounded to it; those in float16 are not.
void OnnxCall::set(size_t i, Tensor tensor, OnnxElement element) {
  if (i >= out_.size()) return;
  tensor = cast(tensor, traced_dtype(element));
  if (element == OnnxElement::kBFloat16) tensor = cast(cast(tensor, DType::kBF16), DType::kF32);
  out_[i] = {.element = element, .tensor = tensor};
}

Tensor OnnxCall::constant(const TracedValue& value) {
  const HostTensor& host = *value.known;
  const std::vector<double> numbers = host.values();
  const bool is_uniform = !numbers.empty() && std::ranges::all_of(numbers, [&](double x) {
    return x == numbers[0] && std::signbit(x) == std::signbit(numbers[0]);
  });
  if (is_uniform) return uniform(numbers[0], host.type().shape, host.type().dtype);
  return literal(graph_, host.type(), host.data());
}

Tensor OnnxCall::values(const Shape& shape, const std::vector<double>& values, DType dtype) {
  return constant(known_numbers(dtype == DType::kF64 ? OnnxElement::kDouble : OnnxElement::kFloat, shape, values));
}

Tensor OnnxCall::locations(int64_t count, DType dtype) { return values({count}, numbers_below<double>(count), dtype); }

Tensor OnnxCall::uniform(double value, const Shape& shape, DType dtype) {
  return ::linnet::fill(graph_, {dtype, shape}, value);
}

bool is_float(OnnxElement element) {
  const auto dtype = element_dtype(element);
  return dtype && is_float(*dtype);
}

bool is_whole(OnnxElement element) { return !is_float(element) && element != OnnxElement::kBool; }

bool is_signed(OnnxElement element) {
  return element == OnnxElement::kInt8 || element == OnnxElement::kInt16 || element == OnnxElement::kInt32 ||
         element == OnnxElement::kInt64;
}

DType traced_dtype(OnnxElement element) {
  return element == OnnxElement::kDouble || is_whole(element) ? DType::kF64 : DType::kF32;
}

HostTensor read_host_tensor(const OnnxTensor& tensor) {
  const auto from = element_dtype(tensor.element);
  if (!from)
    fail_user("tensor \"", tensor.name, "\" holds ", element_name(tensor.element), ", which has no numbers here");
  if (tensor.dims.size() > kMaxRank)
    fail_user("tensor \"", tensor.name, "\" has ", tensor.dims.size(), " axes; ", kMaxRank, " are possible");
  HostTensor host({traced_dtype(tensor.element), Shape(std::span<const int64_t>(tensor.dims))});
  const int64_t count = tensor.elements();
  if (is_float(*from) && *from != FileDType::kF64) {
    read_floats(*from, tensor.data.data(), count, host.as<float>().data());
  } else if (*from == FileDType::kF64) {
    if (count > 0) std::memcpy(host.data(), tensor.data.data(), tensor.data.size());
  } else {
    std::vector<int64_t> values(count);
    read_integers(*from, tensor.data.data(), count, values.data());
    for (size_t i = 0; i < values.size(); ++i) {
      if (tensor.element == OnnxElement::kBool) host.as<float>()[i] = values[i] != 0 ? 1.0F : 0.0F;
      else host.as<double>()[i] = static_cast<double>(values[i]);
    }
  }
  return host;
}

TracedValue known_numbers(OnnxElement element, const Shape& shape, const std::vector<double>& values) {
  if (!element_dtype(element)) fail_user("there are no numbers of ", element_name(element), " here");
  auto host = std::make_shared<HostTensor>(TensorType{traced_dtype(element), shape});
  for (size_t i = 0; i < values.size(); ++i) {
    if (host->type().dtype == DType::kF32) host->as<float>()[i] = static_cast<float>(values[i]);
    else host->as<double>()[i] = values[i];
  }
  return {.element = element, .known = std::move(host)};
}

TracedValue known_whole(int64_t value) { return known_numbers(OnnxElement::kInt64, {}, {static_cast<double>(value)}); }

TracedValue known_vector(const std::vector<int64_t>& values) {
  return known_numbers(OnnxElement::kInt64, {static_cast<int64_t>(values.size())}, {values.begin(), values.end()});
}

const std::vector<OnnxOperatorRow>& onnx_operators() {
  static const std::vector<OnnxOperatorRow> rows = [] {
    std::vector<OnnxOperatorRow> all;
    for (const auto& part :
        {attention_operators, elementwise_operators, image_operators, index_operators, known_operators,
            matrix_operators, norm_operators, quantized_operators, recurrent_operators, shape_operators})
      std::ranges::move(part(), std::back_inserter(all));
    std::ranges::sort(all, {}, name_of);
    return all;
  }();
  return rows;
}

const OnnxOperatorRow* find_onnx_operator(const std::string& name) {
  const auto& rows = onnx_operators();
  const auto found = std::ranges::lower_bound(rows, std::string_view(name), {}, name_of);
  return found != rows.end() && found->name == name ? &*found : nullptr;
}
}  // namespace linnet
