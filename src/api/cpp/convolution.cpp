#include <algorithm>
#include "api/cpp/helpers.h"
#include "engine/ops/conv2d/conv2d.h"
#include "engine/ops/pool/pool.h"
#include "linnet/initializers.h"
#include "linnet/math.h"
#include "linnet/modules.h"

namespace linnet {
namespace {
void check_kernel(const std::string& path, int64_t in, int64_t out, int64_t size, const Conv2dOptions& options) {
  const auto fail = [&](const auto&... problem) { fail_user("convolution \"", path, "\": ", problem...); };
  if (in < 1 || out < 1 || size < 1) fail("channels and size must be at least 1");
  if (options.stride < 1 || options.dilation < 1 || options.groups < 1)
    fail("stride, dilation and groups must be at least 1");
  if (options.padding < 0) fail("padding must not be negative");
  if (in % options.groups != 0 || out % options.groups != 0)
    fail(in, " channels in and ", out, " out are no multiples of ", options.groups, " groups");
}

Initializer initializer_of(const Conv2dOptions& options) {
  return options.initializer ? options.initializer : he_normal();
}

void check_square(const std::string& path, const Conv2dOptions& options) {
  if (options.width >= 0 || options.padding_width >= 0)
    fail_user("convolution \"", path, "\": the options width and padding_width are those of Conv2d");
}
}  // namespace

Conv2d::Conv2d(Module* parent, std::string name, int64_t in, int64_t out, int64_t size, const Conv2dOptions& given)
    : Module(parent, std::move(name)), options((check_kernel(path(), in, out, size, given), given)),
      weight{
          this, "weight", {out, size, given.width < 0 ? size : given.width, in / given.groups}, initializer_of(given)} {
  if (options.width == 0) fail_user("convolution \"", path(), "\": the width of filters must be at least 1");
  if (options.bias) bias.emplace(this, "bias", Shape{out}, constant_init(0));
}

Tensor Conv2d::operator()(At x) {
  ModuleScope scope(*this);
  const Shape shape = x.value.shape(), filters = weight.spec().shape;
  const int64_t sides = options.padding_width < 0 ? options.padding : options.padding_width;
  const auto reach = [&](int axis) { return (filters[axis] - 1) * options.dilation + 1; };
  if (shape.rank() != 4 || shape[3] != filters[3] * options.groups || shape[1] + 2 * options.padding < reach(1) ||
      shape[2] + 2 * sides < reach(2))
    fail_shape(x, "convolution of images of shape ", shape, " with filters ", filters, " in ", options.groups,
        " groups: expected [N, H, W, ", filters[3] * options.groups, "], at least as large as a filter (in ", path(),
        ")");
  const bool even = sides == options.padding;
  const Tensor wide = even ? x.value : pad(At(pad(x, 1, options.padding, options.padding), x.where), 2, sides, sides);
  const Tensor y =
      conv2d(At(wide, x.where), weight, options.stride, even ? options.padding : 0, options.dilation, options.groups);
  return bias ? At(y, x.where) + *bias : y;
}

Tensor conv1d(At x, Tensor weight, int64_t stride, int64_t padding, int64_t dilation, int64_t groups) {
  const Shape s = x.value.shape(), w = weight.shape();
  if (s.rank() != 3 || w.rank() != 3)
    fail_shape(x, "conv1d: ", s, " with filters ", w, ", expected [N, L, C] and [O, K, C / groups]");
  const Tensor padded = padding == 0 ? x.value : pad(x, 1, padding, padding);
  const auto at = [&](Tensor value) { return At(value, x.where); };
  const Tensor rows = reshape(at(padded), {s[0], 1, padded.dim(1), s[2]});
  const Tensor y = conv2d(at(rows), reshape(at(weight), {w[0], 1, w[1], w[2]}), stride, 0, dilation, groups);
  return reshape(at(y), {s[0], y.dim(2), w[0]});
}

Tensor conv_transpose2d(
    At x, Tensor weight, int64_t stride, int64_t padding, int64_t output_padding, int64_t dilation, int64_t groups) {
  const Shape s = x.value.shape(), w = weight.shape();
  const auto size = [&](int axis) {
    return (s[axis] - 1) * stride - 2 * padding + dilation * (w[axis] - 1) + output_padding + 1;
  };
  const bool ranks = s.rank() == 4 && w.rank() == 4;
  if (!ranks || s[3] != w[0] || groups < 1 || w[0] % groups != 0 || stride < 1 || padding < 0 || dilation < 1 ||
      output_padding < 0 || output_padding >= std::max(stride, dilation) || size(1) < 1 || size(2) < 1)
    fail_shape(x, "conv_transpose2d: ", s, " with filters ", w, ", stride ", stride, ", padding ", padding,
        ", output padding ", output_padding,
        ": expected [N, H, W, C], [C, R, S, O / groups], and an output padding below the stride");
  return conv2d_transposed(x, weight, {s[0], size(1), size(2), w[3] * groups}, stride, padding, dilation, groups);
}

Conv1d::Conv1d(Module* parent, std::string name, int64_t in, int64_t out, int64_t size, const Conv2dOptions& given)
    : Module(parent, std::move(name)),
      options((check_kernel(path(), in, out, size, given), given)), weight{this, "weight",
                                                                        {out, size, in / given.groups},
                                                                        initializer_of(given)} {
  check_square(path(), given);
  if (options.bias) bias.emplace(this, "bias", Shape{out}, constant_init(0));
}

Tensor Conv1d::operator()(At x) {
  ModuleScope scope(*this);
  const Tensor y = conv1d(x, weight, options.stride, options.padding, options.dilation, options.groups);
  return bias ? At(y, x.where) + *bias : y;
}

ConvTranspose2d::ConvTranspose2d(Module* parent, std::string name, int64_t in, int64_t out, int64_t size,
    const Conv2dOptions& given, int64_t output_padding)
    : Module(parent, std::move(name)), options((check_kernel(path(), in, out, size, given), given)),
      output_padding(output_padding), weight{
                                          this, "weight", {in, size, size, out / given.groups}, initializer_of(given)} {
  check_square(path(), given);
  if (options.bias) bias.emplace(this, "bias", Shape{out}, constant_init(0));
}

Tensor ConvTranspose2d::operator()(At x) {
  ModuleScope scope(*this);
  const Tensor y =
      conv_transpose2d(x, weight, options.stride, options.padding, output_padding, options.dilation, options.groups);
  return bias ? At(y, x.where) + *bias : y;
}

ConvReluPool::ConvReluPool(Module* parent, std::string name, int64_t in, int64_t out, const std::vector<double>& mean,
    const std::vector<double>& deviation)
    : Module(parent, std::move(name)), weight{this, "weight", {out, 3, 3, in}, he_normal()}, bias{this, "bias", {out},
                                                                                                 constant_init(0)},
      mean(mean), deviation(deviation) {}

Tensor ConvReluPool::operator()(At x) {
  ModuleScope scope(*this);
  const bool bytes = x.value.type().dtype == DType::kU8;
  return conv_relu_pool(
      x, weight, bias, bytes ? pixel_scaling(weight.spec().shape[3], mean, deviation) : PixelScaling{});
}
}  // namespace linnet
