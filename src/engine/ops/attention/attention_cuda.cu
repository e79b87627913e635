// Our own attention, for what cuDNN does not do: fp32, TF32, and every kind of mask. A block has kTile queries of one
// head and visits the tiles of keys that they see (Dao et al. 2022).
#include "engine/kernels/cuda/philox.cuh"
#include "engine/kernels/cuda/storage.cuh"
#include "engine/ops/attention/attention_tiles_cuda.cuh"

namespace linnet {
namespace flash {
Problem problem_of(const KernelArgs& args, size_t fixed) {
  const auto& attrs = args.attrs<AttentionAttrs>();
  const Shape &q = args.in[0].shape(), &k = args.in[1].shape();
  Problem p{};
  p.batch = q[0];
  p.heads = static_cast<int>(attrs.heads), p.kv_heads = static_cast<int>(attrs.kv_heads);
  p.queries = static_cast<int>(q[1]), p.keys = static_cast<int>(k[1]), p.size = static_cast<int>(q[2] / attrs.heads);
  p.scale = static_cast<float>(attrs.scale), p.causal = attrs.causal, p.window = static_cast<int>(attrs.window);
  if (attrs.has_lengths) p.lengths = args.in[fixed].as<int32_t>();
  if (attrs.has_starts) p.starts = args.in[attrs.starts_at(fixed)].as<int32_t>();
  if (attrs.has_bias) {
    const TensorView& bias = args.in[attrs.bias_at(fixed)];
    p.bias = bias.as<float>(), p.bias_stride = bias_stride(bias.shape());
  }
  if (attrs.dropout > 0) p.dropout = dropout_site_of(args.in.back().as<int32_t>(), attrs.dropout_site, attrs.dropout);
  return p;
}
}  // namespace flash

namespace {
using namespace flash;

template <class T, class Tile> __global__ void __launch_bounds__(Tile::kThreads, Tile::kForwardBlocks) forward_kernel(
    Problem p, int tiles, Rows<const T> q, Rows<const T> k, Rows<const T> v, Rows<T> o, float* __restrict__ lse) {
  begin_kernel();
  constexpr int kTile = Tile::kTile;
  float* queries = dynamic_shared<float>();
  float *keys = queries + Tile::kFloats, *weights = keys + Tile::kFloats;  // keys: values too
  auto* mask = reinterpret_cast<uint8_t*>(weights + Tile::kScoreFloats);
  // Under a causal mask the last queries see most, so they begin first.
  const int tile = tiles - 1 - static_cast<int>(blockIdx.x) % tiles;
  const int head = static_cast<int>(blockIdx.x) / tiles % p.heads, i0 = tile * kTile;
  const int64_t b = blockIdx.x / (static_cast<unsigned>(tiles) * static_cast<unsigned>(p.heads));
  const int64_t head_at = static_cast<int64_t>(head) * p.size, kv_at = static_cast<int64_t>(p.kv_head(head)) * p.size;
  const T *k_head = k.data + b * k.sample + kv_at, *v_head = v.data + b * v.sample + kv_at;
  Tile::load(queries, q.data + b * q.sample + head_at, q.row, i0, p.queries, p.size);
  const DropoutMask dropout = p.dropout_mask();
  const float scale = p.scale * kLog2e;
  int first[2], end[2];
  float top[2], sum[2];
  typename Tile::Result result;
  Tile::clear(result);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int i = min(i0 + Tile::row(r), p.queries - 1);
    end[r] = p.end(b, i), first[r] = p.first(b, i, end[r]);
    top[r] = -INFINITY, sum[r] = 0;
  }
  const int2 range = p.range(b, i0, kTile);
  for (int j0 = range.x / kTile * kTile; j0 < range.y; j0 += kTile) {
    __syncthreads();
    Tile::load(keys, k_head, k.row, j0, range.y, p.size);
    if (p.dropout.random) Tile::draw_mask(mask, dropout, i0, j0, head, b);
    __syncthreads();
    typename Tile::Scores s;
    Tile::products(queries, keys, p.queries - i0, range.y - j0, s);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int i = Tile::row(r);
#pragma unroll
      for (int c = 0; c < Tile::kColumns; ++c) s[r][c] *= scale;
      if (p.bias)
#pragma unroll
        for (int c = 0; c < Tile::kColumns; ++c) {
          const int j = j0 + Tile::score_column(c);
          if (first[r] <= j && j < end[r]) s[r][c] += kLog2e * p.bias_of(b, head, min(i0 + i, p.queries - 1), j);
        }
      if (j0 < first[r] || end[r] < j0 + kTile)  // what is not seen may be anything
#pragma unroll
        for (int c = 0; c < Tile::kColumns; ++c) {
          const int j = j0 + Tile::score_column(c);
          s[r][c] = first[r] <= j && j < end[r] ? s[r][c] : -INFINITY;
        }
      float largest = -INFINITY;
#pragma unroll
      for (int c = 0; c < Tile::kColumns; ++c) largest = fmaxf(largest, s[r][c]);
      const float next = fmaxf(top[r], Tile::row_max(largest));
      const float base = next == -INFINITY ? 0 : next, shrink = exp2f(top[r] - base);
      top[r] = next;
      sum[r] *= shrink;
#pragma unroll
      for (int c = 0; c < Tile::kColumns; ++c) sum[r] += s[r][c] = exp2f(s[r][c] - base);
      if (p.dropout.random) {
        typename Tile::Bits bits;
        Tile::read_bits(mask, r, bits);
#pragma unroll
        for (int c = 0; c < Tile::kColumns; ++c) s[r][c] = Tile::kept(bits, c) ? s[r][c] * dropout.scale : 0;
      }
      if (Tile::part() == 0)
#pragma unroll
        for (int c = 0; c < Tile::kColumns; ++c) weights[i * Tile::kScoreStride + Tile::score_column(c)] = s[r][c];
#pragma unroll
      for (int g = 0; g < Tile::kGroups; ++g)
#pragma unroll
        for (int e = 0; e < 2; ++e) result[r][g][e] *= shrink;
    }
    __syncthreads();
    Tile::load(keys, v_head, v.row, j0, range.y, p.size);  // what lies behind may be anything, and 0 * NaN is NaN
    __syncthreads();
    Tile::add_weighted(weights, keys, p.queries - i0, range.y - j0, result);
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float total = Tile::row_sum(sum[r]), inverse = total == 0 ? 0 : 1 / total;
    const int i = i0 + Tile::row(r);
    if (i < p.queries && Tile::leads_row())
      lse[(b * p.heads + head) * p.queries + i] = total == 0 ? -INFINITY : kLn2 * top[r] + logf(total);
#pragma unroll
    for (int g = 0; g < Tile::kGroups; ++g)
#pragma unroll
      for (int e = 0; e < 2; ++e) result[r][g][e] *= inverse;
  }
  Tile::store(result, 1.0f, o.data + b * o.sample + head_at, o.row, i0, p.queries, p.size);
}

