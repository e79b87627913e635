#include <algorithm>
#include <cmath>
#include "engine/ops/quantized/quantized.h"
#include "onnx/compose.h"

namespace linnet {
namespace {
// Rows of output channels: (code - rest) * scale. `rest`: the part of a zero point that 8-bit codes cannot hold.
struct Weight {
  int64_t rows = 0, columns = 0;
  std::vector<int8_t> codes = {};
  std::vector<float> scales = {};
  double rest = 0;
};

constexpr double kMiddle = 128;  // of 0..255
// Sums stay within 32 bits, also while correcting for a zero point.
constexpr int64_t kMostColumns = PackedShape::kMostColumns / 2;

double at(const std::vector<double>& values, int64_t channel) {
  return values.size() == 1 ? values[0] : values[channel];
}

// A file's weight as a matrix: `channels` is its axis of output channels, at(row, column) an element's location.
struct WeightLayout {
  int64_t rows = 0, columns = 0;
  int channels = 0;
  std::function<int64_t(int64_t row, int64_t column)> at;
};

WeightLayout matrix_layout(const Shape& shape, bool trans_b) {
  WeightLayout layout{shape[trans_b ? 0 : 1], shape[trans_b ? 1 : 0], trans_b ? 0 : 1, {}};
  if (trans_b) layout.at = [n = layout.columns](int64_t row, int64_t column) { return row * n + column; };
  else layout.at = [n = layout.rows](int64_t row, int64_t column) { return column * n + row; };
  return layout;
}

// Filters [O, C, ...] have rows [..., C].
WeightLayout filter_layout(const Shape& shape) {
  const int64_t channels = shape[1], taps = shape.elements(2, shape.rank());
  return {shape[0], channels * taps, 0,
      [=](int64_t row, int64_t column) { return (row * channels + column % channels) * taps + column / channels; }};
}

std::optional<Weight> read_weight(const TracedQuantization& q, const WeightLayout& layout) {
  Weight weight{layout.rows, layout.columns};
  const bool one_each = q.scales.size() == 1 || (q.axis == layout.channels && std::ssize(q.scales) == weight.rows);
  if (!one_each || (q.zeros.size() != 1 && q.zeros.size() != q.scales.size()) || weight.rows == 0 ||
      weight.columns == 0 || weight.columns > kMostColumns)
    return std::nullopt;
  const auto fits = [&](double zero) {
    const std::vector<double> codes = q.codes->values();
    return std::ranges::all_of(codes, [&](double code) { return code - zero >= -128 && code - zero <= 127; });
  };
  const bool is_one = q.zeros.size() == 1;
  if (is_one && !fits(q.zeros[0])) weight.rest = q.zeros[0] - (q.element == OnnxElement::kUint8 ? kMiddle : 0);
  weight.codes.resize(weight.rows * weight.columns);
  for (int64_t row = 0; row < weight.rows; ++row) {
    weight.scales.push_back(static_cast<float>(at(q.scales, row)));
    for (int64_t column = 0; column < weight.columns; ++column) {
      const double code = (*q.codes)[layout.at(row, column)] - (at(q.zeros, row) - weight.rest);
      if (code < -128 || code > 127) return std::nullopt;
      weight.codes[row * weight.columns + column] = static_cast<int8_t>(code);
    }
  }
  return weight;
}

// Codes from -128 to 127 are stored with 128 added.
StaticRounding rounding_of(const TracedQuantization& q) {
  const int shift = q.element == OnnxElement::kInt8 ? 128 : 0;
  return {.scale = static_cast<float>(q.scales[0]), .zero = static_cast<int>(q.zeros[0]) + shift};
}

bool is_activation(const TracedQuantization& q) {
  const bool is_byte = q.element == OnnxElement::kInt8 || q.element == OnnxElement::kUint8;
  if (!is_byte || q.codes || q.scales.size() != 1 || q.zeros.size() != 1) return false;
  const double least = q.element == OnnxElement::kInt8 ? -kMiddle : 0;
  return q.scales[0] > 0 && std::isfinite(q.scales[0]) && q.zeros[0] >= least && q.zeros[0] <= least + 255;
}

// The floats before rounding to bytes, if known.
std::optional<Tensor> source_of(const TracedValue& x) {
  if (!x.quantization || !is_activation(*x.quantization)) return std::nullopt;
  const Tensor source = x.quantization->before.defined() ? x.quantization->before : x.tensor;
  if (!source.defined() || source.type().dtype != DType::kF32) return std::nullopt;
  return source;
}

struct PackedOperand {
  Tensor data;
  PackedShape shape;
};

// The weight as a constant; completes `rounding` for the kernel.
PackedOperand pack(OnnxCall& call, const Weight& weight, StaticRounding& rounding) {
  const PackedShape shape{WeightFormat::kInt8, weight.rows, weight.columns};
  std::vector<std::byte> packed(shape.bytes());
  std::vector<int32_t> sums(weight.rows);
  for (int64_t row = 0; row < weight.rows; ++row) {
    const std::span codes(weight.codes.data() + row * weight.columns, static_cast<size_t>(weight.columns));
    pack_row(shape, row, codes.data(), &weight.scales[row], packed.data());
    rounding.any_weight = rounding.any_weight || !neighbors_fit(codes);
    int32_t& sum = sums[row];
    for (const int8_t code : codes) sum += rounding.zero * code;
  }
  std::memcpy(packed.data() + shape.sums_offset(), sums.data(), sums.size() * sizeof sums[0]);
  return {literal(call.graph(), {DType::kU8, {static_cast<int64_t>(packed.size())}}, packed.data()), shape};
}

// Subtracts `rest` times the sums times each scale.
Tensor without_rest(OnnxCall& call, Tensor y, Tensor sums, std::vector<float> scales, double rest) {
  for (float& scale : scales) scale *= static_cast<float>(rest);
  const Tensor steps = literal(call.graph(), {DType::kF32, {std::ssize(scales)}}, scales.data());
  return elementwise(call, {y, sums, steps}, [](Number y, Number sum, Number step) { return y - sum * step; });
}

// x [..., K], which becomes `rounded`, times the weight.
Tensor product_of(OnnxCall& call, Tensor x, Tensor rounded, const Weight& weight, StaticRounding rounding) {
  const PackedOperand w = pack(call, weight, rounding);
  const Tensor y = matmul(round_activations(x, rounding), dequantize(w.data, w.shape), false, true);
  return weight.rest == 0 ? y : without_rest(call, y, sum_last(rounded), weight.scales, weight.rest);
}

// One more filter, which sums the patch.
void add_sum_of_patch(Weight& filters) {
  ++filters.rows;
  filters.scales.push_back(1);
  filters.codes.insert(filters.codes.end(), static_cast<size_t>(filters.columns), int8_t{1});
}

bool is_product(const WindowAxis& axis) {
  return axis.size == 1 && axis.stride == 1 && axis.before == 0 && axis.after == 0;
}
}  // namespace

std::optional<Tensor> quantized_product(OnnxCall& call, const TracedValue& a, const TracedValue& b, bool trans_b) {
  const std::optional<Tensor> x = source_of(a);
  if (!x || x->shape().rank() < 2 || !b.quantization || !b.quantization->codes) return {};
  const Shape& shape = b.quantization->codes->type().shape;
  if (shape.rank() != 2) return {};
  const std::optional<Weight> weight = read_weight(*b.quantization, matrix_layout(shape, trans_b));
  if (!weight || x->dim(-1) != weight->columns) return {};
  return product_of(call, *x, a.tensor, *weight, rounding_of(*a.quantization));
}

std::optional<Tensor> quantized_convolution(
    OnnxCall& call, const TracedValue& x, const TracedValue& weight, std::vector<WindowAxis> axes) {
  const std::optional<Tensor> source = source_of(x);
  if (!source || !weight.quantization || !weight.quantization->codes) return {};
  const Shape& shape = weight.quantization->codes->type().shape;
  const auto is_padded_backwards = [](const WindowAxis& axis) { return axis.before < 0 || axis.after < 0; };
  if (shape[1] != source->dim(1) || std::ranges::any_of(axes, is_padded_backwards)) return {};
  std::optional<Weight> filters = read_weight(*weight.quantization, filter_layout(shape));
  if (!filters) return {};
  StaticRounding rounding = rounding_of(*x.quantization);
  const Tensor image = compose::channels_last(*source);
  if (std::ranges::all_of(axes, is_product))
    return product_of(call, image, compose::channels_last(x.tensor), *filters, rounding);
  Shape sizes = image.shape();
  if (axes.size() == 1) axes.insert(axes.begin(), WindowAxis{}), sizes = {sizes[0], 1, sizes[1], sizes[2]};
  const std::vector<float> scales = filters->scales;
  if (filters->rest != 0) add_sum_of_patch(*filters);
  const PackedOperand w = pack(call, *filters, rounding);
  Tensor y = quantized_conv2d(reshape(image, sizes), w.data, w.shape, rounding, axes[0], axes[1]);
  if (const int64_t count = std::ssize(scales); filters->rest != 0)
    y = without_rest(call, slice(y, 3, 0, count), slice(y, 3, count, 1), scales, filters->rest);
  return image.shape().rank() == 4 ? y : reshape(y, {y.dim(0), y.dim(2), y.dim(3)});
}
}  // namespace linnet
