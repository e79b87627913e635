// The decoding cache on the device, where positions and parents are read.

#include "engine/kernels/cuda/copy.cuh"
#include "engine/kernels/cuda/storage.cuh"
#include "engine/ops/cache/cache.h"

namespace linnet {
namespace {
// Rows of a group that a thread holds at once.
constexpr int kMaxGroup = 16;

// A position beyond the cache writes nothing.
template <class Word> LINNET_DEVICE void write_word(int64_t i, int64_t length, int64_t width, const Word* from,
    int64_t from_stride, const int32_t* positions, bool one_position, Word* cache) {
  const auto [row, column] = divided(i, width);
  const int64_t position = positions[one_position ? 0 : row];
  if (position >= 0 && position < length)
    cache[(row * length + position) * width + column] = from[row * from_stride + column];
}

// rows [count, entries, width] with strides between rows and entries; a slot beyond the cache is not written.
template <class Word> LINNET_DEVICE void fill_word(int64_t i, int64_t entries, int64_t width, const Word* from,
    int64_t row_stride, int64_t entry_stride, const int32_t* slots, int64_t cache_rows, int64_t length, Word* cache) {
  const auto [entry, column] = divided(i, width);
  const auto [row, t] = divided(entry, entries);
  const int64_t slot = slots[row];
  if (slot >= 0 && slot < cache_rows)
    cache[(slot * length + t) * width + column] = from[row * row_stride + t * entry_stride + column];
}

// cache [rows, length, width]; a thread for one element of a whole group, so that it works in place.
template <class Word> LINNET_DEVICE void reorder_word(int64_t i, int group, int64_t length, int64_t width,
    const int32_t* parents, const int32_t* positions, int64_t position_count, const Word* from, Word* to) {
  const int64_t row_size = length * width;
  const auto [which, location] = divided(i, row_size);
  const int64_t start = which * group;
  int64_t used = 0;
  const bool one_position = position_count == 1;
  for (int64_t k = 0; k < (one_position ? 1 : group); ++k)
    used = max(used, static_cast<int64_t>(positions[one_position ? 0 : start + k]));
  const bool moved = location < used * width;
  if (!moved && from == to) return;
  Word words[kMaxGroup];
#pragma unroll
  for (int r = 0; r < kMaxGroup; ++r)
    if (r < group) {
      const int64_t parent = parents[start + r];
      // Ignores a parent outside its group.
      const bool known = moved && parent >= start && parent < start + group;
      words[r] = from[(known ? parent : start + r) * row_size + location];
    }
#pragma unroll
  for (int r = 0; r < kMaxGroup; ++r)
    if (r < group) to[(start + r) * row_size + location] = words[r];
}

// Calls body.operator()<Word>(words per row of `width` elements) with the widest word that divides rows.
template <class Body> void for_words(const TensorView& cache, int64_t width, uintptr_t locations, Body&& body) {
  const int64_t bytes = width * cache.element_size();
  if (bytes % 16 == 0 && locations % 16 == 0) return body.template operator()<Word16>(bytes / 16);
  if (bytes % 4 == 0 && locations % 4 == 0) return body.template operator()<uint32_t>(bytes / 4);
  body.template operator()<uint16_t>(bytes / 2);
}

void run_write(const KernelArgs& args) {
  copy_operand_on_device(args, args.in[0], args.out[0]);
  const TensorView &rows = args.in[1], &cache = args.out[0];
  const Shape& shape = cache.shape();
  const int64_t stride_bytes = rows.strides[0] * rows.element_size();
  const auto locations = reinterpret_cast<uintptr_t>(rows.data) | reinterpret_cast<uintptr_t>(cache.data) |
                         static_cast<uintptr_t>(stride_bytes);
  for_words(cache, shape[2], locations, [&]<class Word>(int64_t width) {
    launch_elements<write_word<Word>>(args.device, shape[0] * width, shape[1], width, rows.as<const Word>(),
        stride_bytes / static_cast<int64_t>(sizeof(Word)), args.in[2].as<int32_t>(), args.in[2].elements() == 1,
        cache.as<Word>());
  });
}

void run_fill(const KernelArgs& args) {
  copy_operand_on_device(args, args.in[0], args.out[0]);
  const TensorView &rows = args.in[1], &cache = args.out[0];
  const Shape &from = rows.shape(), &shape = cache.shape();
  const int64_t row_bytes = rows.strides[0] * rows.element_size(), entry_bytes = rows.strides[1] * rows.element_size();
  const auto locations = reinterpret_cast<uintptr_t>(rows.data) | reinterpret_cast<uintptr_t>(cache.data) |
                         static_cast<uintptr_t>(row_bytes) | static_cast<uintptr_t>(entry_bytes);
  for_words(cache, shape[2], locations, [&]<class Word>(int64_t width) {
    const auto word = static_cast<int64_t>(sizeof(Word));
    launch_elements<fill_word<Word>>(args.device, from[0] * from[1] * width, from[1], width, rows.as<const Word>(),
        row_bytes / word, entry_bytes / word, args.in[2].as<int32_t>(), shape[0], shape[1], cache.as<Word>());
  });
}

bool supports_reorder(const KernelQuery& query) { return query.attrs<CacheGroupAttrs>().group <= kMaxGroup; }

void run_reorder(const KernelArgs& args) {
  const TensorView& cache = args.out[0];
  const Shape& shape = cache.shape();
  const int64_t group = args.attrs<CacheGroupAttrs>().group;
  const auto locations = reinterpret_cast<uintptr_t>(args.in[0].data) | reinterpret_cast<uintptr_t>(cache.data);
  for_words(cache, shape[2], locations, [&]<class Word>(int64_t width) {
    launch_elements<reorder_word<Word>>(args.device, shape[0] / group * shape[1] * width, static_cast<int>(group),
        shape[1], width, args.in[1].as<int32_t>(), args.in[2].as<int32_t>(), args.in[2].elements(),
        args.in[0].as<const Word>(), cache.as<Word>());
  });
}
}  // namespace

LINNET_KERNELS(cache_write_cuda, {"rows", run_write})
LINNET_KERNELS(cache_fill_cuda, {"copy", run_fill})
LINNET_KERNELS(cache_reorder_cuda, {"groups", run_reorder, supports_reorder})
}  // namespace linnet
