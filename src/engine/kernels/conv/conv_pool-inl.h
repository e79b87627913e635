// Images as the kernels of conv_pool.h read them. Included by *_simd.cpp after "hwy/foreach_target.h".
#if defined(LINNET_KERNELS_CONV_POOL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_KERNELS_CONV_POOL_INL_H_
#undef LINNET_KERNELS_CONV_POOL_INL_H_
#else
#define LINNET_KERNELS_CONV_POOL_INL_H_
#endif

#include <algorithm>
#include "engine/kernels/conv/conv_pool_layout.h"
#include "engine/kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {

using Words = hn::Rebind<uint32_t, FloatTag>;

HWY_INLINE Floats FloatsOfBytes(const uint8_t* p, Floats scale, Floats shift) {
  const hn::Rebind<int32_t, FloatTag> integers;
  return hn::MulAdd(hn::ConvertTo(FloatTag(), hn::PromoteTo(integers, hn::LoadU(ByteTag(), p))), scale, shift);
}

// Row `row` of an image, channel `channel`, to out [width].
HWY_INLINE void CopyRow(const ConvPoolShape& s, const ConvPoolImages& x, int64_t row, int64_t channel, float* out) {
  const int64_t first = row * s.width * s.channels + channel;
  if (s.channels > 1) {
    for (int64_t j = 0; j < s.width; ++j) {
      const int64_t location = first + j * s.channels;
      out[j] =
          x.bytes ? static_cast<float>(x.bytes[location]) * x.scale[channel] + x.shift[channel] : x.floats[location];
    }
    return;
  }
  if (!x.bytes) return std::copy_n(x.floats + first, s.width, out), void();
  if (s.width < kFloatLanes) {
    for (int64_t j = 0; j < s.width; ++j) out[j] = static_cast<float>(x.bytes[first + j]) * x.scale[0] + x.shift[0];
    return;
  }
  const Floats scale = SetAll(x.scale[0]), shift = SetAll(x.shift[0]);
  for (int64_t j = 0; j < s.width; j += kFloatLanes) {
    const int64_t from = std::min(j, s.width - kFloatLanes);  // the last vector overlaps the one before
    StoreFloats(FloatsOfBytes(x.bytes + first + from, scale, shift), out + from);
  }
}

// Image `image` of x as planes [channels, plane_rows, row_floats]: pixel (row, column) of a channel at
// (row + 1, column + 1). The rest has to be zero, and is not touched.
HWY_INLINE void CopyImage(const ConvPoolShape& s, ConvPoolImages x, int64_t image, float* planes) {
  using namespace conv_pool_layout;
  const int64_t stride = row_floats(s), offset = image * s.height * s.width * s.channels;
  if (x.bytes) x.bytes += offset;
  if (x.floats) x.floats += offset;
  for (int64_t channel = 0; channel < s.channels; ++channel, planes += plane_floats(s))
    for (int64_t row = 0; row < std::min(s.height, plane_rows(s) - 1); ++row)
      CopyRow(s, x, row, channel, planes + (row + 1) * stride + 1);
}

}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
