// The backward pass of attention_cuda.cu in one launch, with sums in a fixed order: blocks of keys over the queries
// that see them give dk and dv, and blocks of queries over their keys dq. Both compute sum(do o) of their queries.
//
//   w = exp(s - lse), m = dropout's mask and scale;  dv = (w m)^T do;  ds = w (m (do v^T) - sum(do o));
//   dq = scale ds k;  dk = scale ds^T q;  dbias of a distance = the sum of its ds
#include "base/numbers.h"
#include "engine/kernels/cuda/block_reduce.cuh"
#include "engine/ops/attention/attention_tiles_cuda.cuh"
#include "engine/ops/kernel.h"

namespace linnet {
namespace {
using namespace flash;

template <class T> struct Backward {
  Rows<const T> q, k, v, o, d_o;
  const float* lse;  // [B, H, Tq]
  Rows<T> dq, dk, dv;
  float* bias_parts;  // [B, tiles of queries, H, Tq + Tk - 1]: sums of ds along the diagonals of a tile; or null

  // The head at `head` of sample b.
  template <class U> LINNET_DEVICE static U* head_of(const Rows<U>& x, const Problem& p, int64_t b, int head) {
    return x.data + b * x.sample + static_cast<int64_t>(head) * p.size;
  }
};

// A block's shared memory. `first` and `second` keep their tile; `third` and `fourth` take one tile after another.
template <class Tile> struct Memory {
  float *first, *second, *third, *fourth, *scores, *sums;
  uint8_t* mask;

  static constexpr size_t kBytes =
      (4 * Tile::kFloats + Tile::kScoreFloats + Tile::kTile) * sizeof(float) + Tile::kMaskBytes;
  LINNET_DEVICE static Memory take() {
    float* const at = dynamic_shared<float>();
    float* const scores = at + 4 * Tile::kFloats;
    float* const sums = scores + Tile::kScoreFloats;
    return {at, at + Tile::kFloats, at + 2 * Tile::kFloats, at + 3 * Tile::kFloats, scores, sums,
        reinterpret_cast<uint8_t*>(sums + Tile::kTile)};
  }
};

// sums[i] = sum(do o) of a head's query from + i, or 0 if there is no such query. Several threads share a row.
template <class Tile, class T>
LINNET_DEVICE void write_sums(const Problem& p, const Backward<T>& x, int64_t b, int head, int from, float* sums) {
  constexpr int kSharing = Tile::kThreads / Tile::kTile;
  const int i = static_cast<int>(threadIdx.x) / kSharing, first = static_cast<int>(threadIdx.x) % kSharing * 4;
  const T *o = x.head_of(x.o, p, b, head), *d_o = x.head_of(x.d_o, p, b, head);
  const bool whole = Tile::is_whole(o, x.o.row, p.size) && Tile::is_whole(d_o, x.d_o.row, p.size);
  float sum = 0;
#pragma unroll
  for (int d = first; d < Tile::kSize; d += 4 * kSharing) {
    float one[4] = {0, 0, 0, 0}, other[4] = {0, 0, 0, 0};
    if (from + i < p.queries && d < p.size) {
      load_up_to_4(o + (from + i) * x.o.row + d, p.size - d, whole, one);
      load_up_to_4(d_o + (from + i) * x.d_o.row + d, p.size - d, whole, other);
    }
#pragma unroll
    for (int e = 0; e < 4; ++e) sum += one[e] * other[e];
  }
#pragma unroll
  for (int step = kSharing / 2; step > 0; step /= 2) sum += __shfl_xor_sync(kAllLanes, sum, step);
  if (first == 0) sums[i] = sum;
}

// From a tile of scores and its products do v^T: ds, with queries as rows; with `weights` also w m, transposed, into
// shared memory. A piece of the scores at a time, since registers are scarce.
template <class T, class Tile> LINNET_DEVICE void compute_slopes(const Problem& p, const Backward<T>& x,
    const DropoutMask& dropout, const Memory<Tile>& memory, int64_t b, int head, int i0, int j0, const float* queries,
    const float* keys, const float* d_os, const float* values, float* weights, typename Tile::Scores& slopes) {
  constexpr int kPieces = Tile::kScorePieces, kAtOnce = Tile::kColumns / kPieces;
  const float scale = p.scale * kLog2e;
  Tile::products(d_os, values, p.queries - i0, p.keys - j0, slopes);
#pragma unroll
  for (int piece = 0; piece < kPieces; ++piece) {
    const int skipped = piece * Tile::kTile / kPieces;
    float scores[2][kAtOnce];
    Tile::products(queries, keys + skipped * Tile::kStride, p.queries - i0, p.keys - j0 - skipped, scores);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int i = i0 + Tile::row(r), safe = min(i, p.queries - 1);
      const int64_t at = (b * p.heads + head) * p.queries + safe;
      const float lse = kLog2e * x.lse[at], sum = memory.sums[Tile::row(r)];
      const int end = i < p.queries ? p.end(b, safe) : 0, first = p.first(b, safe, end);
      const bool whole = first <= j0 + skipped && j0 + skipped + Tile::kTile / kPieces <= end;
#pragma unroll
      for (int c = 0; c < kAtOnce; ++c) scores[r][c] *= scale;
      if (p.bias)
#pragma unroll
        for (int c = 0; c < kAtOnce; ++c) {
          const int j = j0 + skipped + Tile::score_column(c);
          if (first <= j && j < end) scores[r][c] += kLog2e * p.bias_of(b, head, safe, j);
        }
#pragma unroll
      for (int c = 0; c < kAtOnce; ++c) scores[r][c] = exp2f(scores[r][c] - lse);
      float kept[kAtOnce];
#pragma unroll
      for (int c = 0; c < kAtOnce; ++c) kept[c] = 1;
      if (p.dropout.random) {
        typename Tile::Bits bits;
        Tile::read_bits(memory.mask, r, bits);
#pragma unroll
        for (int c = 0; c < kAtOnce; ++c) kept[c] = Tile::kept(bits, piece * kAtOnce + c) ? dropout.scale : 0;
      }
#pragma unroll
      for (int c = 0; c < kAtOnce; ++c) {
        float& slope = slopes[r][piece * kAtOnce + c];
        slope = scores[r][c] * (slope * kept[c] - sum);
        scores[r][c] *= kept[c];
      }
      if (!whole)  // what is not seen may be anything
#pragma unroll
        for (int c = 0; c < kAtOnce; ++c) {
          const int j = j0 + skipped + Tile::score_column(c);
          if (first <= j && j < end) continue;
          slopes[r][piece * kAtOnce + c] = scores[r][c] = 0;
        }
      if (weights && Tile::part() == 0)
#pragma unroll
        for (int c = 0; c < kAtOnce; ++c)
          weights[(skipped + Tile::score_column(c)) * Tile::kScoreStride + Tile::row(r)] = scores[r][c];
    }
  }
}

template <class Tile> LINNET_DEVICE void write_transposed(const typename Tile::Scores& x, float* to) {
  if (Tile::part() != 0) return;
#pragma unroll
  for (int c = 0; c < Tile::kColumns; ++c)
#pragma unroll
    for (int r = 0; r < 2; ++r) to[Tile::score_column(c) * Tile::kScoreStride + Tile::row(r)] = x[r][c];
}

template <class T, class Tile>
LINNET_DEVICE void gradients_of_keys(unsigned block, const Problem& p, const Backward<T>& x) {
  constexpr int kTile = Tile::kTile;
  const Memory<Tile> memory = Memory<Tile>::take();
  float *const keys = memory.first, *const values = memory.second;
  float *const queries = memory.third, *const d_os = memory.fourth, *const weights = memory.scores;
  const int tiles = (p.keys + kTile - 1) / kTile, j0 = static_cast<int>(block) % tiles * kTile;
  const int kv_head = static_cast<int>(block) / tiles % p.kv_heads, group = p.heads / p.kv_heads;
  const int64_t b = block / (static_cast<unsigned>(tiles) * static_cast<unsigned>(p.kv_heads));
  Tile::load(keys, x.head_of(x.k, p, b, kv_head), x.k.row, j0, p.keys, p.size);
  Tile::load(values, x.head_of(x.v, p, b, kv_head), x.v.row, j0, p.keys, p.size);
  const DropoutMask dropout = p.dropout_mask();
  typename Tile::Result of_keys, of_values;
  Tile::clear(of_keys), Tile::clear(of_values);
  for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    // Earlier queries see none of the keys.
    const int begin = p.causal ? max(j0 - (p.keys - p.queries), 0) : 0;
    for (int i0 = begin / kTile * kTile; i0 < p.queries; i0 += kTile) {
      const int2 range = p.range(b, i0, kTile);
      if (range.x >= j0 + kTile || range.y <= j0) continue;
      __syncthreads();
      Tile::load(queries, x.head_of(x.q, p, b, head), x.q.row, i0, p.queries, p.size);
      Tile::load(d_os, x.head_of(x.d_o, p, b, head), x.d_o.row, i0, p.queries, p.size);
      write_sums<Tile>(p, x, b, head, i0, memory.sums);
      if (p.dropout.random) Tile::draw_mask(memory.mask, dropout, i0, j0, head, b);
      __syncthreads();
      typename Tile::Scores s;
      compute_slopes<T, Tile>(p, x, dropout, memory, b, head, i0, j0, queries, keys, d_os, values, weights, s);
      __syncthreads();
      Tile::add_weighted(weights, d_os, p.keys - j0, p.queries - i0, of_values);
      __syncthreads();
      write_transposed<Tile>(s, weights);
      __syncthreads();
      Tile::add_weighted(weights, queries, p.keys - j0, p.queries - i0, of_keys);
    }
  }
  Tile::store(of_keys, p.scale, x.head_of(x.dk, p, b, kv_head), x.dk.row, j0, p.keys, p.size);
  Tile::store(of_values, 1.0f, x.head_of(x.dv, p, b, kv_head), x.dv.row, j0, p.keys, p.size);
}

