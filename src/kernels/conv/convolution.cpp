#include "kernels/conv/convolution.h"

#include <algorithm>

#include "kernels/conv/convolution_calls.h"
#include "kernels/gemm/gemm.h"

namespace linnet {
namespace {

using convolution_layout::TapProblem;
using convolution_layout::WeightProblem;

bool no_work(const ConvolutionSizes& s) {
  return s.images * s.height * s.width * s.channels * s.filters * s.taps() * s.out_height * s.out_width == 0;
}

int64_t pixels(const ConvolutionSizes& s) { return s.images * s.height * s.width; }

// y [pixels, O], x [pixels, C], weight [O, C].
GemmArgs product(const ConvolutionSizes& s, ConvolutionPass pass) {
  GemmArgs g;
  switch (pass) {
    case ConvolutionPass::kForward:
      g.m = pixels(s), g.n = s.filters, g.k = s.channels, g.trans_b = true;
      break;
    case ConvolutionPass::kInputGradient:
      g.m = pixels(s), g.n = s.channels, g.k = s.filters;
      break;
    case ConvolutionPass::kWeightGradient:
      g.m = s.filters, g.n = s.channels, g.k = pixels(s), g.trans_a = true;
      break;
  }
  g.lda = g.trans_a ? g.m : g.k, g.ldb = g.trans_b ? g.k : g.n, g.ldc = g.n;
  return g;
}

void run_product(const ConvolutionSizes& s, ConvolutionPass pass, const float* a, const float* b, float* c,
                 std::byte* workspace, ThreadPool& pool) {
  GemmArgs g = product(s, pass);
  g.a = a, g.b = b, g.c = c;
  gemm(g, workspace, pool);
}

void run_taps(const ConvolutionSizes& s, bool gradient, const float* source, const float* weight, float* result,
              std::byte* workspace, ThreadPool& pool, const ConvolutionEpilogue& epilogue = {}) {
  const TapProblem problem(s, gradient);
  const bool depthwise = convolution_method(s) == ConvolutionMethod::kDepthwise;
  (depthwise ? depthwise_by_taps : convolution_by_taps)(problem, source, weight, result,
                                                        reinterpret_cast<float*>(workspace), pool, epilogue);
}

// The product's own epilogue does what it can with the same rounding.
void run_product_forward(const ConvolutionSizes& s, const float* x, const float* weight, float* y, std::byte* workspace,
                         ThreadPool& pool, const ConvolutionEpilogue& epilogue) {
  GemmArgs g = product(s, ConvolutionPass::kForward);
  g.a = x, g.b = weight, g.c = y;
  const bool plain = !epilogue.scale && !epilogue.residual;
  if (plain) {
    g.bias = epilogue.bias;
    if (epilogue.relu) g.activation = GemmActivation::kRelu;
  }
  gemm(g, workspace, pool);
  if (!plain) convolution_epilogue(epilogue, pixels(s), s.filters, y, pool);
}

}  // namespace

ConvolutionMethod convolution_method(const ConvolutionSizes& s) {
  if (s.groups == 1 && s.taps() == 1 && s.stride == 1 && s.padding == 0) return ConvolutionMethod::kProduct;
  if (s.groups > 1 && s.groups == s.channels && s.groups == s.filters) return ConvolutionMethod::kDepthwise;
  return ConvolutionMethod::kImplicit;
}

size_t convolution_workspace(const ConvolutionSizes& s, ConvolutionPass pass, int threads) {
  if (no_work(s)) return 0;
  if (convolution_method(s) == ConvolutionMethod::kProduct) {
    const GemmArgs g = product(s, pass);
    return gemm_workspace(1, g.m, g.n, g.k, threads);
  }
  const auto bytes = [&](const auto& problem) {
    return static_cast<size_t>(problem.shared_floats() + threads * problem.scratch_floats()) * sizeof(float);
  };
  if (pass == ConvolutionPass::kWeightGradient) return bytes(WeightProblem(s));
  return bytes(TapProblem(s, pass == ConvolutionPass::kInputGradient));
}

void convolution_forward(const ConvolutionSizes& s, const float* x, const float* weight, float* y, std::byte* workspace,
                         ThreadPool& pool, const ConvolutionEpilogue& epilogue) {
  if (no_work(s)) {
    const int64_t results = s.images * s.out_height * s.out_width;
    std::fill_n(y, results * s.filters, 0.0f);
    if (epilogue.any()) convolution_epilogue(epilogue, results, s.filters, y, pool);
    return;
  }
  if (convolution_method(s) == ConvolutionMethod::kProduct)
    return run_product_forward(s, x, weight, y, workspace, pool, epilogue);
  run_taps(s, false, x, weight, y, workspace, pool, epilogue);
}

void convolution_input_gradient(const ConvolutionSizes& s, const float* dy, const float* weight, float* dx,
                                std::byte* workspace, ThreadPool& pool) {
  if (no_work(s)) return std::fill_n(dx, pixels(s) * s.channels, 0.0f), void();
  if (convolution_method(s) == ConvolutionMethod::kProduct)
    return run_product(s, ConvolutionPass::kInputGradient, dy, weight, dx, workspace, pool);
  run_taps(s, true, dy, weight, dx, workspace, pool);
}

void convolution_weight_gradient(const ConvolutionSizes& s, const float* x, const float* dy, float* dweight,
                                 std::byte* workspace, ThreadPool& pool) {
  if (no_work(s)) return std::fill_n(dweight, s.filters * s.taps() * s.group_channels(), 0.0f), void();
  const ConvolutionMethod method = convolution_method(s);
  if (method == ConvolutionMethod::kProduct)
    return run_product(s, ConvolutionPass::kWeightGradient, dy, x, dweight, workspace, pool);
  (method == ConvolutionMethod::kDepthwise ? depthwise_weights_by_pixels : convolution_weights_by_pixels)(
      WeightProblem(s), x, dy, dweight, reinterpret_cast<float*>(workspace), pool);
}

}  // namespace linnet
