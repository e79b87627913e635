#include "engine/ops/pool/pool.h"
#include <algorithm>
#include <cmath>
#include "engine/ir/op.h"
#include "engine/kernels/conv/dense_head.h"
#include "engine/kernels/conv/pool.h"
#include "engine/kernels/parallel.h"
#include "engine/ops/conv2d/conv2d.h"
#include "engine/ops/pointwise/pointwise.h"

namespace linnet {
namespace {
std::vector<TensorType> infer_max_pool(const InferArgs& args) {
  const auto& attrs = args.attrs.as<MaxPoolAttrs>();
  const TensorType& x = args.in[0];
  expect(is_float(x.dtype) && x.shape.rank() == 4, "got ", x, ", expected floats [N, H, W, C]");
  expect(attrs.size >= 1 && attrs.size <= 15 && attrs.stride >= 1, "window ", attrs.size, ", stride ", attrs.stride);
  TensorType out = x;
  for (int axis : {1, 2}) {
    expect(x.shape[axis] >= attrs.size, "got ", x, ", smaller than the window ", attrs.size);
    out.shape.set(axis, (x.shape[axis] - attrs.size) / attrs.stride + 1);
  }
  return {out, {DType::kU8, out.shape}};
}

std::vector<TensorType> infer_max_pool_grad(const InferArgs& args) {  // dy, places -> dx
  expect(args.in[1] == TensorType{DType::kU8, args.in[0].shape}, "got ", args.in[0], " and ", args.in[1]);
  return {{args.in[0].dtype, args.attrs.as<MaxPoolAttrs>().input}};
}

std::vector<Tensor> max_pool_gradient(const GradientArgs& args) {
  MaxPoolAttrs attrs = args.attrs<MaxPoolAttrs>();
  attrs.input = args.in[0].shape();
  return args.add(kMaxPoolGrad, {args.out_grad[0], args.out[1]}, attrs);
}

// body(offset of the window's first element in the images, offset of the result), for several images at once.
template <class Body>
void for_windows(ThreadPool& pool, const Shape& images, const Shape& result, int64_t stride, const Body& body) {
  const int64_t width = images[2], channels = images[3];
  pool.run(images[0], [&](int64_t n, int) {
    const int64_t image = n * images.elements(1, 4);
    int64_t out = n * result.elements(1, 4);
    for (int64_t row = 0; row < result[1]; ++row)
      for (int64_t column = 0; column < result[2]; ++column)
        for (int64_t c = 0; c < channels; ++c, ++out)
          body(image + (row * stride * width + column * stride) * channels + c, out);
  });
}

void run_max_pool_reference(const KernelArgs& args) {
  const auto& attrs = args.attrs<MaxPoolAttrs>();
  const Shape& images = args.in[0].shape();
  for_float(args.in[0].type.dtype, [&]<class T>() {
    const T* x = args.in[0].as<T>();
    for_windows(args.pool, images, args.out[0].shape(), attrs.stride, [&](int64_t first, int64_t out) {
      T largest = x[first];
      int64_t location = 0;
      for (int64_t i = 1; i < attrs.size * attrs.size; ++i) {
        const T value = x[first + (i / attrs.size * images[2] + i % attrs.size) * images[3]];
        if (value > largest || std::isnan(value)) largest = value, location = i;
      }
      args.out[0].as<T>()[out] = largest;
      args.out[1].as<uint8_t>()[out] = static_cast<uint8_t>(location);
    });
  });
}

MaxPoolSizes max_pool_sizes_of(const MaxPoolAttrs& attrs, const Shape& image, const Shape& result) {
  return {.images = image[0],
      .height = image[1],
      .width = image[2],
      .channels = image[3],
      .out_height = result[1],
      .out_width = result[2],
      .size = attrs.size,
      .stride = attrs.stride};
}

void run_max_pool(const KernelArgs& args) {
  max_pool_forward(max_pool_sizes_of(args.attrs<MaxPoolAttrs>(), args.in[0].shape(), args.out[0].shape()),
      stored(args.in[0]), mutable_stored(args.out[0]), args.out[1].as<uint8_t>(), args.pool);
}

void run_max_pool_grad(const KernelArgs& args) {
  max_pool_backward(max_pool_sizes_of(args.attrs<MaxPoolAttrs>(), args.out[0].shape(), args.in[0].shape()),
      stored(args.in[0]), args.in[1].as<uint8_t>(), mutable_stored(args.out[0]), args.workspace, args.pool);
}

size_t max_pool_grad_workspace(const KernelQuery& query) {
  return bytes_for<float>(query.threads * query.out[0].shape.elements(2, 4));
}

void run_max_pool_grad_reference(const KernelArgs& args) {
  const auto& attrs = args.attrs<MaxPoolAttrs>();
  const Shape& images = args.out[0].shape();
  for_float(args.out[0].type.dtype, [&]<class T>() {
    T* dx = args.out[0].as<T>();
    std::fill_n(dx, args.out[0].elements(), T{0});
    for_windows(args.pool, images, args.in[0].shape(), attrs.stride, [&](int64_t first, int64_t out) {
      const int64_t location = args.in[1].as<uint8_t>()[out];
      dx[first + (location / attrs.size * images[2] + location % attrs.size) * images[3]] += args.in[0].as<T>()[out];
    });
  });
}

std::vector<TensorType> infer_conv_pool(const InferArgs& args) {
  const PixelScaling& scaling = args.attrs.as<ConvReluPoolAttrs>().scaling;
  const TensorType &x = args.in[0], &weight = args.in[1], &bias = args.in[2];
  const std::string all = "got " + x.text() + ", weight " + weight.text() + ", bias " + bias.text();
  expect(x.shape.rank() == 4 && weight.shape.rank() == 4, all, ", expected [N, H, W, C] and [O, 3, 3, C]");
  expect(is_float(weight.dtype) &&
             (x.dtype == DType::kU8 || weight.dtype == x.dtype || weight.dtype == full_type(x.dtype)),
      all, ", expected one float type, or images of u8");
  expect(weight.shape[1] == 3 && weight.shape[2] == 3, all, ", expected filters of 3x3");
  expect(weight.shape[3] == x.shape[3], all, ", channels ", x.shape[3], " and ", weight.shape[3], " differ");
  expect(bias == TensorType{full_type(weight.dtype), {weight.shape[0]}}, all, ", expected bias [O]");
  expect(x.shape[1] >= 2 && x.shape[2] >= 2, all, ", images smaller than the 2x2 window");
  const size_t channels = x.dtype == DType::kU8 ? static_cast<size_t>(x.shape[3]) : 0;
  expect(scaling.scale.size() == channels && scaling.shift.size() == channels, all, ", and a scaling of ",
      scaling.scale.size(), " channels; u8 needs one, floats none");
  const TensorType y{
      x.dtype == DType::kU8 ? weight.dtype : x.dtype, {x.shape[0], x.shape[1] / 2, x.shape[2] / 2, weight.shape[0]}};
  return {y, {DType::kU8, y.shape}};
}

// x, which, dy (or its two factors) -> dweight, dbias
std::vector<TensorType> infer_conv_pool_weight_grad(const InferArgs& args) {
  if (args.in.size() != 4) expect_inputs(args, 3);
  const DType dtype = full_type(args.in[2].dtype);
  const int64_t filters = args.in[1].shape[3];
  return {{dtype, {filters, 3, 3, args.in[0].shape[3]}}, {dtype, {filters}}};
}

std::vector<TensorType> infer_conv_pool_input_grad(const InferArgs& args) {  // weight, which, dy -> dx
  return {{args.in[2].dtype, args.attrs.as<ConvReluPoolAttrs>().input}};
}

std::vector<Tensor> conv_pool_gradient(const GradientArgs& args) {
  const Tensor x = args.in[0], weight = args.in[1], which = args.out[1], dy = args.out_grad[0];
  ConvReluPoolAttrs attrs = args.attrs<ConvReluPoolAttrs>();
  const std::vector<Tensor> weights = args.add(kConvReluPoolWeightGrad, {x, which, dy});
  attrs.input = x.shape();
  const bool has_slopes = is_float(x.type().dtype);
  return {
      has_slopes ? args.add(kConvReluPoolInputGrad, {weight, which, dy}, attrs)[0] : Tensor{}, weights[0], weights[1]};
}

// The second output differs where ReLU made all four zero; only the gradient reads it.
std::vector<Tensor> decompose_conv_pool(const DecomposeArgs& args) {
  const PixelScaling& scaling = args.attrs<ConvReluPoolAttrs>().scaling;
  Tensor x = args.in[0];
  const Tensor weight = args.in[1], bias = args.in[2];
  if (!is_float(x.type().dtype)) x = scale_pixels(x, scaling, weight.type().dtype);
  const Tensor positive = relu(conv2d(x, weight, 1, 1) + bias);
  return args.graph.add(kMaxPool, std::array{positive}, MaxPoolAttrs{.size = 2, .stride = 2}, args.node.where);
}

// Counts the convolution at every position, for gradients too, though only one position of a window has one.
double convolution_flops(const Shape& pooled, int64_t channels) {
  return 2.0 * 9 * 4 * static_cast<double>(pooled.elements()) * static_cast<double>(channels);
}

double conv_pool_weight_grad_flops(const FlopsArgs& args) {
  const double product = args.in.size() == 4 ? 2.0 * static_cast<double>(args.in[1].shape.elements()) *
                                                   static_cast<double>(args.in[2].shape[1])
                                             : 0.0;
  return product + convolution_flops(args.in[1].shape, args.in[0].shape[3]);
}

// One image element for the convolution, zero outside.
template <class T> struct Pixels {
  Pixels(const TensorView& x, const PixelScaling& scaling) : x(x), scaling(scaling) {}
  double at(int64_t image, int64_t row, int64_t column, int64_t channel) const {
    const Shape& s = x.shape();
    if (row < 0 || row >= s[1] || column < 0 || column >= s[2]) return 0;
    const int64_t location = ((image * s[1] + row) * s[2] + column) * s[3] + channel;
    if (x.type.dtype != DType::kU8) return x.as<const T>()[location];
    const auto c = static_cast<size_t>(channel);
    return x.as<const uint8_t>()[location] * static_cast<double>(scaling.scale[c]) + scaling.shift[c];
  }
  const TensorView& x;
  const PixelScaling& scaling;
};

// body(image, row, column, filter, location in the pooled images) for every pooled element.
template <class Body> void for_pooled(const Shape& pooled, const Body& body) {
  int64_t location = 0;
  for (int64_t n = 0; n < pooled[0]; ++n)
    for (int64_t i = 0; i < pooled[1]; ++i)
      for (int64_t j = 0; j < pooled[2]; ++j)
        for (int64_t o = 0; o < pooled[3]; ++o) body(n, i, j, o, location++);
}

void run_conv_pool_reference(const KernelArgs& args) {
  const PixelScaling& scaling = args.attrs<ConvReluPoolAttrs>().scaling;
  const int64_t channels = args.in[0].shape()[3];
  for_float(args.out[0].type.dtype, [&]<class T>() {
    const Pixels<T> x(args.in[0], scaling);
    const T *weight = args.in[1].as<T>(), *bias = args.in[2].as<T>();
    for_pooled(args.out[0].shape(), [&](int64_t n, int64_t i, int64_t j, int64_t o, int64_t location) {
      double largest = 0;
      int best = 0;
      for (int window = 0; window < 4; ++window) {
        double sum = bias[o];
        for (int64_t r = 0; r < 3; ++r)
          for (int64_t s = 0; s < 3; ++s)
            for (int64_t c = 0; c < channels; ++c)
              sum += x.at(n, 2 * i + window / 2 + r - 1, 2 * j + window % 2 + s - 1, c) *
                     weight[((o * 3 + r) * 3 + s) * channels + c];
        if (window == 0 || sum > largest || std::isnan(sum)) largest = sum, best = window;
      }
      const bool dead = largest <= 0;
      args.out[0].as<T>()[location] = static_cast<T>(dead ? 0 : largest);
      args.out[1].as<uint8_t>()[location] = dead ? kDeadWindow : static_cast<uint8_t>(best);
    });
  });
}

// dy at a location of the pooled images, given or as the product of its factors.
template <class T> double slope_at(const KernelArgs& args, int64_t image, int64_t location) {
  if (args.in.size() == 3) return args.in[2].as<T>()[location];
  const int64_t outputs = args.in[2].shape()[1], width = args.in[3].shape()[1];
  double sum = 0;
  for (int64_t k = 0; k < outputs; ++k)
    sum +=
        static_cast<double>(args.in[2].as<T>()[image * outputs + k]) * args.in[3].as<T>()[k * width + location % width];
  return sum;
}

void run_conv_pool_weight_grad_reference(const KernelArgs& args) {
  const PixelScaling& scaling = args.attrs<ConvReluPoolAttrs>().scaling;
  const auto* which = args.in[1].as<const uint8_t>();
  const int64_t channels = args.in[0].shape()[3];
  for_float(args.in[2].type.dtype, [&]<class T>() {
    const Pixels<T> x(args.in[0], scaling);
    T *dweight = args.out[0].as<T>(), *dbias = args.out[1].as<T>();
    std::fill_n(dweight, args.out[0].elements(), T{0});
    std::fill_n(dbias, args.out[1].elements(), T{0});
    for_pooled(args.in[1].shape(), [&](int64_t n, int64_t i, int64_t j, int64_t o, int64_t location) {
      if (which[location] == kDeadWindow) return;
      const auto d = static_cast<T>(slope_at<T>(args, n, location));
      const int64_t row = 2 * i + which[location] / 2 - 1, column = 2 * j + which[location] % 2 - 1;
      dbias[o] += d;
      for (int64_t tap = 0; tap < 9; ++tap)
        for (int64_t c = 0; c < channels; ++c)
          dweight[(o * 9 + tap) * channels + c] += static_cast<T>(d * x.at(n, row + tap / 3, column + tap % 3, c));
    });
  });
}

void run_conv_pool_input_grad_reference(const KernelArgs& args) {
  const auto* which = args.in[1].as<const uint8_t>();
  const Shape& image = args.out[0].shape();
  for_float(args.in[2].type.dtype, [&]<class T>() {
    const T *weight = args.in[0].as<T>(), *dy = args.in[2].as<T>();
    T* dx = args.out[0].as<T>();
    std::fill_n(dx, args.out[0].elements(), T{0});
    for_pooled(args.in[2].shape(), [&](int64_t n, int64_t i, int64_t j, int64_t o, int64_t location) {
      if (which[location] == kDeadWindow) return;
      for (int64_t tap = 0; tap < 9; ++tap) {
        const int64_t row = 2 * i + which[location] / 2 + tap / 3 - 1,
                      column = 2 * j + which[location] % 2 + tap % 3 - 1;
        if (row < 0 || row >= image[1] || column < 0 || column >= image[2]) continue;
        for (int64_t c = 0; c < image[3]; ++c)
          dx[((n * image[1] + row) * image[2] + column) * image[3] + c] +=
              dy[location] * weight[(o * 9 + tap) * image[3] + c];
      }
    });
  });
}

ConvPoolShape shape_of(const Shape& x, const Shape& pooled) { return {x[0], x[1], x[2], x[3], pooled[3]}; }

ConvPoolImages images_of(const KernelArgs& args) {
  const PixelScaling& scaling = args.attrs<ConvReluPoolAttrs>().scaling;
  if (args.in[0].type.dtype != DType::kU8) return {.floats = args.in[0].as<const float>()};
  return {.bytes = args.in[0].as<const uint8_t>(), .scale = scaling.scale.data(), .shift = scaling.shift.data()};
}

size_t conv_pool_workspace(const KernelQuery& query) {
  return conv_pool_workspace(shape_of(query.in[0].shape, query.out[0].shape), query.threads);
}
size_t weight_grad_workspace(const KernelQuery& query) {
  return conv_pool_workspace(shape_of(query.in[0].shape, query.in[1].shape), query.threads);
}
size_t input_grad_workspace(const KernelQuery& query) {
  return conv_pool_workspace(shape_of(query.out[0].shape, query.in[2].shape), query.threads);
}
void run_conv_pool(const KernelArgs& args) {
  conv_pool_forward(shape_of(args.in[0].shape(), args.out[0].shape()), images_of(args), args.in[1].as<const float>(),
      args.in[2].as<const float>(), args.out[0].as<float>(), args.out[1].as<uint8_t>(), args.workspace, args.pool);
}

void run_conv_pool_weight_grad(const KernelArgs& args) {
  ConvPoolSlopes slopes;
  if (args.in.size() == 4)
    slopes = {.factor = args.in[2].as<const float>(),
        .weight = args.in[3].as<const float>(),
        .outputs = args.in[2].shape()[1]};
  else slopes.dy = args.in[2].as<const float>();
  conv_pool_weight_gradient(shape_of(args.in[0].shape(), args.in[1].shape()), images_of(args),
      args.in[1].as<const uint8_t>(), slopes, args.out[0].as<float>(), args.out[1].as<float>(), args.workspace,
      args.pool);
}

void run_conv_pool_input_grad(const KernelArgs& args) {
  conv_pool_input_gradient(shape_of(args.out[0].shape(), args.in[2].shape()), args.in[0].as<const float>(),
      args.in[1].as<const uint8_t>(), args.in[2].as<const float>(), args.out[0].as<float>(), args.workspace, args.pool);
}

// A product computed on the way has few outputs.
bool supports_weight_grad(const KernelQuery& query) {
  return all_f32(query) && (query.in.size() < 4 || query.in[2].shape[1] <= DenseHeadShape::kMaxOutputs);
}

std::vector<TensorType> infer_pixels(const InferArgs& args) {
  const auto& attrs = args.attrs.as<ScalePixelsAttrs>();
  const TensorType& x = args.in[0];
  expect(x.dtype == DType::kU8 && x.shape.rank() >= 1, "got ", x, ", expected u8");
  expect(x.shape[-1] == static_cast<int64_t>(attrs.scaling.scale.size()), "got ", x, " and a scaling of ",
      attrs.scaling.scale.size(), " channels");
  return {{attrs.dtype, x.shape}};
}

constexpr size_t kMostTables = 4;  // of channels: they lie in the first cache

void run_pixels_reference(const KernelArgs& args) {
  const PixelScaling& scaling = args.attrs<ScalePixelsAttrs>().scaling;
  const auto channels = static_cast<int64_t>(scaling.scale.size());
  const auto* x = args.in[0].as<const uint8_t>();
  for_float(args.out[0].type.dtype, [&]<class T>() {
    T* y = args.out[0].as<T>();
    for_each_index(args.pool, args.in[0].elements() / channels, channels, [&](int64_t pixel) {
      for (int64_t c = 0; c < channels; ++c)
        y[pixel * channels + c] = static_cast<T>(x[pixel * channels + c]) * scaling.scale[c] + scaling.shift[c];
    });
  });
}

// A table of the 256 values for each channel.
template <class T> void scale_by_tables(const KernelArgs& args, T* y) {
  const PixelScaling& scaling = args.attrs<ScalePixelsAttrs>().scaling;
  const auto channels = static_cast<int64_t>(scaling.scale.size());
  const auto* x = args.in[0].as<const uint8_t>();
  std::array<std::array<T, 256>, kMostTables> tables;
  for (size_t c = 0; c < scaling.scale.size(); ++c)
    for (size_t byte = 0; byte < 256; ++byte)
      tables[c][byte] = T(static_cast<float>(byte) * scaling.scale[c] + scaling.shift[c]);
  for_each_index(args.pool, args.in[0].elements() / channels, channels, [&](int64_t pixel) {
    for (int64_t c = 0; c < channels; ++c) y[pixel * channels + c] = tables[c][x[pixel * channels + c]];
  });
}

void run_tables(const KernelArgs& args) {
  if (args.out[0].type.dtype == DType::kBF16) scale_by_tables(args, args.out[0].as<Bfloat16>());
  else scale_by_tables(args, args.out[0].as<float>());
}

bool has_tables(const KernelQuery& query) {
  return query.attrs<ScalePixelsAttrs>().scaling.scale.size() <= kMostTables && f32_or_reduced(query);
}
}  // namespace

const OpDef kMaxPool{
    .name = "max_pool", .infer = takes<1, infer_max_pool>, .gradient = max_pool_gradient, .storage = reduced<0b1, 0b1>};
const OpDef kMaxPoolGrad{.name = "max_pool_grad", .infer = takes<2, infer_max_pool_grad>, .storage = reduced<0b1, 0b1>};

Tensor max_pool(At x, int64_t size, int64_t stride) {
  const MaxPoolAttrs attrs{.size = size, .stride = stride ? stride : size};
  return op_result(kMaxPool, x, {}, attrs);
}

const OpDef kConvReluPool{.name = "conv_relu_pool",
    .infer = takes<3, infer_conv_pool>,
    .gradient = conv_pool_gradient,
    .decompose = decompose_conv_pool,
    .flops = [](const FlopsArgs& args) { return convolution_flops(args.out[0].shape, args.in[0].shape[3]); }};
const OpDef kConvReluPoolWeightGrad{
    .name = "conv_relu_pool_weight_grad", .infer = infer_conv_pool_weight_grad, .flops = conv_pool_weight_grad_flops};
const OpDef kConvReluPoolInputGrad{.name = "conv_relu_pool_input_grad",
    .infer = takes<3, infer_conv_pool_input_grad>,
    .flops = [](const FlopsArgs& args) { return convolution_flops(args.in[2].shape, args.out[0].shape[3]); }};

Tensor conv_relu_pool(At x, Tensor weight, Tensor bias, PixelScaling scaling) {
  return op_result(kConvReluPool, x, {weight, bias}, ConvReluPoolAttrs{std::move(scaling), {}});
}

LINNET_KERNELS(max_pool, {"simd", run_max_pool, f32_or_all_reduced}, {"reference", run_max_pool_reference})
LINNET_KERNELS(max_pool_grad, {"simd", run_max_pool_grad, f32_or_all_reduced, max_pool_grad_workspace},
    {"reference", run_max_pool_grad_reference})
LINNET_KERNELS(
    conv_relu_pool, {"simd", run_conv_pool, all_f32, conv_pool_workspace}, {"reference", run_conv_pool_reference})
LINNET_KERNELS(conv_relu_pool_weight_grad,
    {"simd", run_conv_pool_weight_grad, supports_weight_grad, weight_grad_workspace},
    {"reference", run_conv_pool_weight_grad_reference})
LINNET_KERNELS(conv_relu_pool_input_grad, {"simd", run_conv_pool_input_grad, all_f32, input_grad_workspace},
    {"reference", run_conv_pool_input_grad_reference})

const OpDef kScalePixels{.name = "scale_pixels", .infer = takes<1, infer_pixels>, .storage = reduced<0b0, 0b1>};

PixelScaling pixel_scaling(int64_t channels, const std::vector<double>& mean, const std::vector<double>& deviation) {
  const auto count = static_cast<size_t>(channels);
  for (const auto* list : {&mean, &deviation})
    if (!list->empty() && list->size() != count)
      fail_user("mean and deviation of ", list->size(), " channels for images of ", channels);
  PixelScaling scaling;
  for (size_t c = 0; c < count; ++c) {
    const double m = mean.empty() ? 0 : mean[c], d = deviation.empty() ? 1 : deviation[c];
    if (!(d > 0)) fail_user("the deviation of channel ", c, " is not positive");
    scaling.scale.push_back(static_cast<float>(1 / (255 * d)));
    scaling.shift.push_back(static_cast<float>(-m / d));
  }
  return scaling;
}

Tensor scale_pixels(At x, PixelScaling scaling, DType dtype) {
  return op_result(kScalePixels, x, {}, ScalePixelsAttrs{std::move(scaling), dtype});
}

LINNET_KERNELS(scale_pixels, {"tables", run_tables, has_tables}, {"reference", run_pixels_reference})
}  // namespace linnet