template <class T, class Tile>
LINNET_DEVICE void gradients_of_queries(unsigned block, const Problem& p, const Backward<T>& x) {
  constexpr int kTile = Tile::kTile, kDiagonals = 2 * kTile - 1;
  const Memory<Tile> memory = Memory<Tile>::take();
  float *const queries = memory.first, *const d_os = memory.second;
  float *const keys = memory.third, *const values = memory.fourth, *const slopes = memory.scores;
  const int tiles = (p.queries + kTile - 1) / kTile, tile = tiles - 1 - static_cast<int>(block) % tiles;
  const int head = static_cast<int>(block) / tiles % p.heads, kv_head = p.kv_head(head), i0 = tile * kTile;
  const int64_t b = block / (static_cast<unsigned>(tiles) * static_cast<unsigned>(p.heads));
  Tile::load(queries, x.head_of(x.q, p, b, head), x.q.row, i0, p.queries, p.size);
  Tile::load(d_os, x.head_of(x.d_o, p, b, head), x.d_o.row, i0, p.queries, p.size);
  write_sums<Tile>(p, x, b, head, i0, memory.sums);
  const DropoutMask dropout = p.dropout_mask();
  const int distances = p.queries + p.keys - 1;
  float* bias_parts = x.bias_parts;
  if (bias_parts) {
    bias_parts += ((b * tiles + tile) * p.heads + head) * distances;
    for (int d = static_cast<int>(threadIdx.x); d < distances; d += Tile::kThreads) bias_parts[d] = 0;
  }
  typename Tile::Result result;
  Tile::clear(result);
  const int2 range = p.range(b, i0, kTile);
  for (int j0 = range.x / kTile * kTile; j0 < range.y; j0 += kTile) {
    __syncthreads();
    Tile::load(keys, x.head_of(x.k, p, b, kv_head), x.k.row, j0, p.keys, p.size);
    Tile::load(values, x.head_of(x.v, p, b, kv_head), x.v.row, j0, p.keys, p.size);
    if (p.dropout.random) Tile::draw_mask(memory.mask, dropout, i0, j0, head, b);
    __syncthreads();
    typename Tile::Scores s;
    compute_slopes<T, Tile>(p, x, dropout, memory, b, head, i0, j0, queries, keys, d_os, values, nullptr, s);
#pragma unroll
    for (int r = 0; r < 2; ++r)
#pragma unroll
      for (int c = 0; c < Tile::kColumns; ++c)
        if (Tile::part() == 0) slopes[Tile::row(r) * Tile::kScoreStride + Tile::score_column(c)] = s[r][c];
    __syncthreads();
    Tile::add_weighted(slopes, keys, p.queries - i0, p.keys - j0, result);
    const int diagonal = static_cast<int>(threadIdx.x) - (kTile - 1);  // j - i within the tile
    const int distance = j0 - i0 + diagonal + p.queries - 1;
    if (!bias_parts || diagonal >= kTile || distance < 0 || distance >= distances) continue;
    float sum = 0;
    for (int i = max(-diagonal, 0); i < min(kTile, kTile - diagonal); ++i)
      sum += slopes[i * Tile::kScoreStride + i + diagonal];
    bias_parts[distance] += sum;
  }
  static_assert(kDiagonals <= Tile::kThreads);
  Tile::store(result, p.scale, x.head_of(x.dq, p, b, head), x.dq.row, i0, p.queries, p.size);
}