void run(const KernelArgs& args) {
  const Problem p = problem_of(args, kAttentionFixed);
  for_kernels(args, p, [&]<class T, class Tile>() {
    const int tiles = (p.queries + Tile::kTile - 1) / Tile::kTile;
    const size_t shared = (2 * Tile::kFloats + Tile::kScoreFloats) * sizeof(float) + Tile::kMaskBytes;
    launch(args.device, forward_kernel<T, Tile>, static_cast<unsigned>(tiles * p.heads * p.batch), Tile::kThreads,
        shared, p, tiles, rows_of<const T>(args.in[0]), rows_of<const T>(args.in[1]), rows_of<const T>(args.in[2]),
        rows_of<T>(args.out[0]), args.out[1].as<float>());
  });
}

// -inf where a key is not visible: a piece of attention's decomposition. Of scores [B, heads, queries, keys]
struct ScoreMask {
  int64_t heads, queries, keys, window;
  bool causal;
  const int32_t *lengths, *starts;  // null: none
};

template <class T> LINNET_DEVICE void mask_score(int64_t i, ScoreMask mask, const T* x, T* y) {
  const auto [row, key] = divided(i, mask.keys);
  const auto [head, query] = divided(row, mask.queries);
  const int64_t sample = divided(head, mask.heads).quotient, last = query + mask.keys - mask.queries;
  bool visible = !mask.lengths || key < mask.lengths[sample];
  if (mask.causal) visible = visible && key <= last;
  if (mask.starts) visible = visible && key >= mask.starts[sample * mask.queries + query];
  if (mask.window > 0) visible = visible && key > last - mask.window;
  y[i] = visible ? x[i] : from_float<T>(-INFINITY);
}

