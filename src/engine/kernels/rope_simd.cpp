#include <algorithm>
#include <numbers>
#include "engine/kernels/parallel.h"
#include "engine/kernels/rope.h"

#define HWY_TARGET_INCLUDE "engine/kernels/rope_simd.cpp"
#include <hwy/foreach_target.h>
#include "engine/kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {
// cos and sin of position * frequencies[i]. In quarter turns the angle is n + r with |r| <= 1/2; Taylor's series to
// 3e-8 on [-pi/4, pi/4].
HWY_INLINE void Turns(
    int64_t half, double position, const double* frequencies, bool inverse, float* cosine, float* sine) {
  constexpr double quarter = std::numbers::pi / 2, magic = 6755399441055744.0;  // 1.5 * 2^52: rounds to an integer
  for (int64_t i = 0; i < half; ++i) {
    const double angle = position * frequencies[i] / quarter, shifted = angle + magic;
    const auto n = static_cast<uint32_t>(std::bit_cast<uint64_t>(shifted));
    const auto x = static_cast<float>((angle - (shifted - magic)) * quarter);
    const float square = x * x;
    const float s =
        x + x * square *
                (-1.66666667e-1f + square * (8.33333333e-3f + square * (-1.98412698e-4f + square * 2.75573192e-6f)));
    const float c =
        1.0f + square * (-0.5f + square * (4.16666667e-2f + square * (-1.38888889e-3f + square * 2.48015873e-5f)));
    const float a = n & 1 ? s : c, b = n & 1 ? c : s;
    cosine[i] = (n + 1) & 2 ? -a : a;
    sine[i] = ((n & 2) != 0) != inverse ? -b : b;
  }
}

// Rows are ordered by position, so that rows of one position are neighbors.
template <class T> void RopeRows(const RopeArgs& args, int64_t begin, int64_t end) {
  const int64_t half = args.half > 0 ? args.half : args.head_size / 2, turned = args.heads * args.head_size;
  HWY_ALIGN float cosine[kRopeMaxHeadSize / 2], sine[kRopeMaxHeadSize / 2];
  int64_t known = -1;
  for (int64_t row = begin; row < end; ++row) {
    const int64_t t = row / args.batch, b = row % args.batch;
    const int64_t position = args.positions ? args.positions[b * args.position_stride + t] : t;
    if (row == begin || position != known) {
      Turns(half, static_cast<double>(position), args.frequencies, args.inverse, cosine, sine);
      for (int64_t i = 0; args.magnitude != 1 && i < half; ++i) cosine[i] *= args.magnitude, sine[i] *= args.magnitude;
    }
    known = position;
    const T* x = args.x.as<T>() + b * args.x_batch_stride + t * args.x_row_stride;
    T* y = args.y.as<T>() + b * args.y_batch_stride + t * args.y_row_stride;
    for (int64_t head = 0; head < turned; head += args.head_size) {
      const T *first = x + head, *second = x + head + half;
      T *first_out = y + head, *second_out = y + head + half;
      ForRow(half, [&](const auto& at) LINNET_LAMBDA {
        const Floats u = at.load(first), v = at.load(second), c = at.load(cosine), s = at.load(sine);
        at.store(hn::NegMulAdd(v, s, hn::Mul(u, c)), first_out);
        at.store(hn::MulAdd(u, s, hn::Mul(v, c)), second_out);
      });
      if (x != y) std::copy(first + 2 * half, first + args.head_size, first_out + 2 * half);
    }
    if (x != y) std::copy(x + turned, x + args.width, y + turned);
  }
}

auto RopeRowsOf(bool bf16) { return bf16 ? RopeRows<Bfloat16> : RopeRows<float>; }
}  // namespace
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet {
HWY_EXPORT(RopeRowsOf);

void rope_rows(const RopeArgs& args, ThreadPool& pool) {
  for_ranges(pool, args.batch * args.length, args.width, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(RopeRowsOf)(args.x.is_bf16)(args, begin, end);
  });
}
}  // namespace linnet
#endif
