// The backward pass of attention_cuda.cu, in two passes with sums in a fixed order: blocks of queries over their keys
// give sum(do o) and dq, then blocks of keys over the queries that see them give dk and dv.
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
  Rows<const T> q, k, v, d_o;
  const float* lse;  // [B, H, Tq]
  float* sums;       // the same: sum(do o) of each head of each query
};

// The sums of a head's queries [from, from + count), a warp for each in turn.
template <class Tile, class T> LINNET_DEVICE void write_sums(
    const Problem& p, const Backward<T>& x, const Rows<const T>& o, int64_t b, int head, int from, int count) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t head_at = static_cast<int64_t>(head) * p.size;
  for (int i = from + static_cast<int>(threadIdx.x) / kWarp; i < min(from + count, p.queries);
       i += Tile::kThreads / kWarp) {
    const T *one = o.data + b * o.sample + i * o.row + head_at,
            *other = x.d_o.data + b * x.d_o.sample + i * x.d_o.row + head_at;
    float sum = 0;
    for (int d = lane; d < p.size; d += kWarp) sum += to_float(one[d]) * to_float(other[d]);
    sum = warp_reduce(sum, Add());
    if (lane == 0) x.sums[(b * p.heads + head) * p.queries + i] = sum;
  }
}

// From a tile of scores and its products do v^T: ds, with queries as rows; with `weights` also w m, transposed, into
// shared memory. A piece of the scores at a time, since registers are scarce.
template <class T, class Tile> LINNET_DEVICE void compute_slopes(const Problem& p, const Backward<T>& x,
    const DropoutMask& dropout, const uint8_t* mask, int64_t b, int head, int i0, int j0, const float* queries,
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
      const float lse = kLog2e * x.lse[at], sum = x.sums[at];
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
        Tile::read_bits(mask, r, bits);
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

template <class T, class Tile> __global__ void __launch_bounds__(Tile::kThreads, Tile::kBackwardBlocks)
    keys_kernel(Problem p, int tiles, Backward<T> x, Rows<T> dk, Rows<T> dv) {
  begin_kernel();
  constexpr int kTile = Tile::kTile;
  float* keys = dynamic_shared<float>();
  float *values = keys + Tile::kFloats, *queries = values + Tile::kFloats, *d_os = queries + Tile::kFloats;
  float* weights = d_os + Tile::kFloats;
  auto* mask = reinterpret_cast<uint8_t*>(weights + Tile::kScoreFloats);
  const int j0 = static_cast<int>(blockIdx.x) % tiles * kTile;
  const int kv_head = static_cast<int>(blockIdx.x) / tiles % p.kv_heads, group = p.heads / p.kv_heads;
  const int64_t b = blockIdx.x / (static_cast<unsigned>(tiles) * static_cast<unsigned>(p.kv_heads));
  const int64_t kv_at = static_cast<int64_t>(kv_head) * p.size;
  Tile::load(keys, x.k.data + b * x.k.sample + kv_at, x.k.row, j0, p.keys, p.size);
  Tile::load(values, x.v.data + b * x.v.sample + kv_at, x.v.row, j0, p.keys, p.size);
  DropoutMask dropout{};
  if (p.dropout.random) dropout = p.dropout.mask();
  typename Tile::Result of_keys, of_values;
  Tile::clear(of_keys), Tile::clear(of_values);

  for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    const int64_t head_at = static_cast<int64_t>(head) * p.size;
    // Earlier queries see none of the keys.
    const int begin = p.causal ? max(j0 - (p.keys - p.queries), 0) : 0;
    for (int i0 = begin / kTile * kTile; i0 < p.queries; i0 += kTile) {
      const int2 range = p.range(b, i0, kTile);
      if (range.x >= j0 + kTile || range.y <= j0) continue;
      __syncthreads();
      Tile::load(queries, x.q.data + b * x.q.sample + head_at, x.q.row, i0, p.queries, p.size);
      Tile::load(d_os, x.d_o.data + b * x.d_o.sample + head_at, x.d_o.row, i0, p.queries, p.size);
      if (p.dropout.random) Tile::draw_mask(mask, dropout, i0, j0, head, b);
      __syncthreads();
      typename Tile::Scores s;
      compute_slopes<T, Tile>(p, x, dropout, mask, b, head, i0, j0, queries, keys, d_os, values, weights, s);
      __syncthreads();
      Tile::add_weighted(weights, d_os, p.keys - j0, p.queries - i0, of_values);
      __syncthreads();
      write_transposed<Tile>(s, weights);
      __syncthreads();
      Tile::add_weighted(weights, queries, p.keys - j0, p.queries - i0, of_keys);
    }
  }
  Tile::store(of_keys, p.scale, dk.data + b * dk.sample + kv_at, dk.row, j0, p.keys, p.size);
  Tile::store(of_values, 1.0f, dv.data + b * dv.sample + kv_at, dv.row, j0, p.keys, p.size);
}

