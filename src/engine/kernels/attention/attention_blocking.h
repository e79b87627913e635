// How attention is cut into blocks, and their offsets in a thread's scratch memory: by shape alone, so that results do
// not depend on the machine (engine/kernels/attention/attention.h). Sizes are fp32's; bf16 needs no more.
#pragma once
#include <algorithm>
#include <cstdint>
#include "base/fail.h"
#include "base/numbers.h"
#include "engine/kernels/attention/attention.h"
#include "engine/kernels/parallel.h"

namespace linnet::attention_blocking {
// Scores are kept transposed, [keys, queries]: with one query per lane, no sums across lanes are needed.
constexpr int64_t kKeyBlock = 256;
constexpr int64_t kQueryBlock = 64;
constexpr int kScoreStride = 80;  // between rows of weights: >= kQueryBlock, and no power of two (cache sets)
// Keys and values are packed in slices of kSlice columns, with rows kKeyRow floats apart: >= kSlice, and no power of
// two. Equal for every head size, so that one register tile with constant row distances serves all.
constexpr int64_t kSlice = 64;
constexpr int kKeyRow = 80;
constexpr int64_t kMaxHeadSize = 256;
constexpr int64_t kUnit = 32;           // blocks of queries start at multiples of the widest panel
constexpr int64_t kKeyUnit = 16;        // and blocks of keys of this
constexpr int64_t kMostRows = 14;       // of a register tile
constexpr int64_t kChunkQueries = 512;  // queries of a forward task
constexpr int64_t kBiasLead = 16;       // floats before what is read by distance, a vector at a time

inline void check(const AttentionArgs& args) {
  if (args.kv_heads < 1 || args.query_heads % args.kv_heads != 0)
    fail_internal(
        "attention: ", args.query_heads, " query heads do not divide among ", args.kv_heads, " key-value heads");
  if (args.head_size < 1 || args.head_size > kMaxHeadSize)
    fail_internal("attention: head size ", args.head_size, " is not in 1..", kMaxHeadSize);
}

// Whether keys before a query's own may be hidden.
inline bool hides_keys(const AttentionArgs& args) { return args.starts != nullptr || args.window > 0; }

// `count` rows in pieces of at most `most`, as even as whole units allow.
struct Pieces {
  Pieces(int64_t count, int64_t most, int64_t unit)
      : Pieces(Number{ceil_div(ceil_div(count, unit), most / unit)}, count, unit) {}
  static Pieces of_number(int64_t count, int64_t pieces, int64_t unit) { return Pieces(Number{pieces}, count, unit); }
  static Pieces of_keys(int64_t count) { return Pieces(count, kKeyBlock, kKeyUnit); }
  int64_t begin(int64_t piece) const { return std::min(count, piece * units / pieces * unit); }
  int64_t largest() const { return ceil_div(units, std::max<int64_t>(pieces, 1)) * unit; }

  int64_t count, unit, units, pieces;

 private:
  struct Number {
    int64_t pieces;
  };
  Pieces(Number number, int64_t count, int64_t unit)
      : count(count), unit(unit), units(ceil_div(count, unit)), pieces(number.pieces) {}
};

// A forward task is a key-value head of a sample and a chunk of its queries; with fewer heads chunks are smaller.
inline Pieces query_chunks(const AttentionArgs& args) {
  const int64_t heads = std::max<int64_t>(1, args.batch * args.kv_heads);
  return Pieces::of_number(args.query_length,
      std::max(ceil_div(args.query_length, kChunkQueries),
          std::min(ceil_div(args.query_length, kQueryBlock), ceil_div(32, heads))),
      kUnit);
}

// The scratch memory of one thread; without it, its size.
class Layout {
 public:
  int64_t size() const { return static_cast<int64_t>(regions_.size() / sizeof(float)); }

