// Convolutions and pooling. ONNX has channels first, [N, C, H, W]; here they come last, and what moves there
// and back between two operators disappears (compose::move_axes, compose::elementwise).
#include <algorithm>
#include <limits>
#include "engine/ops/conv2d/conv2d.h"
#include "engine/ops/max_pool/max_pool.h"
#include "onnx/operators.h"
#include "onnx/quantized_product.h"

namespace linnet {
namespace {

using compose::channels_first;
using compose::channels_last;

// Windows over the spatial axes.
struct Windows {
  std::vector<int64_t> size, stride, dilation, before, after;
  size_t axes() const { return size.size(); }
  int64_t reach(size_t i) const { return (size[i] - 1) * dilation[i] + 1; }
};

Windows read_windows(const OnnxCall& call, const Shape& x, std::vector<int64_t> size) {
  const size_t axes = size.size();
  if (x.rank() != static_cast<int>(axes) + 2) call.fail("a tensor of shape " + x.text());
  const std::vector<int64_t> ones(axes, 1);
  Windows w{std::move(size), call.list("strides", ones), call.list("dilations", ones)};
  const std::vector<int64_t> pads = call.list("pads", std::vector<int64_t>(2 * axes, 0));
  if (w.stride.size() != axes || w.dilation.size() != axes || pads.size() != 2 * axes)
    call.fail("strides, dilations or pads for another number of axes");
  const std::string automatic = call.text("auto_pad", "NOTSET");
  for (size_t i = 0; i < axes; ++i) {
    if (w.size[i] < 1 || w.stride[i] < 1 || w.dilation[i] < 1) call.fail("a window, stride or dilation below 1");
    int64_t before = pads[i], after = pads[i + axes];
    const int64_t length = x[static_cast<int>(i) + 2];
    if (automatic == "VALID") before = after = 0;
    if (automatic == "SAME_UPPER" || automatic == "SAME_LOWER") {
      const int64_t out = (length + w.stride[i] - 1) / w.stride[i];
      const int64_t total = std::max<int64_t>(0, (out - 1) * w.stride[i] + w.reach(i) - length);
      before = automatic == "SAME_UPPER" ? total / 2 : total - total / 2;
      after = total - before;
    }
    w.before.push_back(before);
    w.after.push_back(after);
  }
  return w;
}

int64_t window_count(const OnnxCall& call, const Windows& w, size_t i, int64_t length) {
  const int64_t room = length + w.before[i] + w.after[i] - w.reach(i);
  if (room < 0) call.fail("a window is larger than what it moves over");
  return room / w.stride[i] + 1;
}

std::vector<int64_t> window_counts(const OnnxCall& call, const Windows& w, const Shape& x) {
  std::vector<int64_t> counts;
  for (size_t i = 0; i < w.axes(); ++i) counts.push_back(window_count(call, w, i, x[static_cast<int>(i) + 2]));
  return counts;
}

// What an element of the window sees of all windows: x is padded, spatial axes begin at `first`.
Tensor tap(Tensor x, int first, const Windows& w, const std::vector<int64_t>& at, const std::vector<int64_t>& counts) {
  for (size_t i = 0; i < w.axes(); ++i)
    x = compose::every(x, first + static_cast<int>(i), at[i] * w.dilation[i], w.stride[i], counts[i]);
  return x;
}

// Calls `visit` with every location in the window.
void each_tap(const Windows& w, const std::function<void(const std::vector<int64_t>& at)>& visit) {
  compose::each_index(Shape(std::span<const int64_t>(w.size)), visit);
}

Tensor padded(Tensor x, int first, const Windows& w, double value) {
  for (size_t i = 0; i < w.axes(); ++i)
    x = compose::pad(x, first + static_cast<int>(i), w.before[i], w.after[i], value);
  return x;
}

// --- Convolution ---

// Zeros between the elements of an axis, `apart` positions from one to the next.
Tensor spread(Tensor x, int axis, int64_t apart) {
  const int64_t size = x.dim(axis);
  if (apart == 1 || size == 1) return x;
  Shape shape = x.shape();
  const int64_t inner = shape.elements(axis + 1, shape.rank());
  const Tensor rows = reshape(x, {shape.elements(0, axis + 1), inner});
  shape.set(axis, size * apart);
  return slice(reshape(compose::pad(rows, 1, 0, (apart - 1) * inner, 0), shape), axis, 0, (size - 1) * apart + 1);
}

// x [N, H, W, C] and weight [O, R, S, C / groups] -> [N, H', W', O]. The op has one stride, one padding and one
// dilation for both axes and both ends; what differs is done around it.
Tensor grouped_convolution(Tensor x, Tensor weight, const Windows& w, int64_t groups) {
  const auto shared = [&](const std::vector<int64_t>& values, int64_t otherwise) {
    return values[0] == values[1] ? values[0] : otherwise;
  };
  // Along an axis that a window fills there is one result, whatever the stride.
  const auto is_filled = [&](size_t i) {
    return x.dim(static_cast<int>(i) + 1) + w.before[i] + w.after[i] == w.reach(i);
  };
  const int64_t stride = is_filled(0) ? w.stride[1] : is_filled(1) ? w.stride[0] : shared(w.stride, 1);
  const int64_t dilation = w.size[0] == 1 ? w.dilation[1] : w.size[1] == 1 ? w.dilation[0] : shared(w.dilation, 1);
  int64_t padding = 0;
  if (w.before[0] == w.before[1] && w.before == w.after) {
    padding = w.before[0];
  } else {
    x = padded(x, 1, w, 0);
  }
  if (dilation == 1) weight = spread(spread(weight, 1, w.dilation[0]), 2, w.dilation[1]);
  Tensor y = conv2d(x, weight, stride, padding, dilation, groups);
  if (w.stride[0] == w.stride[1] || stride > 1) return y;
  for (int axis : {1, 2}) {
    const int64_t step = w.stride[static_cast<size_t>(axis - 1)];
    y = compose::every(y, axis, 0, step, (y.dim(axis) - 1) / step + 1);
  }
  return y;
}

// x [N, H, W, C], weight [O, C / groups, R, S] -> [N, H', W', O].
Tensor convolution_2d(const OnnxCall& call, Tensor x, Tensor weight, const Windows& w, int64_t groups) {
  const int64_t channels = x.dim(3), filters = weight.dim(0);
  if (groups < 1 || channels % groups != 0 || filters % groups != 0 || weight.dim(1) != channels / groups)
    call.fail("weight " + weight.shape().text() + " does not fit " + std::to_string(channels) + " channels in " +
              std::to_string(groups) + " groups");
  return grouped_convolution(x, compose::move_axes(weight, {0, 2, 3, 1}), w, groups);
}

// One spatial axis: an image of one row.
Tensor convolution_1d(const OnnxCall& call, Tensor x, Tensor weight, const Windows& w, int64_t groups) {
  const Windows two{{1, w.size[0]}, {1, w.stride[0]}, {1, w.dilation[0]}, {0, w.before[0]}, {0, w.after[0]}};
  const Shape s = x.shape(), f = weight.shape();
  const Tensor y =
      convolution_2d(call, reshape(x, {s[0], 1, s[1], s[2]}), reshape(weight, {f[0], f[1], 1, f[2]}), two, groups);
  return reshape(y, {y.dim(0), y.dim(2), y.dim(3)});
}

// Three spatial axes: the sum over the window's depth of convolutions of images.
Tensor convolution_3d(const OnnxCall& call, Tensor x, Tensor weight, const Windows& w, int64_t groups) {
  const Windows two{{w.size[1], w.size[2]},
                    {w.stride[1], w.stride[2]},
                    {w.dilation[1], w.dilation[2]},
                    {w.before[1], w.before[2]},
                    {w.after[1], w.after[2]}};
  const int64_t count = window_count(call, w, 0, x.dim(1));
  x = compose::pad(x, 1, w.before[0], w.after[0], 0);
  const Shape f = weight.shape();
  Tensor y;
  for (int64_t depth = 0; depth < w.size[0]; ++depth) {
    const Tensor part = compose::every(x, 1, depth * w.dilation[0], w.stride[0], count);
    const Shape s = part.shape();
    const Tensor filter = reshape(slice(weight, 2, depth, 1), {f[0], f[1], f[3], f[4]});
    const Tensor images = convolution_2d(call, reshape(part, {s[0] * s[1], s[2], s[3], s[4]}), filter, two, groups);
    y = y.defined() ? y + images : images;
  }
  return reshape(y, {x.dim(0), count, y.dim(1), y.dim(2), y.dim(3)});
}

Tensor convolution(const OnnxCall& call, Tensor x, Tensor weight, const Windows& w, int64_t groups) {
  switch (w.axes()) {
    case 1: return convolution_1d(call, x, weight, w, groups);
    case 2: return convolution_2d(call, x, weight, w, groups);
    case 3: return convolution_3d(call, x, weight, w, groups);
    default: call.fail("over " + std::to_string(w.axes()) + " axes");
  }
}

std::vector<int64_t> spatial(const Shape& shape) {
  const auto sizes = shape.sizes().subspan(2);
  return {sizes.begin(), sizes.end()};
}

std::vector<WindowAxis> axes_of(const Windows& w) {
  std::vector<WindowAxis> axes;
  for (size_t i = 0; i < w.axes(); ++i)
    axes.push_back({w.size[i], w.stride[i], w.dilation[i], w.before[i], w.after[i]});
  return axes;
}

void conv(OnnxCall& call) {
  if (call.shape(1).rank() < 3) call.fail("weight " + call.shape(1).text());
  const Windows w = read_windows(call, call.shape(), spatial(call.shape(1)));
  window_counts(call, w, call.shape());
  const int64_t groups = call.integer("group", 1);
  std::optional<Tensor> product;
  if (groups == 1 && w.axes() <= 2) product = quantized_convolution(call, call.in(0), call.in(1), axes_of(w));
  Tensor y = product ? *product : convolution(call, channels_last(call.tensor(0)), call.tensor(1), w, groups);
  if (call.has(2)) y = y + call.tensor(2);
  call.set(channels_first(y));
}

// The transposed convolution: zeros between the elements, then a convolution with the filters turned around.
void conv_transpose(OnnxCall& call) {
  const Shape s = call.shape(), f = call.shape(1);  // weight [C, O / groups, ...]
  if (f.rank() < 3) call.fail("weight " + f.text());
  const std::vector<int64_t> size = spatial(f);
  const size_t axes = size.size();
  Windows w = read_windows(call, s, size);
  const int64_t groups = call.integer("group", 1);
  const std::vector<int64_t> extra = call.list("output_padding", std::vector<int64_t>(axes, 0));
  const std::vector<int64_t> wanted = call.list("output_shape");
  const std::string automatic = call.text("auto_pad", "NOTSET");
  const std::vector<int64_t> pads = call.list("pads", std::vector<int64_t>(2 * axes, 0));
  if (groups < 1 || s[1] % groups != 0 || f[0] != s[1] || extra.size() != axes) call.fail("weight " + f.text());
  if (!wanted.empty() && wanted.size() < axes) call.fail("output_shape for another number of axes");
  Tensor x = channels_last(call.tensor(0));
  Windows plain{size, std::vector<int64_t>(axes, 1), w.dilation, {}, {}};
  for (size_t i = 0; i < axes; ++i) {
    const int axis = static_cast<int>(i) + 1;
    const int64_t length = x.dim(axis);
    x = spread(x, axis, w.stride[i]);
    const int64_t whole = (length - 1) * w.stride[i] + w.reach(i) + extra[i];
    int64_t before = pads[i], after = pads[i + axes];
    const bool same = automatic == "SAME_UPPER" || automatic == "SAME_LOWER";
    if (same || !wanted.empty()) {
      const int64_t out = wanted.empty() ? length * w.stride[i] : wanted[wanted.size() - axes + i];
      const int64_t total = whole - out;
      before = automatic == "SAME_UPPER" ? total / 2 : total - total / 2;
      if (!same) before = total / 2;
      after = total - before;
    } else if (automatic == "VALID") {
      before = after = 0;
    }
    plain.before.push_back(w.reach(i) - 1 - before);
    plain.after.push_back(w.reach(i) - 1 - after + extra[i]);
  }
  x = padded(x, 1, plain, 0);
  plain.before.assign(axes, 0);
  plain.after.assign(axes, 0);
  // [C, O / groups, ...] -> [O, C / groups, ...], turned around.
  Tensor weight = call.tensor(1);
  for (size_t i = 0; i < axes; ++i) {
    std::vector<int64_t> backward;
    for (int64_t j = size[i]; j-- > 0;) backward.push_back(j);
    weight = compose::take(weight, static_cast<int>(i) + 2, backward);
  }
  std::vector<Tensor> parts;
  std::vector<int> swapped{1, 0};
  for (size_t i = 0; i < axes; ++i) swapped.push_back(static_cast<int>(i) + 2);
  for (const Tensor& part : split_evenly(weight, 0, static_cast<int>(groups)))
    parts.push_back(compose::move_axes(part, swapped));
  Tensor y = convolution(call, x, compose::join(parts, 0), plain, groups);
  if (call.has(2)) y = y + call.tensor(2);
  call.set(channels_first(y));
}

// --- Pooling ---

// With ceil_mode a last window may begin inside and end outside: padding is added for it.
void widen_for_ceil(const OnnxCall& call, const Shape& x, Windows& w) {
  if (call.integer("ceil_mode", 0) == 0) return;
  for (size_t i = 0; i < w.axes(); ++i) {
    const int64_t length = x[static_cast<int>(i) + 2], room = length + w.before[i] + w.after[i] - w.reach(i);
    int64_t count = (room + w.stride[i] - 1) / w.stride[i] + 1;
    if ((count - 1) * w.stride[i] >= length + w.before[i]) --count;  // it would begin in the padding behind
    w.after[i] = std::max(w.after[i], (count - 1) * w.stride[i] + w.reach(i) - length - w.before[i]);
  }
}

void max_pool_operator(OnnxCall& call) {
  if (call.is_wanted(1)) call.fail("the places of its results are read");
  const Shape s = call.shape();
  Windows w = read_windows(call, s, call.list("kernel_shape"));
  widen_for_ceil(call, s, w);
  Tensor x = channels_last(call.tensor(0));
  const std::vector<int64_t> counts = window_counts(call, w, s);
  x = padded(x, 1, w, -std::numeric_limits<double>::infinity());
  const bool plain = w.axes() == 2 && w.size[0] == w.size[1] && w.stride[0] == w.stride[1] && w.size[0] <= 15 &&
                     w.dilation == std::vector<int64_t>{1, 1} && x.type().dtype == DType::kF32;
  if (plain) return call.set(channels_first(max_pool(x, w.size[0], w.stride[0])));
  Tensor y;
  each_tap(w, [&](const std::vector<int64_t>& at) {
    const Tensor part = tap(x, 1, w, at, counts);
    y = y.defined() ? compose::maximum(y, part) : part;
  });
  call.set(channels_first(y));
}

// How many elements of each window count: [H', W', 1].
Tensor window_sizes(OnnxCall& call, const Shape& s, const Windows& w, const Windows& given,
                    const std::vector<int64_t>& counts, bool with_padding) {
  std::vector<double> sizes{1};
  for (size_t i = 0; i < w.axes(); ++i) {
    std::vector<double> next;
    const int64_t length = s[static_cast<int>(i) + 2];
    const int64_t low = with_padding ? -given.before[i] : 0, high = with_padding ? length + given.after[i] : length;
    for (const double size : sizes)
      for (int64_t c = 0; c < counts[i]; ++c) {
        int64_t inside = 0;
        for (int64_t k = 0; k < w.size[i]; ++k) {
          const int64_t at = c * w.stride[i] - w.before[i] + k * w.dilation[i];
          inside += at >= low && at < high;
        }
        next.push_back(size * static_cast<double>(inside));
      }
    sizes = std::move(next);
  }
  Shape shape;
  for (const int64_t count : counts) shape.push_back(count);
  shape.push_back(1);
  return call.values(shape, sizes, traced_dtype(call.element()));
}

// The sum over each window of a function of the elements.
Tensor window_sums(const OnnxCall& call, const Windows& w, const std::vector<int64_t>& counts, Tensor x) {
  if (w.axes() == 2 && x.type().dtype == DType::kF32) {
    const Tensor ones = fill(*x.graph, {DType::kF32, {x.dim(3), 1, w.size[0], w.size[1]}}, 1);
    return convolution_2d(call, x, ones, w, x.dim(3));
  }
  x = padded(x, 1, w, 0);
  Tensor y;
  each_tap(w, [&](const std::vector<int64_t>& at) {
    const Tensor part = tap(x, 1, w, at, counts);
    y = y.defined() ? y + part : part;
  });
  return y;
}

void average_pool(OnnxCall& call) {
  const Shape s = call.shape();
  const Windows given = read_windows(call, s, call.list("kernel_shape"));
  Windows w = given;
  widen_for_ceil(call, s, w);
  const std::vector<int64_t> counts = window_counts(call, w, s);
  const Tensor sums = window_sums(call, w, counts, channels_last(call.tensor(0)));
  const Tensor sizes = window_sizes(call, s, w, given, counts, call.integer("count_include_pad", 0) != 0);
  call.set(channels_first(elementwise(call, {sums, sizes}, [](Number sum, Number size) { return sum / size; })));
}

void lp_pool(OnnxCall& call) {
  const Shape s = call.shape();
  Windows w = read_windows(call, s, call.list("kernel_shape"));
  widen_for_ceil(call, s, w);
  const auto p = static_cast<double>(call.integer("p", 2));
  const std::vector<int64_t> counts = window_counts(call, w, s);
  const auto to_power = [&](Tensor x, double exponent) {
    return elementwise(call, {x}, [=](Number x) { return pow(abs(x), exponent); });
  };
  const Tensor sums = window_sums(call, w, counts, to_power(channels_last(call.tensor(0)), p));
  call.set(channels_first(to_power(sums, 1 / p)));
}

void global_pool(OnnxCall& call, bool maximum) {
  const Shape s = call.shape();
  if (s.rank() < 2) call.fail("a tensor of shape " + s.text());
  Shape result = s;
  for (int axis = 2; axis < s.rank(); ++axis) result.set(axis, 1);
  if (!maximum)
    if (const auto sum = compose::spatial_sum(call.tensor(0), 1 / static_cast<double>(s.elements(2, s.rank()))))
      return call.set(reshape(*sum, result));
  const Tensor rows = reshape(call.tensor(0), {s[0] * s[1], s.elements(2, s.rank())});
  call.set(reshape(maximum ? compose::fold_last(rows, compose::maximum) : compose::mean_last(rows), result));
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
  };
}

}  // namespace linnet
