// How attention is cut into blocks, and where the blocks of one thread lie in its scratch memory. By shape alone, so
// that results do not depend on the machine (kernels/attention.h).
#pragma once
#include <algorithm>
#include <cstdint>
#include <string>

#include "base/error.h"
#include "kernels/attention.h"

namespace linnet::attention_blocking {

constexpr int64_t kKeyBlock = 256;
constexpr int64_t kRowBlock = 84;  // a whole number of register tiles: 14 rows with AVX-512, 6 or 2 otherwise
constexpr int kStride = 272;       // between rows of packed queries and of scores: >= kKeyBlock, and no power of two
constexpr int64_t kMaxHeadSize = 256;
constexpr int64_t kChunkRows = 4 * kRowBlock;  // queries of a forward task

constexpr int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}
constexpr int64_t round_up(int64_t a, int64_t b) {
  return ceil_div(a, b) * b;
}

inline void check(const AttentionArgs& args) {
  if (args.kv_heads < 1 || args.query_heads % args.kv_heads != 0)
    fail_internal("attention: " + std::to_string(args.query_heads) + " query heads do not divide among " +
                  std::to_string(args.kv_heads) + " key-value heads");
  if (args.head_size < 1 || args.head_size > kMaxHeadSize)
    fail_internal("attention: head size " + std::to_string(args.head_size) + " is not in 1.." +
                  std::to_string(kMaxHeadSize));
}

// A forward task is one key-value head of one sample and a chunk of its queries; few heads give more, smaller chunks.
inline int64_t chunks(const AttentionArgs& args) {
  const int64_t heads = std::max<int64_t>(1, args.batch * args.kv_heads);
  return std::max(ceil_div(args.query_length, kChunkRows),
                  std::min(ceil_div(args.query_length, kRowBlock), ceil_div(32, heads)));
}
inline int64_t chunk_begin(const AttentionArgs& args, int64_t chunk) {
  return chunk * args.query_length / chunks(args);
}

// Offsets in floats, each a multiple of 16.
class Layout {
 public:
  int64_t size() const { return size_; }

 protected:
  explicit Layout(const AttentionArgs& args)
      : rows(std::min(args.query_length, kRowBlock)),
        keys(std::min(args.key_length, kKeyBlock)),
        width(round_up(args.head_size, 32)),
        panels(round_up(keys, 32) * args.head_size),
        mask(take(args.dropout > 0 ? (keys + 128) / 2 : 0)) {}

  int64_t take(int64_t floats) {
    const int64_t offset = size_;
    size_ += round_up(floats, 16);
    return offset;
  }

  int64_t size_ = 0;
  int64_t rows, keys, width, panels;

 public:
  int64_t mask;  // 16-bit random values of a row
};

struct ForwardLayout : Layout {
  explicit ForwardLayout(const AttentionArgs& args) : Layout(args) {
    const int64_t chunk_rows = ceil_div(args.query_length, std::max<int64_t>(1, chunks(args)));
    q = take(rows * kStride);
    scores = take(rows * kStride);
    k = take(panels);
    v = take(keys * width);
    o = take(chunk_rows * width);
    maximum = take(chunk_rows);
    sum = take(chunk_rows);
  }
  int64_t q, scores, k, v, o, maximum, sum;
};

struct BackwardLayout : Layout {
  explicit BackwardLayout(const AttentionArgs& args) : Layout(args) {
    q_rows = take(rows * kStride);
    do_rows = take(rows * kStride);
    p = take(rows * kStride);
    ds = take(rows * kStride);
    q_panels = take(rows * width);
    do_panels = take(rows * width);
    k_transposed = take(panels);
    v_transposed = take(panels);
    k_panels = take(keys * width);
    dq = take(rows * width);
    dk = take(keys * width);
    dv = take(keys * width);
  }
  int64_t q_rows, do_rows, p, ds, q_panels, do_panels, k_transposed, v_transposed, k_panels, dq, dk, dv;
};

// The operands of attention_backward.
struct BackwardOperands {
  AttentionRows q, k, v, o, d_o;
  const float* lse;
  MutableAttentionRows dq, dk, dv;
};

}  // namespace linnet::attention_blocking
