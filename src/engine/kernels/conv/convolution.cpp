#include "engine/kernels/conv/convolution.h"
#include "base/error.h"
#include "base/numbers.h"
#include "engine/kernels/conv/convolution_layout.h"
#include "engine/kernels/parallel.h"

namespace linnet {
namespace {
using namespace convolution_layout;

bool no_work(const ConvolutionSizes& s) {
  for (const int64_t size : {s.images, s.height, s.width, s.channels, s.filters, s.taps(), s.out_height, s.out_width})
    if (size == 0) return true;
  return false;  // the product of all may be a multiple of 2^64
}

constexpr int64_t kFewPixels = 256;  // packing the filters of more takes no time beside their product

int64_t pixels(const ConvolutionSizes& s) { return s.images * s.height * s.width; }
bool is_product(const ConvolutionSizes& s) { return convolution_method(s) == ConvolutionMethod::kProduct; }

GemmArgs product(const ConvolutionSizes& s, ConvolutionPass pass) {  // y [pixels, O], x [pixels, C], weight [O, C]
  GemmArgs g;
  switch (pass) {
    case ConvolutionPass::kForward: g.m = pixels(s), g.n = s.filters, g.k = s.channels, g.trans_b = true; break;
    case ConvolutionPass::kInputGradient: g.m = pixels(s), g.n = s.channels, g.k = s.filters; break;
    case ConvolutionPass::kWeightGradient: g.m = s.filters, g.n = s.channels, g.k = pixels(s), g.trans_a = true; break;
  }
  g.lda = g.trans_a ? g.m : g.k, g.ldb = g.trans_b ? g.k : g.n, g.ldc = g.n;
  return g;
}

void run_product(const ConvolutionSizes& s, ConvolutionPass pass, StoredFloats a, StoredFloats b, MutableStoredFloats c,
    std::byte* workspace, ThreadPool& pool) {
  GemmArgs g = product(s, pass);
  g.a = a, g.b = b, g.c = c;
  gemm(g, workspace, pool);
}

// In bf16, an image of pairs of channels.
TapProblem tap_problem(ConvolutionSizes s, bool gradient, bool bf16) {
  if (!bf16) return {s, gradient, /*half_pair=*/false, /*grouped=*/!gradient && is_grouped(s)};
  int64_t& channels = gradient ? s.filters : s.channels;
  const bool half_pair = channels % 2 == 1;
  channels = ceil_div(channels, 2);
  return {s, gradient, half_pair};
}

const ConvolutionKernels& kernels(bool bf16) {
  const ConvolutionKernels* found = bf16 ? bf16_convolution_kernels() : fp32_convolution_kernels();
  if (!found) fail_internal("a convolution in bf16 on a processor without bf16 instructions");
  return *found;
}

// visit(problem, its packing function, its compute function), for the forward pass or the input gradient.
template <class Visit> auto with_problem(const ConvolutionSizes& s, bool gradient, bool bf16, const Visit& visit) {
  const ConvolutionKernels& by = kernels(bf16);
  const int64_t pair = bf16 ? 2 : 1;
  if (winograd_tile(s, pair) > 0) return visit(WinogradProblem(s, gradient, pair), by.pack_winograd, by.winograd);
  const TapProblem problem = tap_problem(s, gradient, bf16);
  return problem.is_elementwise() ? visit(problem, pack_depthwise, depthwise_taps)
                                  : visit(problem, by.pack_taps, by.taps);
}

// visit(problem, its compute function), for the weight gradient.
template <class Visit> auto with_weight_problem(const ConvolutionSizes& s, bool bf16, const Visit& visit) {
  const int64_t pair = bf16 ? 2 : 1;
  if (winograd_weight_tile(s, pair) > 0) return visit(WinogradWeightProblem(s, pair), kernels(bf16).winograd_weights);
  return visit(WeightProblem(s, pair), is_depthwise(s) ? depthwise_weights : kernels(bf16).weights);
}

void run_taps(const ConvolutionSizes& s, bool gradient, StoredFloats source, const float* weight,
    MutableStoredFloats result, std::byte* workspace, ThreadPool& pool, const ConvolutionEpilogue& epilogue,
    const float* packed) {
  with_problem(s, gradient, source.is_bf16, [&](const auto& problem, auto pack, auto convolve) {
    auto* scratch = reinterpret_cast<float*>(workspace);
    if (!packed) {
      float* const own = scratch;
      scratch += problem.shared_floats();
      pack({problem, weight, own, scratch}, pool);
      packed = own;
    }
    convolve({problem, source, packed, result, scratch, epilogue}, pool);
  });
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
  const int64_t tile = winograd_tile(s);
  if (tile > 0) return tile == 4 ? ConvolutionMethod::kWinograd4x4 : ConvolutionMethod::kWinograd;
  return ConvolutionMethod::kImplicit;
}

int64_t packed_filter_floats(const ConvolutionSizes& s, ConvolutionPass pass, bool bf16) {
  if (no_work(s) || pass == ConvolutionPass::kWeightGradient) return 0;
  const bool gradient = pass == ConvolutionPass::kInputGradient;
  if (is_product(s)) {
    if (gradient || pixels(s) > kFewPixels || !reads_panels(pixels(s), s.filters, s.channels)) return 0;
    return panel_floats(s.filters, s.channels);
  }
  return with_problem(s, gradient, bf16, [](const auto& problem, auto, auto) { return problem.shared_floats(); });
}

void pack_convolution_filters(const ConvolutionSizes& s, ConvolutionPass pass, const float* weight, float* packed,
    std::byte* workspace, ThreadPool& pool, bool bf16) {
  if (is_product(s)) return pack_panels_apart({s.filters, s.channels, true, Precision::kF32}, weight, packed, pool);
  with_problem(s, pass == ConvolutionPass::kInputGradient, bf16, [&](const auto& problem, auto pack, auto) {
    pack({problem, weight, packed, reinterpret_cast<float*>(workspace)}, pool);
  });
}

namespace {
// Whether the processor has products in bf16 and the pass is a sum of pairs: a convolution without groups, with several
// channels (forward) or an even number of filters (input gradient), and not kProduct.
bool has_bf16_convolution(const ConvolutionSizes& s, ConvolutionPass pass) {
  const bool paired = pass == ConvolutionPass::kForward         ? s.channels > 1
                      : pass == ConvolutionPass::kInputGradient ? s.filters % 2 == 0
                                                                : true;
  return bf16_convolution_kernels() && !no_work(s) && s.groups == 1 && paired && !is_product(s);
}

bool convolution_stores_bf16(const ConvolutionSizes& s, ConvolutionPass pass) {
  return winograd_tile(s, 2) > 0 || tap_problem(s, pass == ConvolutionPass::kInputGradient, true).sums_are_whole();
}

// Of a part of the images, whose types in memory are those of the products.
size_t part_workspace(const ConvolutionSizes& s, ConvolutionPass pass, int threads, bool packed, bool bf16) {
  if (no_work(s)) return 0;
  if (is_product(s)) {
    const GemmArgs g = product(s, pass);
    return gemm_workspace(1, g.m, g.n, g.k, threads);
  }
  const auto bytes = [&](const auto& problem, auto...) {
    return static_cast<size_t>((packed ? 0 : problem.shared_floats()) + threads * problem.scratch_floats()) *
           sizeof(float);
  };
  if (pass == ConvolutionPass::kWeightGradient) return with_weight_problem(s, bf16, bytes);
  return with_problem(s, pass == ConvolutionPass::kInputGradient, bf16, bytes);
}

// fp32 floats of a part's images and results: they stay in the shared cache.
constexpr int64_t kPartFloats = 1 << 20;

// Divides the images and the workspace: the filters, packed once for all parts; a part's converted operands and
// results; its weight gradient; the convolution's own.
struct Parts {
  Parts(const Convolution& c, ConvolutionPass pass, int threads, std::byte* workspace = nullptr)
      : whole(c.sizes), pairs(c.bf16_products && !c.packed && has_bf16_convolution(c.sizes, pass)),
        stores_bf16(pairs && pass != ConvolutionPass::kWeightGradient && convolution_stores_bf16(c.sizes, pass)),
        x_floats(whole.height * whole.width * whole.channels),
        y_floats(whole.out_height * whole.out_width * whole.filters) {
    // Operands are converted to the products' type, results from fp32 if the convolution cannot store bf16.
    const bool x = pass == ConvolutionPass::kInputGradient ? c.x_bf16 && !stores_bf16 : c.x_bf16 != pairs;
    const bool y = pass == ConvolutionPass::kForward ? c.y_bf16 && !stores_bf16 : c.y_bf16 != pairs;
    images = std::max<int64_t>(1, whole.images);
    if (x || y || c.residual_bf16)
      images = std::clamp<int64_t>(kPartFloats / std::max<int64_t>(1, x_floats + y_floats), 1, images);
    const bool several = images < whole.images;
    if (pairs || (several && !c.packed)) packed_floats = packed_filter_floats(whole, pass, pairs);
    Regions regions(workspace);
    packed = regions.take<float>(packed_floats);
    x_room = regions.take<float>(x ? images * x_floats : 0);
    y_room = regions.take<float>(y ? images * y_floats : 0);
    residual_room = regions.take<float>(c.residual_bf16 ? images * y_floats : 0);
    if (pass == ConvolutionPass::kWeightGradient && several)
      dweight = regions.take<float>(whole.filters * whole.taps() * whole.group_channels());
    if (workspace) own = regions.rest();
    for (const int64_t count : {images, whole.images % images})
      bytes = std::max(
          bytes, regions.size() + part_workspace(sizes(count), pass, threads, c.packed || packed_floats > 0, pairs));
  }

