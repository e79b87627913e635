#include <algorithm>
#include "base/thread_pool.h"
#include "engine/kernels/conv/max_pool.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/conv/max_pool_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "engine/kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {
using PlaceTag = hn::RebindToSigned<FloatTag>;
using Places = hn::Vec<PlaceTag>;

template <class T> void largest_of_rows(
    const MaxPoolSizes& s, StoredFloats x_rows, MutableStoredFloats y_rows, uint8_t* places, ThreadPool& pool) {
  const T* x = x_rows.as<T>();
  T* y = y_rows.as<T>();
  pool.run(s.images * s.out_height, [&](int64_t task, int) {
    const int64_t row = task / s.out_height * s.height + task % s.out_height * s.stride;
    for (int64_t column = 0; column < s.out_width; ++column) {
      const T* window = x + (row * s.width + column * s.stride) * s.channels;
      const int64_t out = (task * s.out_width + column) * s.channels;
      ForRow(s.channels, [&](const auto& at) LINNET_LAMBDA {
        Floats largest = at.load(window);
        Places where = hn::Zero(PlaceTag());
        for (int64_t i = 0; i < s.size; ++i)
          for (int64_t j = 0; j < s.size; ++j) {
            if (i + j == 0) continue;
            const Floats value = at.load(window + (i * s.width + j) * s.channels);
            const auto is_larger = hn::Or(hn::Gt(value, largest), hn::IsNaN(value));
            largest = hn::IfThenElse(is_larger, value, largest);
            where = hn::IfThenElse(hn::RebindMask(PlaceTag(), is_larger),
                hn::Set(PlaceTag(), static_cast<int32_t>(i * s.size + j)), where);
          }
        at.store(largest, y + out);  // one of the values: nothing is rounded
        at.store_bytes(hn::DemoteTo(ByteTag(), where), places + out);
      });
    }
  });
}

void largest(const MaxPoolSizes& s, StoredFloats x, MutableStoredFloats y, uint8_t* places, ThreadPool& pool) {
  (y.is_bf16 ? largest_of_rows<Bfloat16> : largest_of_rows<float>)(s, x, y, places, pool);
}

// One row of the image at a time, from all windows that meet it: sums are fp32 until the row is complete.
template <class T> void gradient_of_rows(
    const MaxPoolSizes& s, const T* dy, const uint8_t* places, T* dx, float* workspace, ThreadPool& pool) {
  pool.run(s.images * s.height, [&](int64_t task, int worker) {
    const int64_t image = task / s.height, row = task % s.height;
    float* const sums = workspace + worker * s.row_floats();
    std::fill_n(sums, s.row_floats(), 0.0f);
    const int64_t first = std::max<int64_t>(0, (row - s.size + s.stride) / s.stride);
    const int64_t last = std::min(s.out_height - 1, row / s.stride);
    for (int64_t window_row = first; window_row <= last; ++window_row) {
      const int64_t inside = (row - window_row * s.stride) * s.size;  // place of the row's first element in a window
      for (int64_t column = 0; column < s.out_width; ++column) {
        const int64_t from = ((image * s.out_height + window_row) * s.out_width + column) * s.channels;
        float* const to = sums + column * s.stride * s.channels;
        ForRow(s.channels, [&](const auto& at) LINNET_LAMBDA {
          const Floats slope = at.load(dy + from);
          const Places place = hn::PromoteTo(PlaceTag(), at.load_bytes(places + from));
          for (int64_t j = 0; j < s.size; ++j) {
            const auto is_here = hn::Eq(place, hn::Set(PlaceTag(), static_cast<int32_t>(inside + j)));
            const Floats part = hn::IfThenElseZero(hn::RebindMask(FloatTag(), is_here), slope);
            at.store(hn::Add(at.load(to + j * s.channels), part), to + j * s.channels);
          }
        });
      }
    }
    T* const out = dx + task * s.row_floats();
    ForRow(s.row_floats(), [&](const auto& at) LINNET_LAMBDA { at.store(at.load(sums), out); });
  });
}

void gradient(const MaxPoolSizes& s, StoredFloats dy, const uint8_t* places, MutableStoredFloats dx, float* workspace,
    ThreadPool& pool) {
  if (dx.is_bf16) gradient_of_rows(s, dy.bf16(), places, dx.bf16(), workspace, pool);
  else gradient_of_rows(s, dy.f32(), places, dx.f32(), workspace, pool);
}
}  // namespace
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet {
namespace {
HWY_EXPORT(largest);
HWY_EXPORT(gradient);
}  // namespace

void max_pool_forward(
    const MaxPoolSizes& sizes, StoredFloats x, MutableStoredFloats y, uint8_t* places, ThreadPool& pool) {
  HWY_DYNAMIC_DISPATCH(largest)(sizes, x, y, places, pool);
}

void max_pool_backward(const MaxPoolSizes& sizes, StoredFloats dy, const uint8_t* places, MutableStoredFloats dx,
    std::byte* workspace, ThreadPool& pool) {
  HWY_DYNAMIC_DISPATCH(gradient)(sizes, dy, places, dx, reinterpret_cast<float*>(workspace), pool);
}
}  // namespace linnet
#endif
