// The key and value cache of decoding: state of a fixed size [R, T, D], updated in place.
#pragma once
#include "engine/ops/kernel.h"

namespace linnet {
struct CacheGroupAttrs {
  int64_t group = 1;
  void fields(FieldVisitor& visit) { visit("group", group); }
};

extern const OpDef kCacheWrite, kCachePut, kCacheFill, kCacheReorder;

// Row r of `rows` [R, 1, D] becomes entry `position` of row r of the cache: i32 [1] for all rows, or [R] for each.
// `rows` may be strided.
Tensor cache_write(At cache, Tensor rows, Tensor position);

// Row i of `rows` [N, 1, D] becomes entry positions[i] of row slots[i] of the cache (both i32 [N]; no entry twice):
// tokens of any rows, perhaps several of one row. A negative slot is skipped. `rows` may be strided. CPU only.
Tensor cache_put(At cache, Tensor rows, Tensor slots, Tensor positions);

// Row b of `rows` [B, t, D], t <= T, becomes the first t entries of row slots[b] (i32 [B], all different) of the cache;
// a negative slot is skipped. `rows` may be strided.
Tensor cache_fill(At cache, Tensor rows, Tensor slots);

// Row r takes the first `position` entries (i32 [1] or [R]; a group's largest counts) of row parents[r] (i32 [R]), for
// beams that continue another beam. Parents stay within groups of `group` rows.
Tensor cache_reorder(At cache, Tensor parents, Tensor position, int64_t group);
}  // namespace linnet
