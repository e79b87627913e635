// How attention is cut into blocks, and where the blocks of one thread lie in its scratch memory. By shape alone, so
// that results do not depend on the machine (kernels/attention.h).
#pragma once
#include <algorithm>
#include <cstdint>
#include <string>

#include "base/error.h"
#include "kernels/attention.h"

namespace linnet::attention_blocking {

// Scores are kept transposed, [keys, queries]: maxima, exponentials and sums then run down the columns with one query
// in each lane, and nothing has to be added up across lanes.
constexpr int64_t kKeyBlock = 256;
constexpr int64_t kQueryBlock = 64;
constexpr int kScoreStride = 80;  // between rows of scores: >= kQueryBlock, and no power of two (cache sets)
constexpr int kRowStride = 272;   // between packed rows of keys and values: >= kMaxHeadSize, and no power of two
constexpr int64_t kMaxHeadSize = 256;
constexpr int64_t kUnit = 16;           // blocks of queries start at multiples of the widest vector
constexpr int64_t kChunkQueries = 320;  // queries of a forward task

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

inline void check(const AttentionArgs& args) {
  if (args.kv_heads < 1 || args.query_heads % args.kv_heads != 0)
    fail_internal("attention: " + std::to_string(args.query_heads) + " query heads do not divide among " +
                  std::to_string(args.kv_heads) + " key-value heads");
  if (args.head_size < 1 || args.head_size > kMaxHeadSize)
    fail_internal("attention: head size " + std::to_string(args.head_size) + " is not in 1.." +
                  std::to_string(kMaxHeadSize));
}

// `count` queries in pieces of at most `most`, as even as whole units allow.
struct Pieces {
  Pieces(int64_t count, int64_t most) : Pieces(count, ceil_div(ceil_div(count, kUnit), most / kUnit), 0) {}
  static Pieces of_number(int64_t count, int64_t pieces) { return Pieces(count, pieces, 0); }
  int64_t begin(int64_t piece) const { return std::min(count, piece * units / pieces * kUnit); }
  int64_t largest() const { return ceil_div(units, std::max<int64_t>(pieces, 1)) * kUnit; }

  int64_t count, units, pieces;

 private:
  Pieces(int64_t count, int64_t pieces, int) : count(count), units(ceil_div(count, kUnit)), pieces(pieces) {}
};

// A forward task is one key-value head of one sample and a chunk of its queries; few heads give more, smaller chunks.
inline Pieces query_chunks(const AttentionArgs& args) {
  const int64_t heads = std::max<int64_t>(1, args.batch * args.kv_heads);
  return Pieces::of_number(args.query_length,
                           std::max(ceil_div(args.query_length, kChunkQueries),
                                    std::min(ceil_div(args.query_length, kQueryBlock), ceil_div(32, heads))));
}

// Offsets in floats, each a multiple of 16.
class Layout {
 public:
  int64_t size() const { return size_; }

 protected:
  explicit Layout(const AttentionArgs& args)
      : queries(std::min(round_up(args.query_length, kUnit), kQueryBlock)),
        keys(std::min(args.key_length, kKeyBlock)),
        width(round_up(args.head_size, 32)),
        panels(round_up(queries, 32) * args.head_size),
        random(take(args.dropout > 0 ? 8 * kUnit : 0)) {}

  int64_t take(int64_t floats) {
    const int64_t offset = size_;
    size_ += round_up(floats, 16);
    return offset;
  }

  int64_t size_ = 0;
  int64_t queries, keys, width, panels;

 public:
  int64_t random;  // of eight keys and a vector of queries
};

struct ForwardLayout : Layout {
  explicit ForwardLayout(const AttentionArgs& args) : Layout(args), chunks(query_chunks(args)) {
    const int64_t chunk = chunks.largest();
    q = take(panels);
    scores = take(keys * kScoreStride);
    k = take(keys * kRowStride);
    v = take(keys * width);
    o = take(chunk * width);
    maximum = take(chunk);
    sum = take(chunk);
    fade = take(queries);
  }
  Pieces chunks;
  int64_t q, scores, k, v, o, maximum, sum, fade;
};

struct BackwardLayout : Layout {
  explicit BackwardLayout(const AttentionArgs& args) : Layout(args) {
    q_transposed = take(panels);
    do_transposed = take(panels);
    q = take(queries * width);
    d_o = take(queries * width);
    k_rows = take(keys * kRowStride);
    v_rows = take(keys * kRowStride);
    k = take(keys * width);
    p = take(keys * kScoreStride);
    ds = take(keys * kScoreStride);
    dq = take(queries * width);
    dk = take(keys * width);
    dv = take(keys * width);
    lse = take(queries);
    correction = take(queries);
  }
  int64_t q_transposed, do_transposed, q, d_o, k_rows, v_rows, k, p, ds, dq, dk, dv, lse, correction;
};

struct ForwardOperands {
  AttentionRows q, k, v;
  MutableAttentionRows o;
  float* lse;
};
struct BackwardOperands {
  AttentionRows q, k, v, o, d_o;
  const float* lse;
  MutableAttentionRows dq, dk, dv;
};

}  // namespace linnet::attention_blocking
