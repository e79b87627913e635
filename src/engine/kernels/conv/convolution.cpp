#include "engine/kernels/conv/convolution.h"
#include <algorithm>
#include "engine/kernels/conv/convolution_calls.h"
#include "engine/kernels/gemm/gemm.h"
#include "engine/kernels/gemm/panels.h"

namespace linnet {
namespace {

using convolution_layout::TapProblem;
using convolution_layout::WeightProblem;
using convolution_layout::WinogradProblem;
using convolution_layout::WinogradWeightProblem;

bool no_work(const ConvolutionSizes& s) {
  for (const int64_t size : {s.images, s.height, s.width, s.channels, s.filters, s.taps(), s.out_height, s.out_width})
    if (size == 0) return true;
  return false;  // the product of all may be a multiple of 2^64
}

bool is_winograd(ConvolutionMethod method) {
  return method == ConvolutionMethod::kWinograd || method == ConvolutionMethod::kWinograd4x4;
}

constexpr int64_t kFewPixels = 256;  // packing the filters of more takes no time beside their product

int64_t pixels(const ConvolutionSizes& s) { return s.images * s.height * s.width; }

// y [pixels, O], x [pixels, C], weight [O, C].
GemmArgs product(const ConvolutionSizes& s, ConvolutionPass pass) {
  GemmArgs g;
  switch (pass) {
    case ConvolutionPass::kForward: g.m = pixels(s), g.n = s.filters, g.k = s.channels, g.trans_b = true; break;
    case ConvolutionPass::kInputGradient: g.m = pixels(s), g.n = s.channels, g.k = s.filters; break;
    case ConvolutionPass::kWeightGradient: g.m = s.filters, g.n = s.channels, g.k = pixels(s), g.trans_a = true; break;
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

TapProblem tap_problem(const ConvolutionSizes& s, bool gradient) {
  return {s, gradient, /*half_pair=*/false, /*grouped=*/!gradient && convolution_layout::is_grouped(s)};
}

// Packs the filters of any method but kProduct.
void pack_filters(const ConvolutionSizes& s, bool gradient, const float* weight, float* packed, float* scratch,
                  ThreadPool& pool) {
  const ConvolutionMethod method = convolution_method(s);
  if (is_winograd(method)) return pack_winograd(WinogradProblem(s, gradient), weight, packed, scratch, pool);
  const TapProblem problem = tap_problem(s, gradient);
  if (problem.grouped || method == ConvolutionMethod::kDepthwise) return pack_depthwise(s, weight, packed);
  pack_taps(problem, weight, packed, pool);
}

void run_taps(const ConvolutionSizes& s, bool gradient, const float* source, const float* weight, float* result,
              std::byte* workspace, ThreadPool& pool, const ConvolutionEpilogue& epilogue = {},
              const float* packed = nullptr) {
  auto* scratch = reinterpret_cast<float*>(workspace);
  const ConvolutionMethod method = convolution_method(s);
  const auto run = [&](const auto& problem, const auto& convolve) {
    if (!packed) {
      float* const own = scratch;
      pack_filters(s, gradient, weight, own, scratch += problem.shared_floats(), pool);
      packed = own;
    }
    convolve(problem, source, packed, result, scratch, pool, epilogue);
  };
  if (is_winograd(method)) return run(WinogradProblem(s, gradient), convolution_by_winograd);
  const TapProblem problem = tap_problem(s, gradient);
  const bool elementwise = problem.grouped || method == ConvolutionMethod::kDepthwise;
  run(problem, elementwise ? depthwise_by_packed_taps : convolution_by_packed_taps);
}

// The product's own epilogue does what it can with the same rounding.
void run_product_forward(const ConvolutionSizes& s, const float* x, const float* weight, float* y, std::byte* workspace,
                         ThreadPool& pool, const ConvolutionEpilogue& epilogue, const float* packed) {
  GemmArgs g = product(s, ConvolutionPass::kForward);
  const bool is_packed = reads_panels(g.m, g.n, g.k);
  if (!is_packed) packed = nullptr;
  g.a = x, g.b = packed ? packed : weight, g.c = y;
  const bool joins = !epilogue.scale && (!epilogue.residual || (is_packed && epilogue.bias));
  if (joins) {
    g.bias = epilogue.bias, g.residual = epilogue.residual, g.bias_first = epilogue.residual != nullptr;
    g.activation = epilogue.activation;
  }
  (packed ? gemm_panels : gemm)(g, workspace, pool);
  if (!joins) convolution_epilogue(epilogue, pixels(s), s.filters, y, pool);
}

}  // namespace

ConvolutionMethod convolution_method(const ConvolutionSizes& s) {
  if (s.groups == 1 && s.taps() == 1 && s.stride == 1 && s.padding == 0) return ConvolutionMethod::kProduct;
  if (s.groups > 1 && s.groups == s.channels && s.groups == s.filters) return ConvolutionMethod::kDepthwise;
  const int64_t tile = convolution_layout::winograd_tile(s);
  if (tile > 0) return tile == 4 ? ConvolutionMethod::kWinograd4x4 : ConvolutionMethod::kWinograd;
  return ConvolutionMethod::kImplicit;
}

int64_t packed_filter_floats(const ConvolutionSizes& s, ConvolutionPass pass) {
  if (no_work(s) || pass == ConvolutionPass::kWeightGradient) return 0;
  const bool gradient = pass == ConvolutionPass::kInputGradient;
  switch (convolution_method(s)) {
    case ConvolutionMethod::kProduct:
      if (gradient || pixels(s) > kFewPixels || !reads_panels(pixels(s), s.filters, s.channels)) return 0;
      return panel_floats(s.filters, s.channels);
    case ConvolutionMethod::kDepthwise:
    case ConvolutionMethod::kImplicit: return tap_problem(s, gradient).shared_floats();
    case ConvolutionMethod::kWinograd:
    case ConvolutionMethod::kWinograd4x4: return WinogradProblem(s, gradient).packed_floats();
  }
  return 0;
}

void pack_convolution_filters(const ConvolutionSizes& s, ConvolutionPass pass, const float* weight, float* packed,
                              std::byte* workspace, ThreadPool& pool) {
  const bool gradient = pass == ConvolutionPass::kInputGradient;
  if (convolution_method(s) == ConvolutionMethod::kProduct)
    return pack_panels_apart({s.filters, s.channels, true, Precision::kF32}, weight, packed, pool);
  pack_filters(s, gradient, weight, packed, reinterpret_cast<float*>(workspace), pool);
}

size_t convolution_workspace(const ConvolutionSizes& s, ConvolutionPass pass, int threads, bool packed) {
  if (no_work(s)) return 0;
  if (convolution_method(s) == ConvolutionMethod::kProduct) {
    const GemmArgs g = product(s, pass);
    return gemm_workspace(1, g.m, g.n, g.k, threads);
  }
  const auto bytes = [&](const auto& problem) {
    return static_cast<size_t>((packed ? 0 : problem.shared_floats()) + threads * problem.scratch_floats()) *
           sizeof(float);
  };
  if (pass == ConvolutionPass::kWeightGradient)
    return convolution_layout::winograd_weight_tile(s) > 0 ? bytes(WinogradWeightProblem(s)) : bytes(WeightProblem(s));
  const bool gradient = pass == ConvolutionPass::kInputGradient;
  if (is_winograd(convolution_method(s))) return bytes(WinogradProblem(s, gradient));
  return bytes(tap_problem(s, gradient));
}

void convolution_forward(const ConvolutionSizes& s, const float* x, const float* weight, float* y, std::byte* workspace,
                         ThreadPool& pool, const ConvolutionEpilogue& epilogue, const float* packed) {
  if (no_work(s)) {
    const int64_t results = s.images * s.out_height * s.out_width;
    std::fill_n(y, results * s.filters, 0.0f);
    if (epilogue.any()) convolution_epilogue(epilogue, results, s.filters, y, pool);
    return;
  }
  if (convolution_method(s) == ConvolutionMethod::kProduct)
    return run_product_forward(s, x, weight, y, workspace, pool, epilogue, packed);
  run_taps(s, false, x, weight, y, workspace, pool, epilogue, packed);
}

void convolution_input_gradient(const ConvolutionSizes& s, const float* dy, const float* weight, float* dx,
                                std::byte* workspace, ThreadPool& pool, const float* packed) {
  if (no_work(s)) return std::fill_n(dx, pixels(s) * s.channels, 0.0f), void();
  if (convolution_method(s) == ConvolutionMethod::kProduct)
    return run_product(s, ConvolutionPass::kInputGradient, dy, weight, dx, workspace, pool);
  run_taps(s, true, dy, weight, dx, workspace, pool, {}, packed);
}

void convolution_weight_gradient(const ConvolutionSizes& s, const float* x, const float* dy, float* dweight,
                                 std::byte* workspace, ThreadPool& pool) {
  if (no_work(s)) return std::fill_n(dweight, s.filters * s.taps() * s.group_channels(), 0.0f), void();
  const ConvolutionMethod method = convolution_method(s);
  if (method == ConvolutionMethod::kProduct)
    return run_product(s, ConvolutionPass::kWeightGradient, dy, x, dweight, workspace, pool);
  if (convolution_layout::winograd_weight_tile(s) > 0)
    return convolution_weights_by_winograd(WinogradWeightProblem(s), x, dy, dweight,
                                           reinterpret_cast<float*>(workspace), pool);
  (method == ConvolutionMethod::kDepthwise ? depthwise_weights_by_pixels : convolution_weights_by_pixels)(
      WeightProblem(s), x, dy, dweight, reinterpret_cast<float*>(workspace), pool);
}

}  // namespace linnet
