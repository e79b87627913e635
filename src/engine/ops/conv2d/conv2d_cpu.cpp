#include <algorithm>
#include "engine/kernels/conv/stored_convolution.h"
#include "engine/ops/conv2d/conv2d.h"

namespace linnet {
namespace {

const TensorType& type_of(const TensorType& type) { return type; }
const TensorType& type_of(const TensorView& view) { return view.type; }

// in, out: types, or tensors.
template <ConvolutionPass pass, class Item>
StoredConvolution stored_convolution(const Node& node, std::span<const Item> in, std::span<const Item> out) {
  const auto& attrs = node.attrs.as<Conv2dAttrs>();
  const auto r = conv2d_roles<pass>(in, out);
  const auto is_bf16 = [](const Item& item) { return type_of(item).dtype == DType::kBF16; };
  return {.sizes = conv2d_sizes(type_of(r.x).shape, type_of(r.weight).shape, type_of(r.y).shape, attrs),
          .x_bf16 = is_bf16(r.x),
          .y_bf16 = is_bf16(r.y),
          .residual_bf16 = attrs.residual && is_bf16(in[in.size() - (attrs.packed ? 2 : 1)]),
          .packed = attrs.packed,
          .bf16_products = attrs.precision == Precision::kBf16};
}

template <ConvolutionPass pass>
size_t conv2d_workspace(const KernelQuery& query) {
  return stored_convolution_workspace(stored_convolution<pass>(query.node, query.in, query.out), pass, query.threads);
}

// Filters are fp32, and so is their gradient.
template <ConvolutionPass pass>
bool supports_conv2d(const KernelQuery& query) {
  return conv2d_roles<pass>(query.in, query.out).weight.dtype == DType::kF32 && f32_or_reduced(query);
}

// The operands of what is fused, in their order.
struct Fused {
  explicit Fused(const KernelArgs& args) {
    const auto& attrs = args.attrs<Conv2dAttrs>();
    size_t next = 2;
    if (attrs.scale) scale = &args.in[next++];
    if (attrs.bias) bias = &args.in[next++];
    if (attrs.residual) residual = &args.in[next];
    activation = attrs.activation;
  }
  const TensorView *scale = nullptr, *bias = nullptr, *residual = nullptr;
  GemmActivation activation = GemmActivation::kNone;
};

void run_forward(const KernelArgs& args) {
  const Fused fused(args);
  const ConvolutionEpilogue epilogue{.scale = fused.scale ? fused.scale->as<float>() : nullptr,
                                     .bias = fused.bias ? fused.bias->as<float>() : nullptr,
                                     .activation = fused.activation};
  stored_convolution_forward(stored_convolution<ConvolutionPass::kForward>(args.node, args.in, args.out),
                             stored(args.in[0]), args.in[1].as<float>(), mutable_stored(args.out[0]), args.workspace,
                             args.pool, epilogue, fused.residual ? stored(*fused.residual) : nullptr,
                             args.attrs<Conv2dAttrs>().packed ? args.in.back().as<float>() : nullptr);
}

void run_conv2d_input_grad(const KernelArgs& args) {
  stored_convolution_input_gradient(stored_convolution<ConvolutionPass::kInputGradient>(args.node, args.in, args.out),
                                    stored(args.in[0]), args.in[1].as<float>(), mutable_stored(args.out[0]),
                                    args.workspace, args.pool);
}

void run_conv2d_weight_grad(const KernelArgs& args) {
  stored_convolution_weight_gradient(stored_convolution<ConvolutionPass::kWeightGradient>(args.node, args.in, args.out),
                                     stored(args.in[0]), stored(args.in[1]), args.out[0].as<float>(), args.workspace,
                                     args.pool);
}

// Calls body with the offsets, in x, in the weights and in y, of the first of group_channels() products, for every tap
// that lies inside the image.
template <class Body>
void for_taps(const ConvolutionSizes& s, int64_t image, const Body& body) {
  const int64_t depth = s.group_channels();
  for (int64_t i = 0; i < s.out_height; ++i)
    for (int64_t j = 0; j < s.out_width; ++j)
      for (int64_t o = 0; o < s.filters; ++o)
        for (int64_t r = 0; r < s.rows; ++r)
          for (int64_t c = 0; c < s.columns; ++c) {
            const int64_t y = i * s.stride + r * s.dilation - s.padding, x = j * s.stride + c * s.dilation - s.padding;
            if (y < 0 || y >= s.height || x < 0 || x >= s.width) continue;
            body(((image * s.height + y) * s.width + x) * s.channels + o / s.group_filters() * depth,
                 ((o * s.rows + r) * s.columns + c) * depth,
                 ((image * s.out_height + i) * s.out_width + j) * s.filters + o);
          }
}

// What is fused, for the results of an image.
template <class T>
void finish_image(const KernelArgs& args, const ConvolutionSizes& s, int64_t image, T* y) {
  const Fused fused(args);
  const auto floats = [](const TensorView* view) { return view ? view->as<T>() : nullptr; };
  const T *scale = floats(fused.scale), *bias = floats(fused.bias), *residual = floats(fused.residual);
  const int64_t results = s.out_height * s.out_width * s.filters;
  for (int64_t i = image * results; i < (image + 1) * results; ++i) {
    if (scale) y[i] *= scale[i % s.filters];
    if (bias) y[i] += bias[i % s.filters];
    if (residual) y[i] += residual[i];
    y[i] = static_cast<T>(gemm_activation(fused.activation, y[i]));
  }
}

template <ConvolutionPass pass>
void run_conv2d_reference(const KernelArgs& args) {
  const auto r = conv2d_roles<pass>(args.in, args.out);
  const ConvolutionSizes s = conv2d_sizes<pass>(args);
  for_float(args.out[0].type.dtype, [&]<class T>() {
    T *x = r.x.template as<T>(), *weight = r.weight.template as<T>(), *y = r.y.template as<T>();
    std::fill_n(args.out[0].as<T>(), args.out[0].elements(), T{0});
    const auto add_image = [&](int64_t image, int = 0) {
      for_taps(s, image, [&](int64_t at_x, int64_t at_weight, int64_t at_y) {
        for (int64_t c = 0; c < s.group_channels(); ++c) {
          if (pass == ConvolutionPass::kForward) y[at_y] += x[at_x + c] * weight[at_weight + c];
          if (pass == ConvolutionPass::kInputGradient) x[at_x + c] += y[at_y] * weight[at_weight + c];
          if (pass == ConvolutionPass::kWeightGradient) weight[at_weight + c] += y[at_y] * x[at_x + c];
        }
      });
      if (pass == ConvolutionPass::kForward) finish_image(args, s, image, y);
    };
    if (pass != ConvolutionPass::kWeightGradient) return args.pool.run(s.images, add_image);
    for (int64_t image = 0; image < s.images; ++image) add_image(image);
  });
}

template <ConvolutionPass pass>
constexpr Kernel fast(void (*run)(const KernelArgs&)) {
  return {"simd", supports_conv2d<pass>, conv2d_workspace<pass>, run};
}

bool plain_filters(const KernelQuery& query) { return !query.attrs<Conv2dAttrs>().packed; }

}  // namespace

LINNET_KERNELS(conv2d, fast<ConvolutionPass::kForward>(run_forward),
               {"reference", plain_filters, nullptr, run_conv2d_reference<ConvolutionPass::kForward>})
LINNET_KERNELS(conv2d_input_grad, fast<ConvolutionPass::kInputGradient>(run_conv2d_input_grad),
               {"reference", nullptr, nullptr, run_conv2d_reference<ConvolutionPass::kInputGradient>})
LINNET_KERNELS(conv2d_weight_grad, fast<ConvolutionPass::kWeightGradient>(run_conv2d_weight_grad),
               {"reference", nullptr, nullptr, run_conv2d_reference<ConvolutionPass::kWeightGradient>})

}  // namespace linnet
