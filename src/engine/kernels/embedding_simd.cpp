#include <algorithm>
#include "engine/kernels/embedding.h"
#include "engine/kernels/parallel.h"

#define HWY_TARGET_INCLUDE "engine/kernels/embedding_simd.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include "engine/kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {
void ScatterColumns(int64_t begin, int64_t end, int64_t count, int64_t width, StoredFloats dy, const int32_t* ids,
    float* dtable, int32_t skipped) {
  constexpr int64_t ahead = 8;  // rows of the table come in no order that a prefetcher could guess
  for (int64_t i = 0; i < count; ++i) {
    if (i + ahead < count) {
      const float* next = dtable + ids[i + ahead] * width;
      for (int64_t j = begin; j < end; j += 16) hwy::Prefetch(next + j);
    }
    if (ids[i] == skipped) continue;
    const StoredFloats from = dy + (i * width + begin);
    float* to = dtable + ids[i] * width + begin;
    ForRow(end - begin, [=](const auto& at) LINNET_LAMBDA { at.store(hn::Add(at.load(to), at.load(from)), to); });
  }
}
}  // namespace
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet {
HWY_EXPORT(ScatterColumns);

void gather_rows(
    int64_t count, int64_t width, const float* table, const int32_t* ids, MutableStoredFloats out, ThreadPool& pool) {
  for_each_index(
      pool, count, width, [&](int64_t i) { convert_floats(width, table + ids[i] * width, out + i * width); });
}

// Tasks own columns, so that no two write the same element; 64 floats are whole cache lines of an aligned table.
void scatter_add_rows(int64_t count, int64_t width, StoredFloats dy, const int32_t* ids, float* dtable,
    ThreadPool& pool, int32_t skipped) {
  const int64_t strip = width >= 256 ? 64 : 32;
  for_ranges(pool, ceil_div(width, strip), count * strip, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(ScatterColumns)
    (begin * strip, std::min(width, end * strip), count, width, dy, ids, dtable, skipped);
  });
}
}  // namespace linnet
#endif
