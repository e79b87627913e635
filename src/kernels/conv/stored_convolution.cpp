#include "kernels/conv/stored_convolution.h"

#include <algorithm>

#include "kernels/parallel.h"

namespace linnet {
namespace {

// fp32 floats of a part's images and results: they stay in the cache that cores share.
constexpr int64_t kPartFloats = 1 << 20;

size_t padded(int64_t floats) { return static_cast<size_t>((floats * 4 + 63) / 64 * 64); }

// How the images are cut, and what the workspace holds: the filters, packed once for all parts; the widened images and
// results of a part; a part's weight gradient; the convolution's own.
struct Parts {
  Parts(const StoredConvolution& c, ConvolutionPass pass, int threads)
      : whole(c.sizes),
        x_floats(whole.height * whole.width * whole.channels),
        y_floats(whole.out_height * whole.out_width * whole.filters),
        images(
            std::clamp<int64_t>(c.any_bf16() ? kPartFloats / std::max<int64_t>(1, x_floats + y_floats) : whole.images,
                                1, std::max<int64_t>(1, whole.images))) {
    const bool several = images < whole.images;
    if (several && !c.packed) packed_floats = packed_filter_floats(whole, pass);
    const bool packed = c.packed || packed_floats > 0;
    size_t at = 0;
    const auto take = [&](int64_t floats) {
      const size_t here = at;
      at += padded(floats);
      return here;
    };
    packed_at = take(packed_floats);
    x_at = take(c.x_bf16 ? images * x_floats : 0);
    y_at = take(c.y_bf16 ? images * y_floats : 0);
    residual_at = take(c.residual_bf16 ? images * y_floats : 0);
    if (pass == ConvolutionPass::kWeightGradient && several)
      dweight_at = take(whole.filters * whole.taps() * whole.group_channels());
    own_at = at;
    // A part is not smaller than the last one, and no size takes less than a smaller one.
    for (const int64_t count : {images, whole.images % images})
      if (count > 0) bytes = std::max(bytes, at + convolution_workspace(sizes(count), pass, threads, packed));
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
  const int64_t x_floats, y_floats, images;  // of an image; of a part
  int64_t packed_floats = 0;
  size_t packed_at = 0, x_at = 0, y_at = 0, residual_at = 0, dweight_at = 0, own_at = 0, bytes = 0;
};

// `count` floats of `from` as fp32: in place, or widened at `room`.
const float* widened(StoredFloats from, int64_t count, std::byte* room, ThreadPool& pool) {
  if (!from.is_bf16) return from.f32();
  auto* const to = reinterpret_cast<float*>(room);
  convert_floats(count, from, to, pool);
  return to;
}

// Has compute(result) write `count` floats, and rounds them where `to` is bf16.
template <class Compute>
void rounded(MutableStoredFloats to, int64_t count, std::byte* room, ThreadPool& pool, const Compute& compute) {
  if (!to.is_bf16) return compute(to.f32());
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
  pack_convolution_filters(parts.sizes(parts.images), pass, weight, packed, workspace + parts.own_at, pool);
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
  parts.for_each([&](const ConvolutionSizes& s, int64_t first) {
    const int64_t results = s.images * parts.y_floats, at = first * parts.y_floats;
    const float* from = widened(x + first * parts.x_floats, s.images * parts.x_floats, workspace + parts.x_at, pool);
    if (residual) epilogue.residual = widened(residual + at, results, workspace + parts.residual_at, pool);
    rounded(y + at, results, workspace + parts.y_at, pool, [&](float* to) {
      convolution_forward(s, from, weight, to, workspace + parts.own_at, pool, epilogue, packed);
    });
  });
}

void stored_convolution_input_gradient(const StoredConvolution& c, StoredFloats dy, const float* weight,
                                       MutableStoredFloats dx, std::byte* workspace, ThreadPool& pool) {
  const Parts parts(c, ConvolutionPass::kInputGradient, pool.size());
  const float* packed = packed_for(parts, ConvolutionPass::kInputGradient, weight, workspace, pool);
  parts.for_each([&](const ConvolutionSizes& s, int64_t first) {
    const float* from = widened(dy + first * parts.y_floats, s.images * parts.y_floats, workspace + parts.y_at, pool);
    rounded(dx + first * parts.x_floats, s.images * parts.x_floats, workspace + parts.x_at, pool, [&](float* to) {
      convolution_input_gradient(s, from, weight, to, workspace + parts.own_at, pool, packed);
    });
  });
}

void stored_convolution_weight_gradient(const StoredConvolution& c, StoredFloats x, StoredFloats dy, float* dweight,
                                        std::byte* workspace, ThreadPool& pool) {
  const Parts parts(c, ConvolutionPass::kWeightGradient, pool.size());
  const int64_t weights = c.sizes.filters * c.sizes.taps() * c.sizes.group_channels();
  parts.for_each([&](const ConvolutionSizes& s, int64_t first) {
    const float* images = widened(x + first * parts.x_floats, s.images * parts.x_floats, workspace + parts.x_at, pool);
    const float* slopes = widened(dy + first * parts.y_floats, s.images * parts.y_floats, workspace + parts.y_at, pool);
    auto* const part = first == 0 ? dweight : reinterpret_cast<float*>(workspace + parts.dweight_at);
    convolution_weight_gradient(s, images, slopes, part, workspace + parts.own_at, pool);
    if (first == 0) return;
    for_ranges(pool, weights, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) dweight[i] += part[i];
    });
  });
}

}  // namespace linnet
