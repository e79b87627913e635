// Operators on operands that are known, so that the result, or its shape, is computed while tracing.
#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include "onnx/compose.h"

namespace linnet {
namespace {
int bits_of(const OnnxCall& call) {
  const auto dtype = element_dtype(call.element());
  if (!dtype || is_float(*dtype)) call.fail("of ", element_name(call.element()));
  return static_cast<int>(8 * file_dtype_size(*dtype));
}

// 64-bit numbers are exact up to 2^53.
uint64_t as_bits(const OnnxCall& call, double value) {
  if (std::abs(value) > 9007199254740992.0) call.fail("of a number beyond 2^53");
  return static_cast<uint64_t>(static_cast<int64_t>(value));
}

double as_number(const OnnxCall& call, uint64_t bits) {
  const int size = bits_of(call);
  if (size < 64) bits &= (uint64_t{1} << size) - 1;
  const bool has_sign = is_signed(call.element());
  if (has_sign && size < 64 && (bits >> (size - 1)) != 0) bits |= ~((uint64_t{1} << size) - 1);
  const double number = has_sign ? static_cast<double>(static_cast<int64_t>(bits)) : static_cast<double>(bits);
  if (std::abs(number) > 9007199254740992.0) call.fail("a result beyond 2^53");
  return number;
}

template <class Function> void bitwise(OnnxCall& call, const Function& function) {
  const Shape shape = compose::broadcast_shape(call, {call.shape(0), call.shape(1)});
  const std::vector<double> a = call.numbers(0), b = call.numbers(1);
  const auto location = [&](int64_t i, const Shape& of) {
    int64_t at = 0, step = 1;
    for (int axis = 1; axis <= of.rank(); ++axis) {
      const int64_t size = shape[-axis];
      if (of[-axis] != 1) at += i % size * step;
      step *= of[-axis], i /= size;
    }
    return static_cast<size_t>(at);
  };
  std::vector<double> results;
  for (int64_t i = 0; i < shape.elements(); ++i)
    results.push_back(as_number(
        call, function(as_bits(call, a[location(i, call.shape(0))]), as_bits(call, b[location(i, call.shape(1))]))));
  call.set(0, known_numbers(call.element(), shape, results));
}

void bitwise_not(OnnxCall& call) {
  const auto flipped = [&](double x) { return as_number(call, ~as_bits(call, x)); };
  call.set(0, known_numbers(call.element(), call.shape(), mapped(call.numbers(0), flipped)));
}

// Arithmetic for 8, 16 or 32 bits.
void shift_unsigned(OnnxCall& call) {
  const double range = std::ldexp(1.0, bits_of(call));
  const bool left = call.text("direction", "") == "LEFT";
  call.set(elementwise(call, {call.tensor(0), call.tensor(1)}, [=](Number x, Number count) {
    const Number power = pow(2, count);
    if (!left) return floor(x / power);
    const Number shifted = x * power;
    return shifted - floor(shifted * (1 / range)) * range;
  }));
}

// A shift beyond the number's bits, or a negative one, leaves its sign.
void bit_shift(OnnxCall& call) {
  const OnnxElement element = call.element();
  if (element == OnnxElement::kUint8 || element == OnnxElement::kUint16 || element == OnnxElement::kUint32)
    return shift_unsigned(call);
  const bool left = call.text("direction", "") == "LEFT";
  const int size = bits_of(call);
  bitwise(call, [=](uint64_t a, uint64_t b) {
    const auto number = static_cast<int64_t>(a);
    if (b >= static_cast<uint64_t>(size)) return !left && number < 0 ? ~uint64_t{0} : uint64_t{0};
    return left ? a << b : static_cast<uint64_t>(number >> b);
  });
}

void compress(OnnxCall& call) {
  Tensor x = call.tensor(0);
  int axis = 0;
  if (call.has_attribute("axis")) axis = call.axis_of(0);
  else x = reshape(x, {x.shape().elements()});
  const std::vector<double> condition = call.numbers(1);
  std::vector<int64_t> taken;
  for (size_t i = 0; i < condition.size() && static_cast<int64_t>(i) < x.dim(axis); ++i)
    if (condition[i] != 0) taken.push_back(static_cast<int64_t>(i));
  call.set(compose::take(x, axis, taken));
}

void non_zero(OnnxCall& call) {
  const Shape shape = call.shape();
  const std::vector<double> x = call.numbers(0);
  std::vector<int64_t> found;
  for (size_t i = 0; i < x.size(); ++i)
    if (x[i] != 0) found.push_back(static_cast<int64_t>(i));
  std::vector<double> places;
  for (int axis = 0; axis < shape.rank(); ++axis)
    for (const int64_t at : found)
      places.push_back(static_cast<double>(at / shape.elements(axis + 1, shape.rank()) % shape[axis]));
  call.set(0, known_numbers(OnnxElement::kInt64, {shape.rank(), static_cast<int64_t>(found.size())}, places));
}

// The distinct slices along an axis, or distinct elements: in their order or sorted.
void unique(OnnxCall& call) {
  const std::vector<double> x = call.numbers(0);
  const bool whole = !call.has_attribute("axis");
  const Shape shape = whole ? Shape{call.shape().elements()} : call.shape();
  const int axis = whole ? 0 : call.axis_of(0);
  const int64_t size = shape[axis], inner = shape.elements(axis + 1, shape.rank()), outer = shape.elements(0, axis);
  const auto element = [&](int64_t o, int64_t i, int64_t t) { return x[(o * size + i) * inner + t]; };
  std::vector<std::vector<double>> slices;
  for (int64_t i = 0; i < size; ++i) {
    slices.emplace_back();
    for (int64_t o = 0; o < outer; ++o)
      for (int64_t t = 0; t < inner; ++t) slices.back().push_back(element(o, i, t));
  }
  const auto less = [](const auto& a, const auto& b) {  // NaNs are equal, and greater than numbers
    return std::ranges::lexicographical_compare(
        a, b, [](double x, double y) { return x < y || (std::isnan(y) && !std::isnan(x)); });
  };
  std::map<std::vector<double>, int64_t, decltype(less)> number(less);  // of the first occurrence, then of the result
  for (int64_t i = size - 1; i >= 0; --i) number[slices[i]] = i;
  std::vector<int64_t> order = mapped(number, [](const auto& slice) { return slice.second; });
  if (call.integer("sorted", 1) == 0) std::ranges::sort(order);
  for (size_t i = 0; i < order.size(); ++i) number[slices[order[i]]] = static_cast<int64_t>(i);
  std::vector<int64_t> inverse, counts(order.size());
  for (const auto& slice : slices) {
    inverse.push_back(number[slice]);
    ++counts[inverse.back()];
  }
  std::vector<double> values;
  for (int64_t o = 0; o < outer; ++o)
    for (const int64_t at : order)
      for (int64_t t = 0; t < inner; ++t) values.push_back(element(o, at, t));
  call.set(0, known_numbers(call.element(), with_size(shape, axis, std::ssize(order)), values));
  const auto set_vector = [&](size_t i, const std::vector<int64_t>& numbers) {
    if (call.is_wanted(i)) call.set(i, known_vector(numbers));
  };
  set_vector(1, order), set_vector(2, inverse), set_vector(3, counts);
}

// Reverses the first elements of each sequence.
void reverse_sequence(OnnxCall& call) {
  const Tensor x = call.tensor(0);
  const int time = call.axis(call.integer("time_axis", 0), x.shape().rank()),
            batch = call.axis(call.integer("batch_axis", 1), x.shape().rank());
  const std::vector<int64_t> lengths = call.ints(1);
  if (static_cast<int64_t>(lengths.size()) != x.dim(batch)) call.fail("a length for each sequence is needed");
  const std::vector<Tensor> rows = mapped(x.dim(batch), [&](int64_t row) {
    const int64_t length = lengths[row];
    if (length < 0 || length > x.dim(time)) call.fail("a length beyond the sequence's");
    std::vector<int64_t> order = numbers_below<int64_t>(x.dim(time));
    std::reverse(order.begin(), order.begin() + length);
    return compose::take(slice(x, batch, row, 1), time, order);
  });
  call.set(rows.empty() ? x : compose::join(rows, batch));
}

void center_crop_pad(OnnxCall& call) {
  Tensor x = call.tensor(0);
  const std::vector<int64_t> sizes = call.ints(1);
  std::vector<int64_t> axes = call.list("axes");
  if (axes.empty()) axes = numbers_below<int64_t>(x.shape().rank());
  if (axes.size() != sizes.size()) call.fail("as many sizes as axes are needed");
  for (size_t i = 0; i < axes.size(); ++i) {
    const int axis = call.axis(axes[i], x.shape().rank());
    const int64_t size = x.dim(axis), wanted = sizes[i];
    if (wanted < size) x = slice(x, axis, (size - wanted) / 2, wanted);
    if (wanted > size) x = compose::pad(x, axis, (wanted - size) / 2, wanted - size - (wanted - size) / 2, 0);
  }
  call.set(x);
}

// Cumulative products, in log2(size) steps.
void cumulative_product(OnnxCall& call) {
  const int axis = call.axis(static_cast<int64_t>(call.number(1, 0)), call.shape().rank());
  const bool exclusive = call.flag("exclusive"), reverse = call.flag("reverse");
  Tensor x = call.tensor(0);
  const int64_t size = x.dim(axis);
  const auto shifted = [&](Tensor values, int64_t by) {
    return reverse ? compose::pad(values, axis, -by, by, 1) : compose::pad(values, axis, by, -by, 1);
  };
  if (exclusive && size > 0) x = shifted(x, 1);
  for (int64_t step = 1; step < size; step *= 2) x = x * shifted(x, step);
  call.set(x);
}

// Signal windows: a0 - a1 cos(2 pi i / n) + a2 cos(4 pi i / n).

void window(OnnxCall& call, double a0, double a1, double a2) {
  const auto size = static_cast<int64_t>(call.number(0, 0));
  constexpr int64_t kMost = 1 << 24;
  if (size < 0 || size > kMost) call.fail("of ", size, " elements");
  const bool periodic = call.flag("periodic", true);
  const auto element = static_cast<OnnxElement>(call.integer("output_datatype", 1));
  const double n = periodic ? static_cast<double>(size) : static_cast<double>(size - 1);
  const std::vector<double> values = mapped(size, [&](int64_t i) {
    const double angle = 2 * std::numbers::pi * static_cast<double>(i) / n;
    return a0 - a1 * std::cos(angle) + a2 * std::cos(2 * angle);
  });
  call.set(0, known_numbers(element, {size}, values));
}
}  // namespace

OnnxOperatorRows known_operators() {
  return {
      {"BitShift", bit_shift, "signed numbers and those of 64 bits must be known"},
      {"BitwiseAnd", [](OnnxCall& call) { bitwise(call, std::bit_and<uint64_t>()); }, "operands must be known"},
      {"BitwiseNot", bitwise_not, "operands must be known"},
      {"BitwiseOr", [](OnnxCall& call) { bitwise(call, std::bit_or<uint64_t>()); }, "operands must be known"},
      {"BitwiseXor", [](OnnxCall& call) { bitwise(call, std::bit_xor<uint64_t>()); }, "operands must be known"},
      {"BlackmanWindow", [](OnnxCall& call) { window(call, 0.42, 0.5, 0.08); }, "the size must be known"},
      {"CenterCropPad", center_crop_pad, "the shape must be known"},
      {"Compress", compress, "the condition must be known"},
      {"If", nullptr, "both branches are computed where the condition is not known"},
      {"Loop", nullptr, "the number of rounds must be known, at most 4096; what is stacked, too"},
      {"Scan", nullptr, "from opset 9 on; at most 4096 parts"},
      {"CumProd", cumulative_product, "the axis must be known"},
      {"HammingWindow", [](OnnxCall& call) { window(call, 25.0 / 46, 21.0 / 46, 0); }, "the size must be known"},
      {"HannWindow", [](OnnxCall& call) { window(call, 0.5, 0.5, 0); }, "the size must be known"},
      {"NonZero", non_zero, "the operand must be known"},
      {"ReverseSequence", reverse_sequence, "lengths must be known"},
      {"Unique", unique, "the operand must be known"},
  };
}
}  // namespace linnet
