#include "onnx/quantized_product.h"

#include <algorithm>
#include <cmath>

#include "onnx/compose.h"
#include "ops/literal/literal.h"
#include "ops/matmul/matmul.h"
#include "ops/quantized/quantized.h"

namespace linnet {
namespace {

// A weight as rows of output channels: (code - rest) * scale, where `rest` is what of a zero point the 8 bits of the
// codes have no room for.
struct Weight {
  int64_t rows = 0, columns = 0;
  std::vector<int8_t> codes = {};
  std::vector<float> scales = {};
  double rest = 0;
};

constexpr double kMiddle = 128;  // of 0..255
// Sums stay within 32 bits, also while a zero point's part of them is taken away.
constexpr int64_t kMostColumns = PackedShape::kMostColumns / 2;

double at(const std::vector<double>& values, int64_t channel) {
  return values.size() == 1 ? values[0] : values[static_cast<size_t>(channel)];
}

std::optional<Weight> read_weight(const TracedQuantization& q, bool trans_b) {
  const Shape& shape = q.codes->type().shape;
  if (shape.rank() != 2) return std::nullopt;
  const int channels = trans_b ? 0 : 1;
  Weight weight{shape[channels], shape[1 - channels]};
  const bool one_each = q.scales.size() == 1 || (q.axis == channels && std::ssize(q.scales) == weight.rows);
  if (!one_each || (q.zeros.size() != 1 && q.zeros.size() != q.scales.size()) || weight.rows == 0 ||
      weight.columns == 0 || weight.columns > kMostColumns)
    return std::nullopt;
  const auto fits = [&](double zero) {
    const std::vector<double> codes = q.codes->values();
    return std::ranges::all_of(codes, [&](double code) { return code - zero >= -128 && code - zero <= 127; });
  };
  const bool is_one = q.zeros.size() == 1;
  if (is_one && !fits(q.zeros[0])) weight.rest = q.zeros[0] - (q.element == OnnxElement::kUint8 ? kMiddle : 0);
  weight.codes.resize(static_cast<size_t>(weight.rows * weight.columns));
  for (int64_t row = 0; row < weight.rows; ++row) {
    weight.scales.push_back(static_cast<float>(at(q.scales, row)));
    for (int64_t column = 0; column < weight.columns; ++column) {
      const double code = (*q.codes)[trans_b ? row * weight.columns + column : column * weight.rows + row] -
                          (at(q.zeros, row) - weight.rest);
      if (code < -128 || code > 127) return std::nullopt;
      weight.codes[static_cast<size_t>(row * weight.columns + column)] = static_cast<int8_t>(code);
    }
  }
  return weight;
}

// Codes of -128..127 are stored with 128 added.
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

}  // namespace

std::optional<Tensor> quantized_product(OnnxCall& call, const TracedValue& a, const TracedValue& b, bool trans_b) {
  if (!a.quantization || !b.quantization || !is_activation(*a.quantization) || !b.quantization->codes) return {};
  const Tensor x = a.quantization->before.defined() ? a.quantization->before : a.tensor;
  if (!x.defined() || x.shape().rank() < 2 || x.type().dtype != DType::kF32) return {};
  const std::optional<Weight> weight = read_weight(*b.quantization, trans_b);
  if (!weight || x.dim(-1) != weight->columns) return {};
  StaticRounding rounding = rounding_of(*a.quantization);
  const PackedShape shape{WeightFormat::kInt8, weight->rows, weight->columns};
  std::vector<std::byte> packed(shape.bytes());
  std::vector<int32_t> sums(static_cast<size_t>(weight->rows));
  for (int64_t row = 0; row < weight->rows; ++row) {
    const std::span codes(weight->codes.data() + row * weight->columns, static_cast<size_t>(weight->columns));
    pack_row(shape, row, codes.data(), &weight->scales[static_cast<size_t>(row)], packed.data());
    rounding.any_weight = rounding.any_weight || !neighbors_fit(codes);
    int32_t& sum = sums[static_cast<size_t>(row)];
    for (const int8_t code : codes) sum += rounding.zero * code;
  }
  std::memcpy(packed.data() + shape.sums_offset(), sums.data(), sums.size() * sizeof sums[0]);
  const Tensor data = literal(call.graph(), {DType::kU8, {static_cast<int64_t>(packed.size())}}, packed.data());
  const Tensor rounded = round_activations(x, rounding);
  const Tensor y = matmul(rounded, dequantize(data, shape), false, true);
  if (weight->rest == 0) return y;
  std::vector<float> rests = weight->scales;
  for (float& rest : rests) rest *= static_cast<float>(weight->rest);
  const Tensor steps = literal(call.graph(), {DType::kF32, {weight->rows}}, rests.data());
  return compose::elementwise(call, {y, compose::sum_last(rounded), steps},
                              [](compose::E& e, const std::vector<compose::Ref>& v) {
                                return e.apply(Scalar::kSub, v[0], e.apply(Scalar::kMul, v[1], v[2]));
                              });
}

}  // namespace linnet