// With bias_parts [B, tiles, H, Tq + Tk - 1]: the sums of ds along the diagonals of this block's queries.
template <class T, class Tile> __global__ void __launch_bounds__(Tile::kThreads, Tile::kBackwardBlocks)
    queries_kernel(Problem p, int tiles, Backward<T> x, Rows<const T> o, Rows<T> dq, float* bias_parts) {
  begin_kernel();
  constexpr int kTile = Tile::kTile, kDiagonals = 2 * kTile - 1;
  float* queries = dynamic_shared<float>();
  float *d_os = queries + Tile::kFloats, *keys = d_os + Tile::kFloats, *values = keys + Tile::kFloats;
  float* slopes = values + Tile::kFloats;
  auto* mask = reinterpret_cast<uint8_t*>(slopes + Tile::kScoreFloats);
  const int tile = tiles - 1 - static_cast<int>(blockIdx.x) % tiles;
  const int head = static_cast<int>(blockIdx.x) / tiles % p.heads, i0 = tile * kTile;
  const int64_t b = blockIdx.x / (static_cast<unsigned>(tiles) * static_cast<unsigned>(p.heads));
  const int64_t head_at = static_cast<int64_t>(head) * p.size, kv_at = static_cast<int64_t>(p.kv_head(head)) * p.size;
  Tile::load(queries, x.q.data + b * x.q.sample + head_at, x.q.row, i0, p.queries, p.size);
  Tile::load(d_os, x.d_o.data + b * x.d_o.sample + head_at, x.d_o.row, i0, p.queries, p.size);
  write_sums<Tile>(p, x, o, b, head, i0, kTile);
  DropoutMask dropout{};
  if (p.dropout.random) dropout = p.dropout.mask();
  const int distances = p.queries + p.keys - 1;
  if (bias_parts) {
    bias_parts += ((b * tiles + tile) * p.heads + head) * distances;
    for (int d = static_cast<int>(threadIdx.x); d < distances; d += Tile::kThreads) bias_parts[d] = 0;
  }
  typename Tile::Result result;
  Tile::clear(result);
  const int2 range = p.range(b, i0, kTile);
  for (int j0 = range.x / kTile * kTile; j0 < range.y; j0 += kTile) {
    __syncthreads();
    Tile::load(keys, x.k.data + b * x.k.sample + kv_at, x.k.row, j0, p.keys, p.size);
    Tile::load(values, x.v.data + b * x.v.sample + kv_at, x.v.row, j0, p.keys, p.size);
    if (p.dropout.random) Tile::draw_mask(mask, dropout, i0, j0, head, b);
    __syncthreads();
    typename Tile::Scores s;
    compute_slopes<T, Tile>(p, x, dropout, mask, b, head, i0, j0, queries, keys, d_os, values, nullptr, s);
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
  Tile::store(result, p.scale, dq.data + b * dq.sample + head_at, dq.row, i0, p.queries, p.size);
}

size_t sums_bytes(const Shape& lse) {
  return round_up(static_cast<size_t>(lse.elements()) * sizeof(float), size_t{256});
}

size_t workspace(const KernelQuery& query) {
  const auto& attrs = query.attrs<AttentionAttrs>();
  const Shape& q = query.in[0].shape;
  size_t bytes = sums_bytes(query.in[4].shape);
  if (!attrs.has_bias) return bytes;
  for_size<false>(q[2] / attrs.heads, [&]<class Tile>() {
    const int64_t tiles = (q[1] + Tile::kTile - 1) / Tile::kTile;
    bytes += static_cast<size_t>(q[0] * tiles * attrs.heads * (q[1] + query.in[1].shape[1] - 1)) * sizeof(float);
  });
  return bytes;
}

template <class T, class Tile> void run_for(const KernelArgs& args, const Problem& p) {
  auto* sums = reinterpret_cast<float*>(args.workspace);
  auto* parts = p.bias ? reinterpret_cast<float*>(args.workspace + sums_bytes(args.in[4].shape())) : nullptr;
  const Backward<T> x{rows_of<const T>(args.in[0]), rows_of<const T>(args.in[1]), rows_of<const T>(args.in[2]),
      rows_of<const T>(args.in[5]), args.in[4].as<const float>(), sums};
  const size_t shared = (4 * Tile::kFloats + Tile::kScoreFloats) * sizeof(float) + Tile::kMaskBytes;
  const int tiles = (p.queries + Tile::kTile - 1) / Tile::kTile;
  launch(args.device, queries_kernel<T, Tile>, static_cast<unsigned>(tiles * p.heads * p.batch), Tile::kThreads, shared,
      p, tiles, x, rows_of<const T>(args.in[3]), rows_of<T>(args.out[0]), parts);
  const int key_tiles = (p.keys + Tile::kTile - 1) / Tile::kTile;
  launch(args.device, keys_kernel<T, Tile>, static_cast<unsigned>(key_tiles * p.kv_heads * p.batch), Tile::kThreads,
      shared, p, key_tiles, x, rows_of<T>(args.out[1]), rows_of<T>(args.out[2]));
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
