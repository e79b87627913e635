#include "engine/kernels/conv/stored_convolution.h"
#include <algorithm>
#include "base/numbers.h"
#include "engine/kernels/parallel.h"

namespace linnet {
namespace {

// fp32 floats of a part's images and results: they stay in the cache that cores share.
constexpr int64_t kPartFloats = 1 << 20;

// How the images are cut, and what the workspace holds: the filters, packed once for all parts; what of a part is
// converted before or after; a part's weight gradient; the convolution's own.
struct Parts {
  Parts(const StoredConvolution& c, ConvolutionPass pass, int threads)
      : whole(c.sizes),
        pairs(c.bf16_products && !c.packed && has_bf16_convolution(c.sizes, pass)),
        stores_bf16(pairs && pass != ConvolutionPass::kWeightGradient && convolution_stores_bf16(c.sizes, pass)),
        x_floats(whole.height * whole.width * whole.channels),
        y_floats(whole.out_height * whole.out_width * whole.filters) {
    // Operands are converted to what is multiplied, results from fp32 where the convolution stores that alone.
    const bool x = pass == ConvolutionPass::kInputGradient ? c.x_bf16 && !stores_bf16 : c.x_bf16 != pairs;
    const bool y = pass == ConvolutionPass::kForward ? c.y_bf16 && !stores_bf16 : c.y_bf16 != pairs;
    images = std::max<int64_t>(1, whole.images);
    if (x || y || c.residual_bf16)
      images = std::clamp<int64_t>(kPartFloats / std::max<int64_t>(1, x_floats + y_floats), 1, images);
    const bool several = images < whole.images;
    if (pairs || (several && !c.packed)) packed_floats = packed_filter_floats(whole, pass, pairs);
    size_t at = 0;
    const auto take = [&](int64_t floats) {
      const size_t here = at;
      at += static_cast<size_t>(round_up(floats * 4, 64));
      return here;
    };
    packed_at = take(packed_floats);
    x_at = take(x ? images * x_floats : 0);
    y_at = take(y ? images * y_floats : 0);
    residual_at = take(c.residual_bf16 ? images * y_floats : 0);
    if (pass == ConvolutionPass::kWeightGradient && several)
      dweight_at = take(whole.filters * whole.taps() * whole.group_channels());
    own_at = at;
    for (const int64_t count : {images, whole.images % images}) {
      const size_t own = convolution_workspace(sizes(count), pass, threads, c.packed || packed_floats > 0, pairs);
      bytes = std::max(bytes, at + own);
    }
  }

  ConvolutionSizes sizes(int64_t count) const {
    ConvolutionSizes part = whole;
    part.images = count;
    return part;
  }

  // body(sizes of the part, its first image)
  template <class Body>
  void for_each(const Body& body) const {
    if (whole.images == 0) return body(whole, 0);
    for (int64_t first = 0; first < whole.images; first += images)
      body(sizes(std::min(images, whole.images - first)), first);
  }