  ConvolutionSizes sizes(int64_t count) const {
    ConvolutionSizes part = whole;
    part.images = count;
    return part;
  }

  // body(sizes of the part, its first image)
  template <class Body> void for_each(const Body& body) const {
    if (whole.images == 0) return body(whole, 0);
    for (int64_t first = 0; first < whole.images; first += images)
      body(sizes(std::min(images, whole.images - first)), first);
  }

  const ConvolutionSizes whole;
  const bool pairs;                  // bf16 is multiplied
  const bool stores_bf16;            // results are rounded by the convolution
  const int64_t x_floats, y_floats;  // of an image
  int64_t images = 1, packed_floats = 0;
  float *packed, *x_room, *y_room, *residual_room, *dweight = nullptr;
  std::byte* own = nullptr;
  size_t bytes = 0;
};

// `count` floats of `from` in the wanted type: in place, or converted into `room`.
StoredFloats stored_as(bool bf16, StoredFloats from, int64_t count, float* room, ThreadPool& pool) {
  if (from.is_bf16 == bf16) return from;
  convert_floats(count, from, {room, bf16}, pool);
  return {room, bf16};
}

// Lets compute(result) write `count` floats, and rounds them if `to` is bf16 and compute() does not.
template <class Compute> void rounded(
    const Parts& parts, MutableStoredFloats to, int64_t count, float* room, ThreadPool& pool, const Compute& compute) {
  if (!to.is_bf16 || parts.stores_bf16) return compute(to);
  compute(room);
  convert_floats(count, room, to, pool);
}

// The packed filters for all parts, the caller's or packed here; null if the convolution reads them as they are.
const float* packed_for(
    const Parts& parts, ConvolutionPass pass, const float* weight, ThreadPool& pool, const float* given = nullptr) {
  if (given || parts.packed_floats == 0) return given;
  pack_convolution_filters(parts.sizes(parts.images), pass, weight, parts.packed, parts.own, pool, parts.pairs);
  return parts.packed;
}
}  // namespace

size_t convolution_workspace(const Convolution& c, ConvolutionPass pass, int threads) {
  return Parts(c, pass, threads).bytes;
}

void convolution_forward(const Convolution& c, StoredFloats x, const float* weight, MutableStoredFloats y,
    std::byte* workspace, ThreadPool& pool, ConvolutionEpilogue epilogue, StoredFloats residual, const float* packed) {
  const Parts parts(c, ConvolutionPass::kForward, pool.size(), workspace);
  packed = packed_for(parts, ConvolutionPass::kForward, weight, pool, packed);
  parts.for_each([&](const ConvolutionSizes& s, int64_t first) {
    const int64_t images = s.images * parts.x_floats, results = s.images * parts.y_floats;
    if (residual)
      epilogue.residual = stored_as(false, residual + first * parts.y_floats, results, parts.residual_room, pool).f32();
    rounded(parts, y + first * parts.y_floats, results, parts.y_room, pool, [&](MutableStoredFloats to) {
      if (no_work(s)) {
        std::fill_n(to.f32(), results, 0.0f);
        if (epilogue.any())
          convolution_epilogue(epilogue, s.images * s.out_height * s.out_width, s.filters, to.f32(), pool);
        return;
      }
      const StoredFloats read = stored_as(parts.pairs, x + first * parts.x_floats, images, parts.x_room, pool);
      if (is_product(s)) run_product_forward(s, read.f32(), weight, to.f32(), parts.own, pool, epilogue, packed);
      else run_taps(s, false, read, weight, to, parts.own, pool, epilogue, packed);
    });
  });
}

void convolution_input_gradient(const Convolution& c, StoredFloats dy, const float* weight, MutableStoredFloats dx,
    std::byte* workspace, ThreadPool& pool) {
  const Parts parts(c, ConvolutionPass::kInputGradient, pool.size(), workspace);
  const float* packed = packed_for(parts, ConvolutionPass::kInputGradient, weight, pool);
  parts.for_each([&](const ConvolutionSizes& s, int64_t first) {
    const int64_t images = s.images * parts.x_floats, results = s.images * parts.y_floats;
    rounded(parts, dx + first * parts.x_floats, images, parts.x_room, pool, [&](MutableStoredFloats to) {
      if (no_work(s)) return std::fill_n(to.f32(), images, 0.0f), void();
      const StoredFloats read = stored_as(parts.pairs, dy + first * parts.y_floats, results, parts.y_room, pool);
      if (is_product(s)) run_product(s, ConvolutionPass::kInputGradient, read, weight, to, parts.own, pool);
      else run_taps(s, true, read, weight, to, parts.own, pool, {}, packed);
    });
  });
}

void convolution_weight_gradient(
    const Convolution& c, StoredFloats x, StoredFloats dy, float* dweight, std::byte* workspace, ThreadPool& pool) {
  const Parts parts(c, ConvolutionPass::kWeightGradient, pool.size(), workspace);
  const int64_t weights = c.sizes.filters * c.sizes.taps() * c.sizes.group_channels();
  parts.for_each([&](const ConvolutionSizes& s, int64_t first) {
    const int64_t images = s.images * parts.x_floats, results = s.images * parts.y_floats;
    float* const part = first == 0 ? dweight : parts.dweight;
    const StoredFloats x_part = stored_as(parts.pairs, x + first * parts.x_floats, images, parts.x_room, pool);
    const StoredFloats dy_part = stored_as(parts.pairs, dy + first * parts.y_floats, results, parts.y_room, pool);
    if (no_work(s)) {
      std::fill_n(part, weights, 0.0f);
    } else if (is_product(s)) {
      run_product(s, ConvolutionPass::kWeightGradient, dy_part, x_part, part, parts.own, pool);
    } else {
      with_weight_problem(s, x_part.is_bf16, [&](const auto& problem, auto compute) {
        auto* const sums = reinterpret_cast<float*>(parts.own);
        compute({problem, x_part, dy_part, part, sums, sums + problem.shared_floats()}, pool);
      });
    }
    if (first == 0) return;
    for_each_index(pool, weights, 1, [&](int64_t i) { dweight[i] += part[i]; });
  });
}
}  // namespace linnet