// Blocks of keys come first, since they take longer.
template <class T, class Tile> __global__ void __launch_bounds__(Tile::kThreads, Tile::kBackwardBlocks)
    gradients_kernel(Problem p, unsigned of_keys, Backward<T> x) {
  begin_kernel();
  if (blockIdx.x < of_keys) gradients_of_keys<T, Tile>(blockIdx.x, p, x);
  else gradients_of_queries<T, Tile>(blockIdx.x - of_keys, p, x);
}

size_t workspace(const KernelQuery& query) {
  const auto& attrs = query.attrs<AttentionAttrs>();
  const Shape& q = query.in[0].shape;
  if (!attrs.has_bias) return 0;
  size_t bytes = 0;
  for_size<false>(q[2] / attrs.heads, [&]<class Tile>() {
    const int64_t tiles = (q[1] + Tile::kTile - 1) / Tile::kTile;
    bytes = bytes_for<float>(q[0] * tiles * attrs.heads * (q[1] + query.in[1].shape[1] - 1));
  });
  return bytes;
}

template <class T, class Tile> void run_for(const KernelArgs& args, const Problem& p) {
  auto* parts = p.bias ? reinterpret_cast<float*>(args.workspace) : nullptr;
  const Backward<T> x{rows_of<const T>(args.in[0]), rows_of<const T>(args.in[1]), rows_of<const T>(args.in[2]),
      rows_of<const T>(args.in[3]), rows_of<const T>(args.in[5]), args.in[4].as<const float>(), rows_of<T>(args.out[0]),
      rows_of<T>(args.out[1]), rows_of<T>(args.out[2]), parts};
  const int64_t tiles = (p.queries + Tile::kTile - 1) / Tile::kTile;
  const auto of_keys = static_cast<unsigned>((p.keys + Tile::kTile - 1) / Tile::kTile * p.kv_heads * p.batch);
  launch(args.device, gradients_kernel<T, Tile>, of_keys + static_cast<unsigned>(tiles * p.heads * p.batch),
      Tile::kThreads, Memory<Tile>::kBytes, p, of_keys, x);
  if (!p.bias) return;
  const int64_t width = static_cast<int64_t>(p.heads) * (p.queries + p.keys - 1);
  launch_elements<add_column>(args.device, width, p.batch * tiles, width, false, parts, args.out[3].as<float>());
}

void run(const KernelArgs& args) {
  const Problem p = problem_of(args, kAttentionGradFixed);
  for_kernels(args, p, [&]<class T, class Tile>() { run_for<T, Tile>(args, p); });
}
}  // namespace

LINNET_KERNELS(attention_grad_cuda, {"flash", run, supports, workspace})
}  // namespace linnet
