// The layer Conv2d: dilated filters are larger ones with zeros between, groups are convolutions side by side.
#include <algorithm>
#include <array>
#include <string>

#include "library/zeros.h"
#include "linnet/initializers.h"
#include "linnet/modules.h"
#include "ops/conv_pool/conv_pool.h"

namespace linnet {
namespace {

// [outer, size, inner] -> [outer, (size - 1) * dilation + 1, inner] with zeros between the elements of the second axis.
Tensor spread(Tensor x, int64_t dilation) {
  const Shape shape = x.shape();
  const Tensor rows = reshape(x, {shape[0] * shape[1], shape[2]});
  const Tensor gap = zeros(x, {shape[0] * shape[1], (dilation - 1) * shape[2]});
  const Tensor apart = reshape(concat(rows, std::array{gap}, 1), {shape[0], shape[1] * dilation, shape[2]});
  return slice(apart, 1, 0, (shape[1] - 1) * dilation + 1);
}

// Filters [O, R, S, C] with `dilation` pixels from one element to the next.
Tensor dilated(Tensor weight, int64_t dilation) {
  const Shape shape = weight.shape();
  if (dilation == 1 || shape[1] == 1) return weight;
  const int64_t reach = (shape[1] - 1) * dilation + 1;
  const Tensor columns = spread(reshape(weight, {shape[0] * shape[1], shape[2], shape[3]}), dilation);
  const Tensor rows = spread(reshape(columns, {shape[0], shape[1], reach * shape[3]}), dilation);
  return reshape(rows, {shape[0], reach, reach, shape[3]});
}

// Zeros around the images.
Tensor padded(Tensor x, int64_t padding) {
  for (const int axis : {1, 2}) {
    Shape border = x.shape();
    border.set(axis, padding);
    const Tensor edge = zeros(x, border);
    x = concat(edge, std::array{x, edge}, axis);
  }
  return x;
}

// Elements start, start + step, ... of an axis, `count` of them; the axis has at least (count - 1) * step + start + 1.
Tensor every(Tensor x, int axis, int64_t start, int64_t step, int64_t count) {
  if (step == 1) return slice(x, axis, start, count);
  const int64_t missing = start + step * count - x.dim(axis);
  if (missing > 0) {
    Shape border = x.shape();
    border.set(axis, missing);
    x = concat(x, std::array{zeros(x, border)}, axis);
  }
  const Shape shape = x.shape();
  Shape result = shape;
  result.set(axis, count);
  const int64_t outer = shape.elements(0, axis), inner = shape.elements(axis + 1, shape.rank());
  const Tensor part = reshape(slice(x, axis, start, step * count), {outer, count, step * inner});
  return reshape(slice(part, 2, 0, inner), result);
}

// One filter for each channel: a sum over the filter's elements of shifted images times one number a channel.
Tensor depthwise(Tensor x, Tensor weight, const Conv2dOptions& options) {
  const int64_t size = weight.dim(1), channels = x.dim(3), reach = (size - 1) * options.dilation + 1;
  if (options.padding > 0) x = padded(x, options.padding);
  const int64_t rows = (x.dim(1) - reach) / options.stride + 1, columns = (x.dim(2) - reach) / options.stride + 1;
  const Tensor by_element = permute(reshape(weight, {channels, size * size}), {1, 0});
  Tensor y;
  for (int64_t r = 0; r < size; ++r) {
    const Tensor lines = every(x, 1, r * options.dilation, options.stride, rows);
    for (int64_t s = 0; s < size; ++s) {
      const Tensor factors = reshape(slice(by_element, 0, r * size + s, 1), {channels});
      const Tensor part = every(lines, 2, s * options.dilation, options.stride, columns) * factors;
      y = y.defined() ? y + part : part;
    }
  }
  return y;
}

void check(const std::string& path, int64_t in, int64_t out, int64_t size, const Conv2dOptions& options) {
  const auto fail = [&](const std::string& problem) { fail_user("convolution \"" + path + "\": " + problem); };
  if (in < 1 || out < 1 || size < 1) fail("channels and size must be at least 1");
  if (options.stride < 1 || options.dilation < 1 || options.groups < 1)
    fail("stride, dilation and groups must be at least 1");
  if (options.padding < 0) fail("padding must not be negative");
  if (in % options.groups != 0 || out % options.groups != 0)
    fail(std::to_string(in) + " channels in and " + std::to_string(out) + " out are no multiples of " +
         std::to_string(options.groups) + " groups");
}

}  // namespace

Conv2d::Conv2d(Module* parent, std::string name, int64_t in, int64_t out, int64_t size, const Conv2dOptions& given)
    : Module(parent, std::move(name)),
      options((check(path(), in, out, size, given), given)),
      weight{
          this, "weight", {out, size, size, in / given.groups}, given.initializer ? given.initializer : he_normal()} {
  if (options.bias) bias.emplace(this, "bias", Shape{out}, constant_init(0));
}

Tensor Conv2d::operator()(At x) {
  ModuleScope scope(*this);
  const Shape shape = x.value.shape(), filters = weight.spec().shape;
  const int64_t reach = (filters[1] - 1) * options.dilation + 1;
  if (shape.rank() != 4 || shape[3] != filters[3] * options.groups ||
      std::min(shape[1], shape[2]) + 2 * options.padding < reach)
    throw Error(ErrorKind::kShape, x.where.text() + ": convolution of images of shape " + shape.text() +
                                       " with filters " + filters.text() + " in " + std::to_string(options.groups) +
                                       " groups: expected [N, H, W, " + std::to_string(filters[3] * options.groups) +
                                       "], at least as large as a filter (in " + path() + ")");
  const auto at = [&](Tensor value) { return At(value, x.where); };
  Tensor y;
  if (options.groups == 1) {
    y = conv2d(x, dilated(weight, options.dilation), options.stride, options.padding);
  } else if (options.groups == shape[3] && filters[0] == shape[3]) {
    y = depthwise(x.value, weight, options);
  } else {
    const std::vector<Tensor> images = split_evenly(x, 3, static_cast<int>(options.groups));
    const std::vector<Tensor> kernels =
        split_evenly(dilated(weight, options.dilation), 0, static_cast<int>(options.groups));
    std::vector<Tensor> parts;
    for (size_t i = 0; i < images.size(); ++i)
      parts.push_back(conv2d(at(images[i]), kernels[i], options.stride, options.padding));
    y = concat(at(parts[0]), std::span(parts).subspan(1), 3);
  }
  return bias ? at(y) + *bias : y;
}

ConvReluPool::ConvReluPool(Module* parent, std::string name, int64_t in, int64_t out, const std::vector<double>& mean,
                           const std::vector<double>& deviation)
    : Module(parent, std::move(name)),
      weight{this, "weight", {out, 3, 3, in}, he_normal()},
      bias{this, "bias", {out}, constant_init(0)},
      mean(mean),
      deviation(deviation) {}

Tensor ConvReluPool::operator()(At x) {
  ModuleScope scope(*this);
  const bool bytes = x.value.type().dtype == DType::kU8;
  return conv_relu_pool(x, weight, bias,
                        bytes ? pixel_scaling(weight.spec().shape[3], mean, deviation) : PixelScaling{});
}

}  // namespace linnet
