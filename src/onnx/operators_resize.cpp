// Resizing of images: each axis is a product with a matrix of weights [in, out].
#include <algorithm>
#include <cmath>
#include "onnx/operators.h"

namespace linnet {
namespace {
struct Sampling {
  std::string mode, locations, nearest;
  double cubic;
  bool exclude_outside, antialias;
  double roi_start = 0, roi_end = 1, outside = 0;
};

double source_location(const OnnxCall& call, const Sampling& s, int64_t i, int64_t in, int64_t out, double scale) {
  const auto x = static_cast<double>(i);
  const auto length = static_cast<double>(in), count = static_cast<double>(out);
  if (s.locations == "half_pixel") return (x + 0.5) / scale - 0.5;
  if (s.locations == "asymmetric") return x / scale;
  if (s.locations == "pytorch_half_pixel") return out > 1 ? (x + 0.5) / scale - 0.5 : 0;
  if (s.locations == "align_corners") return out > 1 ? x * (length - 1) / (length * scale - 1) : 0;
  if (s.locations == "half_pixel_symmetric") {
    const double adjustment = count / (scale * length), center = length / 2;
    return center * (1 - adjustment) + (x + 0.5) / scale - 0.5;
  }
  if (s.locations == "tf_crop_and_resize") {
    if (out > 1) return s.roi_start * (length - 1) + x * (s.roi_end - s.roi_start) * (length - 1) / (count - 1);
    return 0.5 * (s.roi_start + s.roi_end) * (length - 1);
  }
  call.fail("coordinate_transformation_mode \"", s.locations, "\"");
}

double nearest_place(const OnnxCall& call, const Sampling& s, double location) {
  if (s.nearest == "round_prefer_floor") return std::ceil(location - 0.5);
  if (s.nearest == "round_prefer_ceil") return std::floor(location + 0.5);
  if (s.nearest == "floor") return std::floor(location);
  if (s.nearest == "ceil") return std::ceil(location);
  call.fail("nearest_mode \"", s.nearest, "\"");
}

double filter_weight(const Sampling& s, double distance) {
  const double d = std::abs(distance);
  if (s.mode == "linear") return std::max(0.0, 1 - d);
  const double a = s.cubic;
  if (d <= 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
  if (d < 2) return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a;
  return 0;
}

// [in, out], row-major.
std::vector<double> sampling_matrix(
    const OnnxCall& call, const Sampling& s, int64_t in, int64_t out, double scale, std::vector<bool>& outside) {
  std::vector<double> matrix(in * out, 0.0);
  const double stretch = s.antialias && scale < 1 ? scale : 1;
  const double reach = (s.mode == "cubic" ? 2 : 1) / stretch;
  for (int64_t i = 0; i < out; ++i) {
    const double location = source_location(call, s, i, in, out, scale);
    if (s.locations == "tf_crop_and_resize" && (location < 0 || location > static_cast<double>(in - 1))) {
      outside[i] = true;
      continue;
    }
    const auto add = [&](double from, double weight) {
      const int64_t at = std::clamp<int64_t>(static_cast<int64_t>(from), 0, in - 1);
      matrix[at * out + i] += weight;
    };
    if (s.mode == "nearest") {
      add(nearest_place(call, s, location), 1);
      continue;
    }
    std::vector<std::pair<double, double>> taps;
    double total = 0;
    for (double from = std::floor(location - reach) + 1; from < location + reach + 1e-9; ++from) {
      double weight = filter_weight(s, (from - location) * stretch);
      if (s.exclude_outside && (from < 0 || from >= static_cast<double>(in))) weight = 0;
      taps.emplace_back(from, weight);
      total += weight;
    }
    for (const auto& [from, weight] : taps) add(from, s.exclude_outside || s.antialias ? weight / total : weight);
  }
  return matrix;
}

// Whether the matrix repeats each element out / in times.
bool repeats_each(const std::vector<double>& matrix, int64_t in, int64_t out) {
  if (out % in != 0) return false;
  for (int64_t from = 0; from < in; ++from)
    for (int64_t to = 0; to < out; ++to)
      if (matrix[from * out + to] != (to / (out / in) == from ? 1 : 0)) return false;
  return true;
}

void resize(OnnxCall& call) {
  const Shape s = call.shape();
  const bool old = call.opset() < 11 || call.node().op == "Upsample";
  const size_t scales_at = old ? 1 : 2;
  Sampling sampling{.mode = call.text("mode", "nearest"),
      .locations = old ? "asymmetric" : call.text("coordinate_transformation_mode", "half_pixel"),
      .nearest = old ? "floor" : call.text("nearest_mode", "round_prefer_floor"),
      .cubic = call.real("cubic_coeff_a", -0.75),
      .exclude_outside = call.flag("exclude_outside"),
      .antialias = call.flag("antialias"),
      .outside = call.real("extrapolation_value", 0)};
  if (sampling.mode == "bilinear") sampling.mode = "linear";
  if (sampling.mode != "nearest" && sampling.mode != "linear" && sampling.mode != "cubic")
    call.fail("mode \"", sampling.mode, "\"");
  std::vector<double> scales, sizes;
  if (call.has(scales_at)) scales = call.numbers(scales_at);
  if (old && call.node().find("scales"))
    for (const float scale : call.reals("scales")) scales.push_back(scale);
  if (!old && call.has(3)) sizes = call.numbers(3);
  std::vector<int64_t> axes = call.list("axes");
  if (axes.empty()) axes = compose::all_axes(s.rank());
  const size_t count = axes.size();
  if (scales.size() != count && sizes.size() != count) call.fail("scales or sizes for another number of axes");
  std::vector<double> roi;
  if (!old && sampling.locations == "tf_crop_and_resize") roi = call.numbers(1);
  if (!roi.empty() && roi.size() != 2 * count) call.fail("a region for another number of axes");
  const std::string policy = call.text("keep_aspect_ratio_policy", "stretch");
  if (policy != "stretch" && !sizes.empty()) {
    double common = policy == "not_larger" ? 1e300 : 0;
    for (size_t i = 0; i < count; ++i) {
      const double scale = sizes[i] / static_cast<double>(s[call.axis(axes[i], s.rank())]);
      common = policy == "not_larger" ? std::min(common, scale) : std::max(common, scale);
    }
    scales.assign(count, common);
    for (size_t i = 0; i < count; ++i)
      sizes[i] = std::floor(common * static_cast<double>(s[call.axis(axes[i], s.rank())]) + 0.5);
  }
  Tensor x = call.tensor(0);
  const DType dtype = x.type().dtype;
  for (size_t i = 0; i < count; ++i) {
    const int axis = call.axis(axes[i], s.rank());
    const int64_t in = s[axis];
    const double region = roi.empty() ? 1 : roi[i + count] - roi[i];
    const auto out =
        static_cast<int64_t>(sizes.empty() ? std::floor(static_cast<double>(in) * region * scales[i]) : sizes[i]);
    const double scale = scales.empty() ? static_cast<double>(out) / static_cast<double>(in) : scales[i];
    if (!roi.empty()) sampling.roi_start = roi[i], sampling.roi_end = roi[i + count];
    if (out < 1 || out > (1 << 16) || in < 1) call.fail("an axis of ", out, " elements");
    if (out == in && scale == 1 && roi.empty()) continue;
    std::vector<bool> outside(out, false);
    const std::vector<double> weights = sampling_matrix(call, sampling, in, out, scale, outside);
    if (repeats_each(weights, in, out)) {
      x = compose::repeat_each(x, axis, out / in);
      continue;
    }
    const Tensor matrix = call.values({in, out}, weights, dtype);
    const Tensor moved = compose::axis_to_end(x, axis);
    const Tensor sampled = matmul(reshape(moved, {moved.shape().elements() / in, in}), matrix);
    Tensor y = reshape(sampled, with_size(moved.shape(), -1, out));
    if (std::ranges::find(outside, true) != outside.end()) {
      const Tensor mask = call.values({out}, {outside.begin(), outside.end()}, dtype);
      y = elementwise(
          call, {y, mask}, [&](Number y, Number is_outside) { return select(is_outside, sampling.outside, y); });
    }
    x = compose::axis_from_end(y, axis);
  }
  if (is_whole(call.element())) x = elementwise(call, {x}, compose::truncated);
  call.set(x);
}
}  // namespace

OnnxOperatorRows resize_operators() {
  return {{"Resize", resize, "scales and sizes must be known", {1, 2, 3}},
      {"Upsample", resize, "scales must be known", {1}}};
}
}  // namespace linnet
