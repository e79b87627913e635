// How a product is cut into blocks that fit the caches. Sizes are by shape alone, so that results do not depend on the
// machine (kernels/gemm.h). The numbers were measured on Zen 5 (48 KB L1, 1 MB L2 per core, 32 MB L3).
#pragma once
#include <algorithm>
#include <cstdint>

namespace linnet::gemm_blocking {

constexpr int64_t kMaxDepth = 768;         // k of one block: a tile of A and a panel of B stay in L1 and L2
constexpr int64_t kRowStride = 784;        // between packed rows of A: >= kMaxDepth, and no power of two (cache sets)
constexpr int64_t kMaxRows = 224;          // rows of A packed at a time: 224 * 784 * 4 = 700 KB of L2
constexpr int64_t kMaxPanel = 32;          // the widest panel of B of any instruction set, in floats
constexpr int64_t kBlockFloats = 3 << 20;  // packed block of B: 12 MB of L3
constexpr int64_t kSlack = 64;             // packing may write past the end of A's scratch
constexpr int64_t kFewRows = 8;            // few rows of C: B is read in place
constexpr int64_t kFewColumns = 16;        // few columns: A is read in place
constexpr int64_t kFewFloats = 1 << 18;    // of the small operand, which is transposed into scratch if need be

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

// Length of the k blocks: K cut evenly, to a multiple of 16.
constexpr int64_t depth(int64_t k) { return std::min(k, round_up(ceil_div(k, ceil_div(k, kMaxDepth)), 16)); }

// The block of B that is packed at a time: [block_depth, block_columns]. All of B unless it is very large.
constexpr int64_t block_depth(int64_t n, int64_t k) {
  const int64_t columns = std::min<int64_t>(round_up(n, kMaxPanel), 512);
  return std::min(k, kBlockFloats / columns / depth(k) * depth(k));
}
constexpr int64_t block_columns(int64_t n, int64_t k) {
  return std::min(round_up(n, kMaxPanel), kBlockFloats / block_depth(n, k) / kMaxPanel * kMaxPanel);
}

// Rows packed by columns need rows * depth floats and a vector per tile: less than rows * kRowStride + kSlack.
constexpr int64_t scratch_a_floats(int64_t m) { return round_up(std::min(m, kMaxRows) * kRowStride + kSlack, 16); }
constexpr int64_t block_b_floats(int64_t n, int64_t k) { return round_up(block_depth(n, k) * block_columns(n, k), 16); }

// The ways to compute a product.
enum class Method {
  kFewRows,      // dot products or broadcasts, tasks are ranges of columns
  kFewColumns,   // dot products, tasks are ranges of rows
  kOneTaskEach,  // many small products: each is a task, with a block of B for every thread
  kShared,       // the threads share a packed block of B
};

constexpr Method method(int64_t batch, int64_t m, int64_t n, int64_t k, bool trans_a, bool trans_b) {
  if (m <= kFewRows && (!trans_a || m * k <= kFewFloats)) return Method::kFewRows;
  if (n <= kFewColumns && k >= 64 && !trans_a && (trans_b || n * k <= kFewFloats)) return Method::kFewColumns;
  if (batch > 1 && n * k <= (1 << 16) && m <= (int64_t{1} << 24) / (n * k)) return Method::kOneTaskEach;
  return Method::kShared;
}

// Floats of workspace.
constexpr int64_t workspace(Method method, int64_t m, int64_t n, int64_t k, int64_t threads) {
  const int64_t a = scratch_a_floats(m), b = block_b_floats(n, k);
  switch (method) {
    case Method::kFewRows:
      return threads * round_up(std::min(m * k, kFewFloats), 16);
    case Method::kFewColumns:
      return threads * round_up(std::min(n * k, kFewFloats), 16);
    case Method::kOneTaskEach:
      return threads * (a + b);
    case Method::kShared:
      return b + threads * a;
  }
  return 0;
}

}  // namespace linnet::gemm_blocking
