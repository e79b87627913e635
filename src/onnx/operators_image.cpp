// Convolutions, pooling and resizing. ONNX has channels first, [N, C, H, W], ops here have them last; moves there and
// back cancel between operators (compose::move_axes, compose::elementwise).
#include <algorithm>
#include <cmath>
#include <limits>
#include "base/numbers.h"
#include "engine/ops/conv2d/conv2d.h"
#include "engine/ops/pool/pool.h"
#include "onnx/compose.h"

namespace linnet {
namespace {
using compose::channels_first;
using compose::channels_last;

using Windows = std::vector<WindowAxis>;  // over the spatial axes

int64_t reach(const WindowAxis& w) { return (w.size - 1) * w.dilation + 1; }

Windows read_windows(const OnnxCall& call, const Shape& x, const std::vector<int64_t>& sizes) {
  const size_t axes = sizes.size();
  if (x.rank() != static_cast<int>(axes) + 2) call.fail("a tensor of shape ", x.text());
  const std::vector<int64_t> ones(axes, 1), strides = call.list("strides", ones),
                                            dilations = call.list("dilations", ones);
  const std::vector<int64_t> pads = call.list("pads", std::vector<int64_t>(2 * axes, 0));
  if (strides.size() != axes || dilations.size() != axes || pads.size() != 2 * axes)
    call.fail("strides, dilations or pads for another number of axes");
  const std::string automatic = call.text("auto_pad", "NOTSET");
  Windows windows;
  for (size_t i = 0; i < axes; ++i) {
    WindowAxis w{sizes[i], strides[i], dilations[i], pads[i], pads[i + axes]};
    if (w.size < 1 || w.stride < 1 || w.dilation < 1) call.fail("a window, stride or dilation below 1");
    if (automatic == "VALID") w.before = w.after = 0;
    if (automatic == "SAME_UPPER" || automatic == "SAME_LOWER") {
      const int64_t length = x[static_cast<int>(i) + 2];
      const int64_t total = std::max<int64_t>(0, (ceil_div(length, w.stride) - 1) * w.stride + reach(w) - length);
      w.before = automatic == "SAME_UPPER" ? total / 2 : total - total / 2;
      w.after = total - w.before;
    }
    windows.push_back(w);
  }
  return windows;
}

int64_t window_count(const OnnxCall& call, const WindowAxis& w, int64_t length) {
  if (w.padded(length) < reach(w)) call.fail("a window is larger than what it moves over");
  return w.count(length);
}

std::vector<int64_t> window_counts(const OnnxCall& call, const Windows& w, const Shape& x) {
  return mapped(w.size(), [&](size_t i) { return window_count(call, w[i], x[static_cast<int>(i) + 2]); });
}

// x [N, ..., C] padded with `value`.
Tensor padded(Tensor x, const Windows& w, double value) {
  for (size_t i = 0; i < w.size(); ++i) x = compose::pad(x, static_cast<int>(i) + 1, w[i].before, w[i].after, value);
  return x;
}

// Folds each window's elements over x [N, ..., C], already padded, by a function of two.
Tensor fold_windows(Tensor x, const Windows& w, const std::vector<int64_t>& counts,
    const std::function<Tensor(Tensor, Tensor)>& join_two) {
  const Shape size(mapped(w, &WindowAxis::size));
  Tensor y;
  compose::each_index(size, [&](const std::vector<int64_t>& at) {
    Tensor part = x;  // this element of every window
    for (size_t i = 0; i < w.size(); ++i)
      part = compose::every(part, static_cast<int>(i) + 1, at[i] * w[i].dilation, w[i].stride, counts[i]);
    y = y.defined() ? join_two(y, part) : part;
  });
  return y;
}

// Puts zeros between the elements of an axis, which are then `apart` positions apart.
Tensor spread(Tensor x, int axis, int64_t apart) {
  const int64_t size = x.dim(axis);
  if (apart == 1 || size == 1) return x;
  const Shape shape = x.shape();
  const int64_t inner = shape.elements(axis + 1, shape.rank());
  const Tensor rows = compose::pad(reshape(x, {shape.elements(0, axis + 1), inner}), 1, 0, (apart - 1) * inner, 0);
  return slice(reshape(rows, with_size(shape, axis, size * apart)), axis, 0, (size - 1) * apart + 1);
}

// x [N, H, W, C] and weight [O, R, S, C / groups] -> [N, H', W', O]. The op has one stride, padding and dilation for
// both axes and ends; differences are handled around it.
Tensor grouped_convolution(Tensor x, Tensor weight, const Windows& w, int64_t groups) {
  const WindowAxis &rows = w[0], &columns = w[1];
  const auto shared = [](int64_t a, int64_t b) { return a == b ? a : 1; };
  // A window as large as an axis gives one result, whatever the stride.
  const bool fills_rows = rows.padded(x.dim(1)) == reach(rows),
             fills_columns = columns.padded(x.dim(2)) == reach(columns);
  const int64_t stride = fills_rows      ? columns.stride
                         : fills_columns ? rows.stride
                                         : shared(rows.stride, columns.stride);
  const int64_t dilation = rows.size == 1      ? columns.dilation
                           : columns.size == 1 ? rows.dilation
                                               : shared(rows.dilation, columns.dilation);
  int64_t padding = 0;
  if (rows.before == rows.after && columns.before == columns.after && rows.before == columns.before)
    padding = rows.before;
  else x = padded(x, w, 0);
  if (dilation == 1) weight = spread(spread(weight, 1, rows.dilation), 2, columns.dilation);
  Tensor y = conv2d(x, weight, stride, padding, dilation, groups);
  if (rows.stride == columns.stride || stride > 1) return y;
  for (int axis : {1, 2}) {
    const int64_t step = w[axis - 1].stride;
    y = compose::every(y, axis, 0, step, (y.dim(axis) - 1) / step + 1);
  }
  return y;
}

// x [N, H, W, C], weight [O, C / groups, R, S] -> [N, H', W', O].
Tensor convolution_2d(const OnnxCall& call, Tensor x, Tensor weight, const Windows& w, int64_t groups) {
  const int64_t channels = x.dim(3), filters = weight.dim(0);
  if (groups < 1 || channels % groups != 0 || filters % groups != 0 || weight.dim(1) != channels / groups)
    call.fail("weight ", weight.shape().text(), " does not fit ", channels, " channels in ", groups, " groups");
  return grouped_convolution(x, compose::move_axes(weight, {0, 2, 3, 1}), w, groups);
}

// Treated as an image of one row.
Tensor convolution_1d(const OnnxCall& call, Tensor x, Tensor weight, const Windows& w, int64_t groups) {
  const Shape s = x.shape(), f = weight.shape();
  const Tensor y = convolution_2d(
      call, reshape(x, {s[0], 1, s[1], s[2]}), reshape(weight, {f[0], f[1], 1, f[2]}), {{}, w[0]}, groups);
  return reshape(y, {y.dim(0), y.dim(2), y.dim(3)});
}

// The sum over the window's depth of image convolutions.
Tensor convolution_3d(const OnnxCall& call, Tensor x, Tensor weight, const Windows& w, int64_t groups) {
  const int64_t count = window_count(call, w[0], x.dim(1));
  x = compose::pad(x, 1, w[0].before, w[0].after, 0);
  const Shape f = weight.shape();
  Tensor y;
  for (int64_t depth = 0; depth < w[0].size; ++depth) {
    const Tensor part = compose::every(x, 1, depth * w[0].dilation, w[0].stride, count);
    const Shape s = part.shape();
    const Tensor filter = reshape(slice(weight, 2, depth, 1), {f[0], f[1], f[3], f[4]});
    const Tensor images =
        convolution_2d(call, reshape(part, {s[0] * s[1], s[2], s[3], s[4]}), filter, {w[1], w[2]}, groups);
    y = y.defined() ? y + images : images;
  }
  return reshape(y, {x.dim(0), count, y.dim(1), y.dim(2), y.dim(3)});
}

Tensor convolution(const OnnxCall& call, Tensor x, Tensor weight, const Windows& w, int64_t groups) {
  switch (w.size()) {
    case 1: return convolution_1d(call, x, weight, w, groups);
    case 2: return convolution_2d(call, x, weight, w, groups);
    case 3: return convolution_3d(call, x, weight, w, groups);
    default: call.fail("over ", w.size(), " axes");
  }
}

std::vector<int64_t> spatial(const Shape& shape) {
  const auto sizes = shape.sizes().subspan(2);
  return {sizes.begin(), sizes.end()};
}

void conv(OnnxCall& call) {
  if (call.shape(1).rank() < 3) call.fail("weight ", call.shape(1).text());
  const Windows w = read_windows(call, call.shape(), spatial(call.shape(1)));
  window_counts(call, w, call.shape());
  const int64_t groups = call.integer("group", 1);
  std::optional<Tensor> product;
  if (groups == 1 && w.size() <= 2) product = quantized_convolution(call, call.in(0), call.in(1), w);
  Tensor y = product ? *product : convolution(call, channels_last(call.tensor(0)), call.tensor(1), w, groups);
  if (call.has(2)) y = y + call.tensor(2);
  call.set(channels_first(y));
}

// If a convolution of images has this padding, its gradient by the input. Otherwise puts zeros between elements and
// convolves with flipped filters.
void conv_transpose(OnnxCall& call) {
  const Shape s = call.shape(), f = call.shape(1);  // weight [C, O / groups, ...]
  if (f.rank() < 3) call.fail("weight ", f.text());
  const std::vector<int64_t> size = spatial(f);
  const size_t axes = size.size();
  const Windows w = read_windows(call, s, size);
  const int64_t groups = call.integer("group", 1);
  const std::vector<int64_t> extra = call.list("output_padding", std::vector<int64_t>(axes, 0));
  const std::vector<int64_t> wanted = call.list("output_shape");
  const std::string automatic = call.text("auto_pad", "NOTSET");
  if (groups < 1 || s[1] % groups != 0 || f[0] != s[1] || extra.size() != axes) call.fail("weight ", f.text());
  if (!wanted.empty() && wanted.size() < axes) call.fail("output_shape for another number of axes");
  const auto finish = [&](Tensor y) { call.set(channels_first(call.has(2) ? y + call.tensor(2) : y)); };
  Tensor x = channels_last(call.tensor(0));
  Windows plain;
  Shape result{x.dim(0)};
  std::vector<std::pair<int64_t, int64_t>> cut;                                                  // before and after
  bool is_gradient = axes == 2 && w[0].stride == w[1].stride && w[0].dilation == w[1].dilation;  // of a convolution
  for (size_t i = 0; i < axes; ++i) {
    const int axis = static_cast<int>(i) + 1;
    const int64_t length = x.dim(axis), last = reach(w[i]) - 1;
    int64_t before = w[i].before, after = w[i].after;
    const bool same = automatic == "SAME_UPPER" || automatic == "SAME_LOWER";
    if (same || !wanted.empty()) {
      const int64_t out = wanted.empty() ? length * w[i].stride : wanted[wanted.size() - axes + i];
      const int64_t total = (length - 1) * w[i].stride + last + 1 + extra[i] - out, some = std::max<int64_t>(total, 0);
      before = automatic == "SAME_UPPER" ? some / 2 : some - some / 2;
      after = total - before;
    }
    const int64_t out = (length - 1) * w[i].stride + last + 1 - before - after + extra[i];
    result.push_back(out);
    cut.emplace_back(before, after - extra[i]);
    const int64_t steps = out + 2 * before - last - 1;  // between the first window and the last
    is_gradient = is_gradient && before == cut[0].first && before >= 0 && out > 0 && steps >= 0 &&
                  steps / w[i].stride + 1 == length;
    plain.push_back({.size = size[i], .dilation = w[i].dilation});
  }
  if (is_gradient) {
    result.push_back(f[1] * groups);
    const Tensor weight = compose::move_axes(call.tensor(1), {0, 2, 3, 1});
    return finish(conv2d_transposed(x, weight, result, w[0].stride, cut[0].first, w[0].dilation, groups));
  }
  for (size_t i = 0; i < axes; ++i) {
    const int axis = static_cast<int>(i) + 1;
    const int64_t last = reach(w[i]) - 1;
    x = compose::pad(spread(x, axis, w[i].stride), axis, last - cut[i].first, last - cut[i].second, 0);
  }
  // [C, O / groups, ...] -> [O, C / groups, ...], flipped.
  Tensor weight = call.tensor(1);
  for (size_t i = 0; i < axes; ++i) weight = compose::reversed(weight, static_cast<int>(i) + 2);
  std::vector<int> swapped = numbers_below<int>(axes + 2);
  std::swap(swapped[0], swapped[1]);
  const std::vector<Tensor> parts = mapped(split_evenly(weight, 0, static_cast<int>(groups)),
      [&](const Tensor& part) { return compose::move_axes(part, swapped); });
  finish(convolution(call, x, compose::join(parts, 0), plain, groups));
}

// With ceil_mode a last window may end outside: adds padding for it.
Windows widened_for_ceil(const OnnxCall& call, const Shape& x, Windows windows) {
  if (!call.flag("ceil_mode")) return windows;
  for (size_t i = 0; i < windows.size(); ++i) {
    WindowAxis& w = windows[i];
    const int64_t length = x[static_cast<int>(i) + 2];
    int64_t count = ceil_div(w.padded(length) - reach(w), w.stride) + 1;
    if ((count - 1) * w.stride >= length + w.before) --count;  // it would begin in the padding
    w.after = std::max(w.after, (count - 1) * w.stride + reach(w) - length - w.before);
  }
  return windows;
}

Windows pool_windows(const OnnxCall& call) { return read_windows(call, call.shape(), call.list("kernel_shape")); }

void max_pool_operator(OnnxCall& call) {
  if (call.is_wanted(1)) call.fail("the places of its results are read");
  const Windows w = widened_for_ceil(call, call.shape(), pool_windows(call));
  const std::vector<int64_t> counts = window_counts(call, w, call.shape());
  const Tensor x = padded(channels_last(call.tensor(0)), w, -std::numeric_limits<double>::infinity());
  const bool plain = w.size() == 2 && w[0].size == w[1].size && w[0].stride == w[1].stride && w[0].size <= 15 &&
                     w[0].dilation == 1 && w[1].dilation == 1 && x.type().dtype == DType::kF32;
  call.set(channels_first(plain ? max_pool(x, w[0].size, w[0].stride) : fold_windows(x, w, counts, compose::maximum)));
}

// The number of elements that count in each window: [H', W', 1].
Tensor window_sizes(OnnxCall& call, const Shape& s, const Windows& w, const Windows& given,
    const std::vector<int64_t>& counts, bool with_padding) {
  std::vector<double> sizes{1};
  for (size_t i = 0; i < w.size(); ++i) {
    std::vector<double> next;
    const int64_t length = s[static_cast<int>(i) + 2];
    const int64_t low = with_padding ? -given[i].before : 0, high = with_padding ? length + given[i].after : length;
    for (const double size : sizes)
      for (int64_t c = 0; c < counts[i]; ++c) {
        int64_t inside = 0;
        for (int64_t k = 0; k < w[i].size; ++k) {
          const int64_t at = c * w[i].stride - w[i].before + k * w[i].dilation;
          inside += at >= low && at < high;
        }
        next.push_back(size * static_cast<double>(inside));
      }
    sizes = std::move(next);
  }
  return call.values(with_axes(Shape(counts), {1}), sizes, traced_dtype(call.element()));
}

Tensor window_sums(const OnnxCall& call, const Windows& w, const std::vector<int64_t>& counts, Tensor x) {
  if (w.size() == 2 && x.type().dtype == DType::kF32) {
    const Tensor ones = fill(*x.graph, {DType::kF32, {x.dim(3), 1, w[0].size, w[1].size}}, 1);
    return convolution_2d(call, x, ones, w, x.dim(3));
  }
  return fold_windows(padded(x, w, 0), w, counts, [](Tensor a, Tensor b) { return a + b; });
}

void average_pool(OnnxCall& call) {
  const Shape s = call.shape();
  const Windows given = pool_windows(call), w = widened_for_ceil(call, s, given);
  const std::vector<int64_t> counts = window_counts(call, w, s);
  const Tensor sums = window_sums(call, w, counts, channels_last(call.tensor(0)));
  const Tensor sizes = window_sizes(call, s, w, given, counts, call.flag("count_include_pad"));
  call.set(channels_first(elementwise(call, {sums, sizes}, [](Number sum, Number size) { return sum / size; })));
}

void lp_pool(OnnxCall& call) {
  const Windows w = widened_for_ceil(call, call.shape(), pool_windows(call));
  const auto p = static_cast<double>(call.integer("p", 2));
  const std::vector<int64_t> counts = window_counts(call, w, call.shape());
  const auto to_power = [&](Tensor x, double exponent) {
    return elementwise(call, {x}, [=](Number x) { return pow(abs(x), exponent); });
  };
  const Tensor sums = window_sums(call, w, counts, to_power(channels_last(call.tensor(0)), p));
  call.set(channels_first(to_power(sums, 1 / p)));
}

void global_pool(OnnxCall& call, bool maximum) {
  const Shape s = call.shape();
  if (s.rank() < 2) call.fail("a tensor of shape ", s.text());
  std::vector<bool> spatial(s.rank(), true);
  spatial[0] = spatial[1] = false;
  const Tensor y = compose::reduced(call.tensor(0), spatial, maximum ? max_to : sum_to);
  const double share = 1 / static_cast<double>(s.elements(2, s.rank()));
  call.set(maximum ? y : elementwise(call, {y}, [&](Number sum) { return sum * share; }));
}

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
  if (s.locations == "align_corners") return out > 1 ? x * (length - 1) / (count - 1) : 0;
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
  if (axes.empty()) axes = numbers_below<int64_t>(s.rank());
  const size_t count = axes.size();
  const auto fits = [&](const std::vector<double>& list) { return list.empty() || list.size() == count; };
  if (!fits(scales) || !fits(sizes) || (scales.empty() && sizes.empty()))
    call.fail("scales or sizes for another number of axes");
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
    if (contains(outside, true)) {
      const Tensor mask = call.values({out}, {outside.begin(), outside.end()}, dtype);
      y = elementwise(
          call, {y, mask}, [&](Number y, Number is_outside) { return select(is_outside, sampling.outside, y); });
    }
    x = compose::axis_from_end(y, axis);
  }
  if (is_whole(call.element())) x = elementwise(call, {x}, formula::truncated);
  call.set(x);
}
}  // namespace

OnnxOperatorRows image_operators() {
  return {
      {"AveragePool", average_pool},
      {"Conv", conv, "over one to three axes"},
      {"ConvTranspose", conv_transpose, "over one to three axes"},
      {"GlobalAveragePool", [](OnnxCall& call) { global_pool(call, false); }},
      {"GlobalMaxPool", [](OnnxCall& call) { global_pool(call, true); }},
      {"LpPool", lp_pool},
      {"MaxPool", max_pool_operator, "without the second result, Indices"},
      {"Resize", resize, "scales and sizes must be known", {1, 2, 3}},
      {"Upsample", resize, "scales must be known", {1}},
  };
}
}  // namespace linnet
