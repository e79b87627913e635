#include "engine/ops/cache/cache.h"
#include <algorithm>

namespace linnet {
namespace {
void expect_cache(const InferArgs& args) {
  expect_inputs(args, 3);
  expect(args.in[0].shape.rank() == 3, "got cache ", args.in[0], ", expected [R, T, D]");
  const TensorType& position = args.in[2];
  const int64_t rows = args.in[0].shape[0];
  expect(position.dtype == DType::kI32 && position.shape.rank() == 1 &&
             (position.shape[0] == 1 || position.shape[0] == rows),
      "got position ", position, ", expected i32[1] or i32[", rows, "]");
}

std::vector<TensorType> infer_cache_write(const InferArgs& args) {
  expect_cache(args);
  const Shape& cache = args.in[0].shape;
  expect(args.in[1] == TensorType{args.in[0].dtype, {cache[0], 1, cache[2]}}, "got cache ", args.in[0], " and rows ",
      args.in[1]);
  return {args.in[0]};
}

std::vector<TensorType> infer_put(const InferArgs& args) {
  const TensorType &cache = args.in[0], &rows = args.in[1];
  expect(cache.shape.rank() == 3 && rows.shape.rank() == 3 && cache.dtype == rows.dtype && rows.shape[1] == 1 &&
             cache.shape[2] == rows.shape[2],
      "got cache ", cache, " and rows ", rows);
  const TensorType indices{DType::kI32, {rows.shape[0]}};
  expect(args.in[2] == indices && args.in[3] == indices, "got slots ", args.in[2], " and positions ", args.in[3],
      ", expected ", indices);
  return {cache};
}

std::vector<TensorType> infer_cache_fill(const InferArgs& args) {
  const TensorType &cache = args.in[0], &rows = args.in[1], &slots = args.in[2];
  expect(cache.shape.rank() == 3 && rows.shape.rank() == 3 && cache.dtype == rows.dtype &&
             rows.shape[0] <= cache.shape[0] && rows.shape[1] <= cache.shape[1] && cache.shape[2] == rows.shape[2],
      "got cache ", cache, " and rows ", rows);
  expect(slots == TensorType{DType::kI32, {rows.shape[0]}}, "got slots ", slots, ", expected i32[", rows.shape[0], "]");
  return {cache};
}

std::vector<TensorType> infer_reorder(const InferArgs& args) {
  expect_cache(args);
  const int64_t group = args.attrs.as<CacheGroupAttrs>().group;
  expect(args.in[1] == TensorType{DType::kI32, {args.in[0].shape[0]}}, "got parents ", args.in[1]);
  expect(group > 0 && args.in[0].shape[0] % group == 0, "rows do not divide into groups of ", group);
  return {args.in[0]};
}

void run_cache_write(const KernelArgs& args) {
  copy_operand(args.in[0], args.out[0]);
  const Shape& shape = args.out[0].shape();
  const int32_t* positions = args.in[2].as<int32_t>();
  const bool one = args.in[2].elements() == 1;
  for_float(args.out[0].type.dtype, [&]<class T>() {
    for (int64_t r = 0; r < shape[0]; ++r) {
      const int64_t position = positions[one ? 0 : r];
      if (position < 0 || position >= shape[1]) fail_internal("a cache position beyond the cache");
      std::copy_n(args.in[1].as<T>() + r * args.in[1].strides[0], shape[2],
          args.out[0].as<T>() + (r * shape[1] + position) * shape[2]);
    }
  });
}

void run_put(const KernelArgs& args) {
  copy_operand(args.in[0], args.out[0]);
  const Shape& cache = args.out[0].shape();
  const int32_t *slots = args.in[2].as<int32_t>(), *positions = args.in[3].as<int32_t>();
  for_float(args.out[0].type.dtype, [&]<class T>() {
    for (int64_t i = 0; i < args.in[1].shape()[0]; ++i) {
      if (slots[i] < 0) continue;
      if (slots[i] >= cache[0] || positions[i] < 0 || positions[i] >= cache[1])
        fail_internal("a slot or a position beyond the cache");
      std::copy_n(args.in[1].as<T>() + i * args.in[1].strides[0], cache[2],
          args.out[0].as<T>() + (slots[i] * cache[1] + positions[i]) * cache[2]);
    }
  });
}

void run_cache_fill(const KernelArgs& args) {
  copy_operand(args.in[0], args.out[0]);
  const Shape &cache = args.out[0].shape(), &rows = args.in[1].shape();
  const auto& strides = args.in[1].strides;
  const int32_t* slots = args.in[2].as<int32_t>();
  for (int64_t b = 0; b < rows[0]; ++b)
    if (slots[b] >= cache[0]) fail_internal("a slot beyond the cache");
  for_float(args.out[0].type.dtype, [&]<class T>() {
    args.pool.run(rows[0], [&](int64_t b, int) {
      if (slots[b] < 0) return;
      for (int64_t t = 0; t < rows[1]; ++t)
        std::copy_n(args.in[1].as<T>() + b * strides[0] + t * strides[1], rows[2],
            args.out[0].as<T>() + (slots[b] * cache[1] + t) * rows[2]);
    });
  });
}

size_t reorder_workspace(const KernelQuery& query) {
  const Shape& shape = query.in[0].shape;
  return static_cast<size_t>(query.threads * query.attrs<CacheGroupAttrs>().group * shape[1] * shape[2]) *
         dtype_size(query.in[0].dtype);
}

// One group of rows in place, `used` elements of each. A search keeps most beams in their rows and moves the others
// onto rows nobody continues: rows are then copied directly. For other parents the group is copied out first.
template <class T>
void reorder_group(T* rows, int64_t stride, int64_t used, std::span<const int32_t> parents, int64_t start, T* aside) {
  const auto group = static_cast<int64_t>(parents.size());
  const auto parent = [&](int64_t r) { return parents[r] - start; };
  bool direct = true;
  for (int64_t r = 0; r < group; ++r) {
    if (parent(r) < 0 || parent(r) >= group) fail_internal("a beam's parent is outside its group");
    direct = direct && parent(parent(r)) == parent(r);
  }
  if (!direct)
    for (int64_t r = 0; r < group; ++r) std::copy_n(rows + r * stride, used, aside + r * used);
  for (int64_t r = 0; r < group; ++r)
    if (parent(r) != r)
      std::copy_n(direct ? rows + parent(r) * stride : aside + parent(r) * used, used, rows + r * stride);
}

void run_reorder(const KernelArgs& args) {
  copy_operand(args.in[0], args.out[0]);
  const int64_t group = args.attrs<CacheGroupAttrs>().group;
  const Shape& shape = args.out[0].shape();
  const std::span<const int32_t> parents(args.in[1].as<int32_t>(), static_cast<size_t>(shape[0]));
  const int32_t* positions = args.in[2].as<int32_t>();
  const bool one = args.in[2].elements() == 1;
  const int64_t stride = shape[1] * shape[2];
  for_float(args.out[0].type.dtype, [&]<class T>() {
    args.pool.run(shape[0] / group, [&](int64_t task, int worker) {
      const int64_t start = task * group;
      const int64_t position = one ? positions[0] : *std::max_element(positions + start, positions + start + group);
      const int64_t used = std::clamp<int64_t>(position, 0, shape[1]) * shape[2];
      reorder_group(args.out[0].as<T>() + start * stride, stride, used,
          parents.subspan(start, static_cast<size_t>(group)), start,
          reinterpret_cast<T*>(args.workspace) + worker * group * stride);
    });
  });
}
}  // namespace

const OpDef kCacheWrite{
    .name = "cache_write", .infer = infer_cache_write, .may_overwrite = overwrites_first, .strided_inputs = 0b010};
const OpDef kCachePut{
    .name = "cache_put", .infer = takes<4, infer_put>, .may_overwrite = overwrites_first, .strided_inputs = 0b0010};
const OpDef kCacheFill{.name = "cache_fill",
    .infer = takes<3, infer_cache_fill>,
    .may_overwrite = overwrites_first,
    .strided_inputs = 0b010};
const OpDef kCacheReorder{.name = "cache_reorder", .infer = infer_reorder, .may_overwrite = overwrites_first};

LINNET_KERNELS(cache_write, {"reference", run_cache_write})
LINNET_KERNELS(cache_put, {"reference", run_put})
LINNET_KERNELS(cache_fill, {"reference", run_cache_fill})
LINNET_KERNELS(cache_reorder, {"reference", run_reorder, nullptr, reorder_workspace})

Tensor cache_write(At cache, Tensor rows, Tensor position) { return op_result(kCacheWrite, cache, {rows, position}); }

Tensor cache_put(At cache, Tensor rows, Tensor slots, Tensor positions) {
  return op_result(kCachePut, cache, {rows, slots, positions});
}

Tensor cache_fill(At cache, Tensor rows, Tensor slots) { return op_result(kCacheFill, cache, {rows, slots}); }

Tensor cache_reorder(At cache, Tensor parents, Tensor position, int64_t group) {
  return op_result(kCacheReorder, cache, {parents, position}, CacheGroupAttrs{group});
}
}  // namespace linnet