void run_mask_scores(const KernelArgs& args) {
  const auto& attrs = args.attrs<ScoreMaskAttrs>();
  const Shape& shape = args.in[0].shape();
  const ScoreMask mask{.heads = shape[1],
      .queries = shape[2],
      .keys = shape[3],
      .window = attrs.window,
      .causal = attrs.causal,
      .lengths = attrs.has_lengths ? args.in[1].as<int32_t>() : nullptr,
      .starts = attrs.has_starts ? args.in.back().as<int32_t>() : nullptr};
  for_storage(args.in[0].type.dtype, [&]<class T>() {
    launch_elements<mask_score<T>>(args.device, shape.elements(), mask, args.in[0].as<T>(), args.out[0].as<T>());
  });
}

// T5's buckets of distances. The host's float32 logarithm gives a bucket's beginning, not a device's rounding.
constexpr int kMaxBuckets = 256;

// The smallest distance of each bucket of one direction, ascending.
struct BucketStarts {
  int32_t count;
  int32_t at[kMaxBuckets];
};

LINNET_DEVICE void find_bucket(int64_t i, int64_t entries, int64_t queries, bool bidirectional, BucketStarts starts,
    const int32_t* positions, int32_t* to) {
  const auto [row, entry] = divided(i, entries);
  int64_t distance = static_cast<int64_t>(entry) - (queries - 1) - (positions ? positions[row] : 0);
  int32_t first = 0;
  if (bidirectional) {
    if (distance > 0) first = starts.count;
    distance = distance < 0 ? -distance : distance;
  } else {
    distance = distance < 0 ? -distance : 0;
  }
  int32_t bucket = 0;
  while (bucket + 1 < starts.count && starts.at[bucket + 1] <= distance) ++bucket;
  to[i] = first + bucket;
}

int64_t one_direction(const DistanceBucketsAttrs& attrs) {
  return attrs.bidirectional ? attrs.buckets / 2 : attrs.buckets;
}

// Buckets do not fall with the distance: each start is found by bisection.
BucketStarts bucket_starts(const DistanceBucketsAttrs& attrs) {
  BucketStarts starts{.count = static_cast<int32_t>(one_direction(attrs)), .at = {}};
  const auto bucket_of = [&](int64_t distance) {
    return distance_bucket(-distance, attrs.buckets, attrs.max_distance, attrs.bidirectional);
  };
  for (int32_t bucket = 1; bucket < starts.count; ++bucket) {
    int64_t below = starts.at[bucket - 1], from = INT32_MAX;
    while (from - below > 1) (bucket_of((below + from) / 2) >= bucket ? from : below) = (below + from) / 2;
    starts.at[bucket] = static_cast<int32_t>(bucket_of(below) >= bucket ? below : from);
  }
  return starts;
}

bool supports_buckets(const KernelQuery& query) {
  return one_direction(query.attrs<DistanceBucketsAttrs>()) <= kMaxBuckets;
}

void run_distance_buckets(const KernelArgs& args) {
  const auto& attrs = args.attrs<DistanceBucketsAttrs>();
  launch_elements<find_bucket>(args.device, args.out[0].elements(), attrs.queries + attrs.keys - 1, attrs.queries,
      attrs.bidirectional, bucket_starts(attrs), attrs.has_position ? args.in[0].as<int32_t>() : nullptr,
      args.out[0].as<int32_t>());
}