  const ConvolutionSizes whole;
  const bool pairs;                  // bf16 is multiplied
  const bool stores_bf16;            // results are rounded by the convolution
  const int64_t x_floats, y_floats;  // of an image
  int64_t images = 1, packed_floats = 0;
  size_t packed_at = 0, x_at = 0, y_at = 0, residual_at = 0, dweight_at = 0, own_at = 0, bytes = 0;
};

// `count` floats of `from` in the type that is asked for: in place, or converted into `room`.
StoredFloats stored_as(bool bf16, StoredFloats from, int64_t count, std::byte* room, ThreadPool& pool) {
  if (from.is_bf16 == bf16) return from;
  convert_floats(count, from, {room, bf16}, pool);
  return {room, bf16};
}

// Has compute(result) write `count` floats, and rounds them where `to` is bf16 and compute() does not.
template <class Compute>
void rounded(const Parts& parts, MutableStoredFloats to, int64_t count, std::byte* room, ThreadPool& pool,
             const Compute& compute) {
  if (!to.is_bf16 || parts.stores_bf16) return compute(to);
  auto* const result = reinterpret_cast<float*>(room);
  compute(result);
  convert_floats(count, result, to, pool);
}

// The filters, packed for all parts: the caller's, or those packed here; null where a convolution reads them as they
// are.
const float* packed_for(const Parts& parts, ConvolutionPass pass, const float* weight, std::byte* workspace,
                        ThreadPool& pool, const float* given = nullptr) {
  if (given || parts.packed_floats == 0) return given;
  auto* const packed = reinterpret_cast<float*>(workspace + parts.packed_at);
  pack_convolution_filters(parts.sizes(parts.images), pass, weight, packed, workspace + parts.own_at, pool,
                           parts.pairs);
  return packed;
}

}  // namespace

size_t stored_convolution_workspace(const StoredConvolution& c, ConvolutionPass pass, int threads) {
  return Parts(c, pass, threads).bytes;
}

void stored_convolution_forward(const StoredConvolution& c, StoredFloats x, const float* weight, MutableStoredFloats y,
                                std::byte* workspace, ThreadPool& pool, ConvolutionEpilogue epilogue,
                                StoredFloats residual, const float* packed) {
  const Parts parts(c, ConvolutionPass::kForward, pool.size());
  packed = packed_for(parts, ConvolutionPass::kForward, weight, workspace, pool, packed);
  std::byte *const x_room = workspace + parts.x_at, *const own = workspace + parts.own_at;
  parts.for_each([&](const ConvolutionSizes& s, int64_t first) {
    const int64_t images = s.images * parts.x_floats, results = s.images * parts.y_floats;
    const StoredFloats from = x + first * parts.x_floats;
    if (residual)
      epilogue.residual =
          stored_as(false, residual + first * parts.y_floats, results, workspace + parts.residual_at, pool).f32();
    rounded(parts, y + first * parts.y_floats, results, workspace + parts.y_at, pool, [&](MutableStoredFloats to) {
      convolution_forward(s, stored_as(parts.pairs, from, images, x_room, pool), weight, to, own, pool, epilogue,
                          packed);
    });
  });
}

void stored_convolution_input_gradient(const StoredConvolution& c, StoredFloats dy, const float* weight,
                                       MutableStoredFloats dx, std::byte* workspace, ThreadPool& pool) {
  const Parts parts(c, ConvolutionPass::kInputGradient, pool.size());
  const float* packed = packed_for(parts, ConvolutionPass::kInputGradient, weight, workspace, pool);
  std::byte *const y_room = workspace + parts.y_at, *const own = workspace + parts.own_at;
  parts.for_each([&](const ConvolutionSizes& s, int64_t first) {
    const int64_t results = s.images * parts.y_floats;
    const StoredFloats from = dy + first * parts.y_floats;
    const int64_t images = s.images * parts.x_floats;
    rounded(parts, dx + first * parts.x_floats, images, workspace + parts.x_at, pool, [&](MutableStoredFloats to) {
      convolution_input_gradient(s, stored_as(parts.pairs, from, results, y_room, pool), weight, to, own, pool, packed);
    });
  });
}

void stored_convolution_weight_gradient(const StoredConvolution& c, StoredFloats x, StoredFloats dy, float* dweight,
                                        std::byte* workspace, ThreadPool& pool) {
  const Parts parts(c, ConvolutionPass::kWeightGradient, pool.size());
  const int64_t weights = c.sizes.filters * c.sizes.taps() * c.sizes.group_channels();
  std::byte *const x_room = workspace + parts.x_at, *const y_room = workspace + parts.y_at;
  std::byte* const own = workspace + parts.own_at;
  parts.for_each([&](const ConvolutionSizes& s, int64_t first) {
    const int64_t images = s.images * parts.x_floats, results = s.images * parts.y_floats;
    const StoredFloats from = x + first * parts.x_floats, slopes = dy + first * parts.y_floats;
    auto* const part = first == 0 ? dweight : reinterpret_cast<float*>(workspace + parts.dweight_at);
    convolution_weight_gradient(s, stored_as(parts.pairs, from, images, x_room, pool),
                                stored_as(parts.pairs, slopes, results, y_room, pool), part, own, pool);
    if (first == 0) return;
    for_ranges(pool, weights, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) dweight[i] += part[i];
    });
  });
}

}  // namespace linnet
