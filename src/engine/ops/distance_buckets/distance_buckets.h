// T5's buckets of distances between key and query (Raffel et al. 2020): near ones have a bucket each, farther ones
// share buckets that widen logarithmically up to max_distance, beyond which all are in the last.
//
//   -> i32 [queries + keys - 1], entry j - i + queries - 1 for key j and query i, as attention's distance_bias has them
//
// Queries are at positions from `position` (i32 [1]; undefined: 0) on, keys from 0 on. If bidirectional, half of the
// buckets are for keys behind the query; else those count as at its position. With positions i32 [R, 1] the result is
// i32 [R, queries + keys - 1], and each row's queries begin at their own position.
#pragma once
#include "engine/ir/graph.h"
#include "engine/ops/kernel.h"

namespace linnet {
struct DistanceBucketsAttrs {
  int64_t queries = 0, keys = 0, buckets = 32, max_distance = 128;
  bool bidirectional = true, has_position = false;
  void fields(FieldVisitor& visit) {
    visit("queries", queries), visit("keys", keys), visit("buckets", buckets), visit("max_distance", max_distance);
    visit("bidirectional", bidirectional), visit("has_position", has_position);
  }
};

extern const OpDef kDistanceBuckets;

Tensor distance_buckets(
    Graph& graph, DistanceBucketsAttrs attrs, Tensor position = {}, SourceLine where = SourceLine::current());
// Of a key `distance` positions behind the query.
int32_t distance_bucket(int64_t distance, int64_t buckets, int64_t max_distance, bool bidirectional);
}  // namespace linnet