 protected:
  Layout(const AttentionArgs& args, float* scratch)
      : regions_(reinterpret_cast<std::byte*>(scratch)),
        queries(std::min(round_up(args.query_length, kUnit), kQueryBlock)),
        keys(std::min(round_up(args.key_length, kKeyUnit), kKeyBlock)), width(round_up(args.head_size, 32)),
        slice((keys + kMostRows) * kKeyRow), packed_rows(ceil_div(args.head_size, kSlice) * slice),
        mask(take(args.dropout > 0 ? keys * kQueryBlock / 16 : 0)), starts(take(kQueryBlock)),
        bias(take(args.biased ? kBiasLead + kKeyBlock + kQueryBlock + kUnit : 0)) {}

  float* take(int64_t floats) { return regions_.take<float>(floats); }

 private:
  Regions regions_;

 public:
  int64_t queries, keys, width;
  int64_t slice;        // floats of a slice of packed keys or values
  int64_t packed_rows;  // floats of all slices
  float* mask;          // of dropout: up to two bytes for every four queries
  float* starts;        // of a block of queries
  float* bias;          // of a block by distance
};

struct ForwardLayout : Layout {
  explicit ForwardLayout(const AttentionArgs& args, float* scratch = nullptr)
      : Layout(args, scratch), chunks(query_chunks(args)) {
    const int64_t chunk = chunks.largest();
    q = take(queries * width);
    weights = take((keys + kMostRows) * kScoreStride);
    k = take(packed_rows);
    v = take(keys * width);
    o = take((chunk + kMostRows) * width);
    minus_shift = take(chunk);
    maximum = take(kUnit);
    sum = take(chunk);
    block_sum = take(kUnit);
  }
  Pieces chunks;
  float *q, *weights, *k, *v, *o, *minus_shift, *maximum, *sum, *block_sum;
};

struct BackwardLayout : Layout {
  explicit BackwardLayout(const AttentionArgs& args, float* scratch = nullptr) : Layout(args, scratch) {
    q_transposed = take(queries * width);
    do_transposed = take(queries * width);
    q = take(queries * width);
    d_o = take(queries * width);
    k_rows = take(packed_rows);
    v_rows = take(packed_rows);
    k = take(keys * width);
    p = take((keys + kMostRows) * kScoreStride);
    ds = take((keys + kMostRows) * kScoreStride);
    ds_by_key = args.precision == Precision::kF32 ? ds : take((keys + kMostRows) * kScoreStride);
    if (args.biased) ds_exact = take(kBiasLead + (keys + kMostRows) * kScoreStride);
    dq = take((queries + kMostRows) * width);
    dk = take((keys + kMostRows) * width);
    dv = take((keys + kMostRows) * width);
    lse = take(queries);
    correction = take(queries);
    // Each block of keys adds to dq, which bf16 would round every time.
    sums_dq = args.dq_in_bf16 && args.key_length > kKeyBlock;
    if (sums_dq) dq_sums = take(args.query_heads / args.kv_heads * args.query_length * args.head_size);
  }
  float *q_transposed, *do_transposed, *q, *d_o, *k_rows, *v_rows, *k, *p, *ds, *ds_by_key, *dq, *dk, *dv, *lse,
      *correction;
  float* ds_exact = nullptr;  // of a bias: in fp32 for either precision, kBiasLead zeros before it
  bool sums_dq = false;
  float* dq_sums = nullptr;  // [heads of the group, query_length, head_size]
};

// A sample's and head's gradient of the bias, by i - j: reversed, with room for a vector at the end.
inline int64_t bias_gradient_row(const AttentionArgs& args) {
  return round_up(args.query_length + args.key_length - 1, 16) + 16;
}

struct ForwardOperands {
  AttentionRows q, k, v;
  MutableAttentionRows o;
  float* lse;
};
struct BackwardOperands {
  AttentionRows q, k, v, o, d_o;
  const float* lse;
  MutableAttentionRows dq, dk, dv;
  float* bias_gradients;  // [batch, query_heads, bias_gradient_row()], or null
};

using ForwardTask = void (*)(const AttentionArgs&, const ForwardOperands&, int64_t, float*);
using BackwardTask = void (*)(const AttentionArgs&, const BackwardOperands&, int64_t, float*);
// Null if the current instruction set has no bf16 products.
ForwardTask bf16_forward_task();
BackwardTask bf16_backward_task();
}  // namespace linnet::attention_blocking
