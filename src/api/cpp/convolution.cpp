// The layers Conv2d and ConvReluPool.
#include <algorithm>
#include <string>

#include "linnet/initializers.h"
#include "linnet/modules.h"
#include "engine/ops/conv2d/conv2d.h"
#include "engine/ops/conv_pool/conv_pool.h"

namespace linnet {
namespace {

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
  const Tensor y = conv2d(x, weight, options.stride, options.padding, options.dilation, options.groups);
  return bias ? At(y, x.where) + *bias : y;
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