// Operands and results of cuDNN's kernels.
constexpr int kThreads = 256;

struct alignas(16) Eight {
  bf16 at[8];
};

__global__ void __launch_bounds__(kThreads) prepare_kernel(AttentionExtras e) {
  begin_kernel();
  for (int64_t b = threadIdx.x; b < e.batch; b += kThreads) {
    if (e.query_lengths) e.query_lengths[b] = e.queries;
    if (e.key_lengths) e.key_lengths[b] = min(max(e.lengths[b], 1), e.keys);
  }
  if (threadIdx.x != 0 || !e.seed) return;
  e.seed[0] = e.random ? static_cast<int64_t>(dropout_key(e.random, e.site)) : 0;
  e.offset[0] = 0;
}

constexpr int kRowsAtOnce = kThreads / kWarp;

struct MaskedResults {
  MaskedRows of[3];
  int64_t first_row[4];  // in the grid, of each result and behind the last
};

// A warp for each row; most return at once.
__global__ void __launch_bounds__(kThreads)
    zero_rows_kernel(MaskedResults results, int count, const int32_t* __restrict__ lengths) {
  begin_kernel();
  int64_t row = static_cast<int64_t>(blockIdx.x) * kRowsAtOnce + threadIdx.x / kWarp;
  int i = 0;
  while (i < count && row >= results.first_row[i + 1]) ++i;
  if (i == count) return;
  const MaskedRows& result = results.of[i];
  row -= results.first_row[i];
  const int64_t sample = row / result.length, position = row % result.length;
  if (result.of_keys ? position < lengths[sample] : lengths[sample] > 0) return;
  bf16* const to = static_cast<bf16*>(result.data) + sample * result.sample + position * result.row;
  for (int64_t j = 8 * (threadIdx.x % kWarp); j < result.width; j += 8 * kWarp)
    *reinterpret_cast<Eight*>(to + j) = Eight{};
}

struct Strided {
  int64_t length, width, sample, row;
  LINNET_DEVICE int64_t location(int64_t i) const {
    return i / width / length * sample + i / width % length * row + i % width;
  }
};

LINNET_DEVICE void pack(int64_t i, Strided at, const float* from, bf16* to) {
  to[i] = from_float<bf16>(from[at.location(i)]);
}
LINNET_DEVICE void unpack(int64_t i, Strided at, const bf16* from, float* to) {
  to[at.location(i)] = to_float(from[i]);
}

Strided strided(const TensorView& x) { return {x.shape()[1], x.shape()[2], x.strides[0], x.strides[1]}; }
}  // namespace

LINNET_KERNELS(attention_cuda, {"flash", run, supports})
LINNET_KERNELS(mask_scores_cuda, {"elements", run_mask_scores})
LINNET_KERNELS(distance_buckets_cuda, {"starts", run_distance_buckets, supports_buckets})

void prepare_attention(Device* device, const AttentionExtras& extras) {
  launch(device, prepare_kernel, 1, kThreads, 0, extras);
}

void zero_masked_rows(Device* device, int64_t batch, const int32_t* lengths, std::span<const MaskedRows> results) {
  MaskedResults list{};
  for (size_t i = 0; i < results.size(); ++i) {
    list.of[i] = results[i];
    list.first_row[i + 1] = list.first_row[i] + batch * results[i].length;
  }
  launch(device, zero_rows_kernel, blocks_for(list.first_row[results.size()], kRowsAtOnce), kThreads, 0, list,
      static_cast<int>(results.size()), lengths);
}

void pack_bf16(Device* device, const TensorView& from, void* to) {
  launch_elements<pack>(device, from.elements(), strided(from), from.as<const float>(), static_cast<bf16*>(to));
}

void unpack_bf16(Device* device, const void* from, const TensorView& to) {
  launch_elements<unpack>(device, to.elements(), strided(to), static_cast<const bf16*>(from), to.as<float>());
}
}  // namespace linnet
