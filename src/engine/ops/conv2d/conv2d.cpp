#include "engine/ops/conv2d/conv2d.h"

namespace linnet {
namespace {
std::vector<TensorType> infer_conv2d(const InferArgs& args) {
  const auto& attrs = args.attrs.as<Conv2dAttrs>();
  expect_inputs(args, static_cast<size_t>(2 + attrs.scale + attrs.bias + attrs.residual + attrs.packed));
  const TensorType &x = args.in[0], &weight = args.in[1];
  const std::string both = "got " + x.text() + " and weight " + weight.text();
  expect(is_float(x.dtype) && (weight.dtype == x.dtype || weight.dtype == full_type(x.dtype)), both,
      ", expected two of one float type");
  expect(x.shape.rank() == 4 && weight.shape.rank() == 4, both, ", expected [N, H, W, C] and [O, R, S, C]");
  expect(attrs.stride >= 1 && attrs.padding >= 0 && attrs.dilation >= 1 && attrs.groups >= 1, "got stride ",
      attrs.stride, ", padding ", attrs.padding, ", dilation ", attrs.dilation, " and groups ", attrs.groups);
  const std::string groups = attrs.groups == 1 ? "" : " in " + std::to_string(attrs.groups) + " groups";
  expect(x.shape[3] == weight.shape[3] * attrs.groups && weight.shape[0] % attrs.groups == 0, both, groups,
      ", channels ", x.shape[3], " and ", weight.shape[3], " differ");
  TensorType out = x;
  for (int axis : {1, 2}) {
    const int64_t window = weight.shape[axis] == 0 ? 0 : (weight.shape[axis] - 1) * attrs.dilation + 1;
    const int64_t room = x.shape[axis] + 2 * attrs.padding - window;
    expect(room >= 0, both, ", the window is larger than the padded image");
    out.shape.set(axis, room / attrs.stride + 1);
  }
  out.shape.set(3, weight.shape[0]);
  const TensorType row{full_type(x.dtype), {weight.shape[0]}};
  size_t next = 2;
  for (const bool has_row : {attrs.scale, attrs.bias})
    if (has_row) expect(args.in[next++] == row, both, ", expected ", row, " for each filter");
  if (attrs.residual) expect(args.in[next] == out, both, ", expected a residual ", out);
  return {out};
}

std::vector<TensorType> infer_conv2d_input_grad(const InferArgs& args) {  // dy, weight -> dx
  return {{args.in[0].dtype, args.attrs.as<Conv2dAttrs>().result}};
}

std::vector<TensorType> infer_conv2d_weight_grad(const InferArgs& args) {  // x, dy -> dweight
  return {{full_type(args.in[0].dtype), args.attrs.as<Conv2dAttrs>().result}};
}

// A convolution and its two gradients are three forms, each linear in both operands. The two other forms compute the
// gradients of a form, with the gradient of its result in the role of the result.
template <ConvolutionPass pass> std::vector<Tensor> conv2d_gradient(const GradientArgs& args) {
  const auto& attrs = args.attrs<Conv2dAttrs>();
  if (attrs.is_fused()) fail_internal("the gradient of a convolution is taken before passes fuse it");
  const auto r = conv2d_roles<pass>(args.in, args.out_grad);
  const auto add = [&](const OpDef& form, Tensor a, Tensor b, const Shape& result) {
    Conv2dAttrs own = attrs;
    own.result = result;
    return args.add(form, {a, b}, own)[0];
  };
  const auto of_x = [&] { return add(kConv2dInputGrad, r.y, r.weight, r.x.shape()); };
  const auto of_weight = [&] { return add(kConv2dWeightGrad, r.x, r.y, r.weight.shape()); };
  const auto of_y = [&] { return add(kConv2d, r.x, r.weight, {}); };
  if (pass == ConvolutionPass::kForward) return {of_x(), of_weight()};
  if (pass == ConvolutionPass::kInputGradient) return {of_y(), of_weight()};
  return {of_x(), of_y()};
}

// A multiply-add for each tap of each result, also in the padding.
template <ConvolutionPass pass> double conv2d_flops(const FlopsArgs& args) {
  const auto r = conv2d_roles<pass>(args.in, args.out);
  return 2.0 * static_cast<double>(r.y.shape.elements()) * static_cast<double>(r.weight.shape.elements(1, 4));
}

// Scale and bias are fp32, and so are filters if the device reads parameters as such.
StorageRule conv2d_storage(const Node& node) {
  const auto& attrs = node.attrs.as<Conv2dAttrs>();
  StorageRule rule{.in = {Storage::kReduced, Storage::kReduced}, .out = {Storage::kReduced}};
  for (const bool has_row : {attrs.scale, attrs.bias})
    if (has_row) rule.in.push_back(Storage::kF32);
  if (attrs.residual) rule.in.push_back(Storage::kReduced);
  return rule;
}

const TensorType& type_of(const TensorType& type) { return type; }
const TensorType& type_of(const TensorView& view) { return view.type; }

template <ConvolutionPass pass, class Item>
Convolution stored_convolution(const Node& node, std::span<const Item> in, std::span<const Item> out) {
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

template <ConvolutionPass pass> size_t conv2d_workspace(const KernelQuery& query) {
  return convolution_workspace(stored_convolution<pass>(query.node, query.in, query.out), pass, query.threads);
}

template <ConvolutionPass pass> bool supports_conv2d(const KernelQuery& query) {
  return conv2d_roles<pass>(query.in, query.out).weight.dtype == DType::kF32 && f32_or_reduced(query);
}

// The operands of the epilogue, in order.
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
  convolution_forward(stored_convolution<ConvolutionPass::kForward>(args.node, args.in, args.out), stored(args.in[0]),
      args.in[1].as<float>(), mutable_stored(args.out[0]), args.workspace, args.pool, epilogue,
      fused.residual ? stored(*fused.residual) : nullptr,
      args.attrs<Conv2dAttrs>().packed ? args.in.back().as<float>() : nullptr);
}

void run_conv2d_input_grad(const KernelArgs& args) {
  convolution_input_gradient(stored_convolution<ConvolutionPass::kInputGradient>(args.node, args.in, args.out),
      stored(args.in[0]), args.in[1].as<float>(), mutable_stored(args.out[0]), args.workspace, args.pool);
}

void run_conv2d_weight_grad(const KernelArgs& args) {
  convolution_weight_gradient(stored_convolution<ConvolutionPass::kWeightGradient>(args.node, args.in, args.out),
      stored(args.in[0]), stored(args.in[1]), args.out[0].as<float>(), args.workspace, args.pool);
}

// Calls body with the offsets in x, the weights and y of the first of group_channels() products, per tap in the image.
template <class Body> void for_taps(const ConvolutionSizes& s, int64_t image, const Body& body) {
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

// The epilogue of an image's results.
template <class T> void finish_image(const KernelArgs& args, const ConvolutionSizes& s, int64_t image, T* y) {
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

template <ConvolutionPass pass> void run_conv2d_reference(const KernelArgs& args) {
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

template <ConvolutionPass pass> constexpr Kernel fast(void (*run)(const KernelArgs&)) {
  return {"simd", run, supports_conv2d<pass>, conv2d_workspace<pass>};
}

bool plain_filters(const KernelQuery& query) { return !query.attrs<Conv2dAttrs>().packed; }

template <ConvolutionPass pass>
constexpr OpDef conv2d_form(const char* name, decltype(OpDef::infer) infer, decltype(OpDef::storage) storage) {
  return {.name = name,
      .infer = infer,
      .gradient = conv2d_gradient<pass>,
      .storage = storage,
      .product = ProductKind::kMatrix,
      .with_precision = set_precision<Conv2dAttrs>,
      .by_gpu_library = true,
      .flops = conv2d_flops<pass>};
}
}  // namespace

constexpr OpDef kConv2d = conv2d_form<ConvolutionPass::kForward>("conv2d", infer_conv2d, conv2d_storage);
constexpr OpDef kConv2dInputGrad = conv2d_form<ConvolutionPass::kInputGradient>(
    "conv2d_input_grad", takes<2, infer_conv2d_input_grad>, reduced<0b11, 0b1>);
constexpr OpDef kConv2dWeightGrad = conv2d_form<ConvolutionPass::kWeightGradient>(
    "conv2d_weight_grad", takes<2, infer_conv2d_weight_grad>, reduced<0b11, 0b0>);

ConvolutionSizes conv2d_sizes(const Shape& x, const Shape& weight, const Shape& y, const Conv2dAttrs& attrs) {
  return {.images = x[0],
      .height = x[1],
      .width = x[2],
      .channels = x[3],
      .filters = weight[0],
      .rows = weight[1],
      .columns = weight[2],
      .out_height = y[1],
      .out_width = y[2],
      .stride = attrs.stride,
      .padding = attrs.padding,
      .dilation = attrs.dilation,
      .groups = attrs.groups};
}

Tensor conv2d(At x, Tensor weight, int64_t stride, int64_t padding, int64_t dilation, int64_t groups) {
  return op_result(kConv2d, x, {weight}, Conv2dAttrs{stride, padding, dilation, groups, {}});
}

Tensor conv2d_transposed(
    At y, Tensor weight, const Shape& result, int64_t stride, int64_t padding, int64_t dilation, int64_t groups) {
  return op_result(kConv2dInputGrad, y, {weight}, Conv2dAttrs{stride, padding, dilation, groups, result});
}

LINNET_KERNELS(conv2d, fast<ConvolutionPass::kForward>(run_forward),
    {"reference", run_conv2d_reference<ConvolutionPass::kForward>, plain_filters})
LINNET_KERNELS(conv2d_input_grad, fast<ConvolutionPass::kInputGradient>(run_conv2d_input_grad),
    {"reference", run_conv2d_reference<ConvolutionPass::kInputGradient>})
LINNET_KERNELS(conv2d_weight_grad, fast<ConvolutionPass::kWeightGradient>(run_conv2d_weight_grad),
    {"reference", run_conv2d_reference<ConvolutionPass::kWeightGradient>})
}  // namespace linnet
