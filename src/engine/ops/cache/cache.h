// The key and value cache of step-by-step decoding: state of a fixed size [R, T, D], updated in place.
#pragma once
#include "engine/ir/graph.h"
#include "engine/ops/kernel.h"

namespace linnet {

// Of cache_reorder.
struct CacheGroupAttrs {
  int64_t group = 1;
  void fields(FieldVisitor& visit) { visit("group", group); }
};

extern const OpDef kCacheWrite, kCachePut, kCacheFill, kCacheReorder;

// Row r of `rows` [R, 1, D] becomes entry `position` of row r of the cache: i32 [1] for all rows, or [R], each its own.
// `rows` may be strided.
Tensor cache_write(At cache, Tensor rows, Tensor position);

// Row i of `rows` [N, 1, D] becomes entry positions[i] of row slots[i] of the cache (i32 [N] both; no two are one
// entry): tokens of any rows, several of one row among them. One whose slot is negative goes nowhere. `rows` may be
// strided. On the CPU alone.
Tensor cache_put(At cache, Tensor rows, Tensor slots, Tensor positions);

// Row b of `rows` [B, t, D], t <= T, becomes the first t entries of row slots[b] (i32 [B], all different) of the cache;
// a row whose slot is negative goes nowhere. `rows` may be strided.
Tensor cache_fill(At cache, Tensor rows, Tensor slots);

// Row r takes the first `position` entries (i32 [1] or [R]; of a group's positions the largest counts) of row
// parents[r] (i32 [R]): beams that go on from another beam. Parents stay within groups of `group` rows.
Tensor cache_reorder(At cache, Tensor parents, Tensor position, int64_t group);

}  // namespace linnet
