// Shared by our own attention kernels: tiles of queries and keys in shared memory as fp32, whatever the storage, and
// their products on matrix units in TF32, three for each in strict fp32. A warp has 16 rows of a tile of scores, and a
// thread two of them: rows row(0) and row(1), columns score_column(0) to score_column(kColumns - 1). In a result
// [kTile, kSize] it has the same rows and columns column(group, 0) and column(group, 1). For long heads kParts warps
// share rows: each has all scores and a part of the result.
#pragma once
#include "engine/kernels/cuda/matrix_units.cuh"
#include "engine/kernels/cuda/philox.cuh"
#include "engine/ops/attention/attention.h"

namespace linnet::flash {
// x rounded to the nearest TF32, as bits of a float.
LINNET_DEVICE unsigned to_tf32(float x) {
#ifdef LINNET_CUDA_EMULATION
  const unsigned bits = __float_as_uint(x);
  return x != x ? 0x7fffffffu : (bits + 0x1000u) & ~0x1fffu;
#else
  unsigned bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return bits;
#endif
}

// A factor of a product in TF32. With kExact it is split in two, whose three largest products have 21 bits of mantissa.
template <class Words, bool kExact> struct Factor { Words large, small; };
template <bool kExact> LINNET_DEVICE unsigned rest_of(float x, unsigned large) {
  return kExact ? to_tf32(x - __uint_as_float(large)) : 0;
}
template <bool kExact> LINNET_DEVICE Factor<uint4, kExact> left_factor(float x, float y, float z, float w) {
  const uint4 large{to_tf32(x), to_tf32(y), to_tf32(z), to_tf32(w)};
  return {large, {rest_of<kExact>(x, large.x), rest_of<kExact>(y, large.y), rest_of<kExact>(z, large.z),
                     rest_of<kExact>(w, large.w)}};
}
template <bool kExact> LINNET_DEVICE Factor<uint2, kExact> right_factor(float x, float y) {
  const uint2 large{to_tf32(x), to_tf32(y)};
  return {large, {rest_of<kExact>(x, large.x), rest_of<kExact>(y, large.y)}};
}
template <bool kExact>
LINNET_DEVICE void multiply(const Factor<uint4, kExact>& a, const Factor<uint2, kExact>& b, float (&c)[4]) {
  if constexpr (kExact) {  // small ones first
    multiply_tf32(a.small, b.large, c);
    multiply_tf32(a.large, b.small, c);
  }
  multiply_tf32(a.large, b.large, c);
}

// Scores are premultiplied by kLog2e, as powers are of two.
constexpr float kLog2e = 1.44269504f, kLn2 = 0.69314718f;

// One head of a tensor: row `t` of sample `b` begins at data + b * sample + t * row + head * size.
template <class T> struct Rows {
  T* data;
  int64_t sample, row;
};
template <class T> Rows<T> rows_of(const TensorView& x) { return {x.as<T>(), x.strides[0], x.strides[1]}; }

struct Problem {
  int64_t batch;
  int heads, kv_heads, queries, keys, size;
  float scale;
  bool causal;
  int window;  // 0: none
  const int32_t *lengths, *starts;
  const float* bias;    // [H, Tq + Tk - 1]
  int64_t bias_stride;  // between the biases of samples; 0: all have one
  DropoutSite dropout;

  LINNET_DEVICE DropoutMask dropout_mask() const { return dropout.random ? dropout.mask() : DropoutMask{}; }
  LINNET_DEVICE int kv_head(int head) const { return head / (heads / kv_heads); }
  // Keys [first, end) are visible to query i of sample b.
  LINNET_DEVICE int end(int64_t b, int i) const {
    int end = keys;
    if (lengths) end = min(end, lengths[b]);
    if (causal) end = min(end, i + keys - queries + 1);
    return max(end, 0);
  }
  LINNET_DEVICE int first(int64_t b, int i, int end) const {
    int first = starts ? starts[b * queries + i] : 0;
    if (window > 0) first = max(first, i + keys - queries - window + 1);
    return min(max(first, 0), end);
  }
  // Outside of this range of keys, queries [i, i + count) see nothing.
  LINNET_DEVICE int2 range(int64_t b, int i, int count) const {
    const int last = min(i + count, queries) - 1, stop = end(b, last);
    int begin = stop;
    if (!starts) return {first(b, i, stop), stop};
    for (int t = i; t <= last; ++t) begin = min(begin, first(b, t, stop));
    return {begin, stop};
  }
  LINNET_DEVICE float bias_of(int64_t b, int head, int i, int j) const {
    return bias[b * bias_stride + static_cast<int64_t>(head) * (queries + keys - 1) + j - i + queries - 1];
  }
};

Problem problem_of(const KernelArgs& args, size_t fixed);

template <int kSizeOf, int kTileOf, bool kExactOf> struct Tiles {
  static constexpr int kSize = kSizeOf, kTile = kTileOf;
  static constexpr bool kExact = kExactOf;  // fp32; else TF32
  static constexpr int kParts = kSize > 128 ? 4 : kSize > 64 ? 2 : 1, kRowWarps = kTile / 16;
  static constexpr int kThreads = kRowWarps * kParts * kWarp;
  static constexpr int kColumns = kTile / 4, kGroups = kSize / (8 * kParts);
  // Floats between rows, such that a warp's accesses hit different banks.
  static constexpr int kStride = kSize + 8, kScoreStride = kTile + 4;
  static constexpr int kFloats = kTile * kStride, kScoreFloats = kTile * kScoreStride;  // of a tile
  static constexpr int kMaskBytes = kTile * kTile / 8;

  // Blocks per multiprocessor: as many as registers allow without spilling.
  static constexpr int kForwardBlocks = kSize <= 64 ? 3 : 1;
  static constexpr int kBackwardBlocks = kSize <= 32 ? 3 : kSize <= 64 ? 2 : 1;
  static constexpr int kScorePieces = kSize <= 32 ? 4 : 2;  // in the backward pass, one after another

  using Scores = float[2][kColumns];
  using Result = float[2][kGroups][2];

  LINNET_DEVICE static int lane() { return static_cast<int>(threadIdx.x) % kWarp; }
  LINNET_DEVICE static int warp() { return static_cast<int>(threadIdx.x) / kWarp; }
  LINNET_DEVICE static int first_row() { return warp() % kRowWarps * 16; }
  LINNET_DEVICE static int part() { return kParts == 1 ? 0 : warp() / kRowWarps; }
  LINNET_DEVICE static int row(int r) { return first_row() + lane() / 4 + 8 * r; }
  LINNET_DEVICE static int score_column(int c) { return c / 2 * 8 + lane() % 4 * 2 + c % 2; }
  LINNET_DEVICE static int column(int group, int v) { return (part() * kGroups + group) * 8 + lane() % 4 * 2 + v; }
  // One thread per row.
  LINNET_DEVICE static bool leads_row() { return lane() % 4 == 0 && part() == 0; }

  // Over the threads of a row.
  LINNET_DEVICE static float row_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, 1));
    return fmaxf(x, __shfl_xor_sync(kAllLanes, x, 2));
  }
  LINNET_DEVICE static float row_sum(float x) {
    x += __shfl_xor_sync(kAllLanes, x, 1);
    return x + __shfl_xor_sync(kAllLanes, x, 2);
  }

  // Whether all rows of a head are read four numbers at a time.
  template <class T> LINNET_DEVICE static bool is_whole(const T* head, int64_t stride, int size) {
    return size % 4 == 0 && (reinterpret_cast<uintptr_t>(head) | (stride * sizeof(T))) % (4 * sizeof(T)) == 0;
  }

  // Rows [from, from + kTile) of a head into `tile`; zeros beyond `count` rows and `size` columns.
  template <class T>
  LINNET_DEVICE static void load(float* tile, const T* head, int64_t stride, int from, int count, int size) {
    constexpr int kPerRow = kSize / 4;
    const bool whole = is_whole(head, stride, size);
    for (int x = static_cast<int>(threadIdx.x); x < kTile * kPerRow; x += kThreads) {
      const int t = x / kPerRow, d = x % kPerRow * 4;
      float four[4] = {0, 0, 0, 0};
      if (from + t < count && d < size) load_up_to_4(head + (from + t) * stride + d, size - d, whole, four);
      *reinterpret_cast<float4*>(tile + t * kStride + d) = {four[0], four[1], four[2], four[3]};
    }
  }

  // scores[r][c] = a[row r] . b[column c], of the first `rows` rows and `columns` columns; others are 0.
  template <int kCount> LINNET_DEVICE static void products(
      const float* a, const float* b, int rows, int columns, float (&scores)[2][kCount]) {
    float sums[kCount / 2][4] = {};
#pragma unroll 1
    for (int k = 0; k < (first_row() < rows ? kSize : 0); k += 8) {
      // The units' columns 0 to 7 are 0, 2, 4, 6, 1, 3, 5, 7 here, so a thread's two are neighbors.
      const int at = lane() / 4 * kStride + k + lane() % 4 * 2;
      const float2 x = *reinterpret_cast<const float2*>(a + first_row() * kStride + at);
      const float2 y = *reinterpret_cast<const float2*>(a + (first_row() + 8) * kStride + at);
      const auto left = left_factor<kExact>(x.x, y.x, x.y, y.y);
#pragma unroll
      for (int n = 0; n < kCount / 2; ++n) {
        if (8 * n >= columns) break;
        const float2 z = *reinterpret_cast<const float2*>(b + 8 * n * kStride + at);
        multiply(left, right_factor<kExact>(z.x, z.y), sums[n]);
      }
    }
#pragma unroll
    for (int n = 0; n < kCount / 2; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) scores[i / 2][2 * n + i % 2] = sums[n][i];
  }

  // result[row r] += sum over t < count of weights[row r][t] * tile[t], for the first `rows` rows. Weights and tile are
  // 0 from `count` to the next multiple of 8.
  LINNET_DEVICE static void add_weighted(const float* weights, const float* tile, int rows, int count, Result& result) {
    const int end = first_row() < rows ? min(count, kTile) : 0;
#pragma unroll 1
    for (int k = 0; k < end; k += 8) {
      const float* w = weights + (first_row() + lane() / 4) * kScoreStride + k + lane() % 4;
      const auto left = left_factor<kExact>(w[0], w[8 * kScoreStride], w[4], w[8 * kScoreStride + 4]);
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        const float* from = tile + (k + lane() % 4) * kStride + (part() * kGroups + g) * 8 + lane() / 4;
        float sums[4] = {result[0][g][0], result[0][g][1], result[1][g][0], result[1][g][1]};
        multiply(left, right_factor<kExact>(from[0], from[4 * kStride]), sums);
        result[0][g][0] = sums[0], result[0][g][1] = sums[1], result[1][g][0] = sums[2], result[1][g][1] = sums[3];
      }
    }
  }

  LINNET_DEVICE static void clear(Result& result) {
#pragma unroll
    for (int r = 0; r < 2; ++r)
#pragma unroll
      for (int g = 0; g < kGroups; ++g) result[r][g][0] = result[r][g][1] = 0;
  }

  template <class T> LINNET_DEVICE static void store(
      const Result& result, float factor, T* head, int64_t stride, int from, int count, int size) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (from + row(r) >= count) continue;
#pragma unroll
      for (int g = 0; g < kGroups; ++g)
#pragma unroll
        for (int v = 0; v < 2; ++v)
          if (column(g, v) < size)
            head[(from + row(r)) * stride + column(g, v)] = from_float<T>(factor * result[r][g][v]);
    }
  }

  // Bit j % 8 of mask[i * kTile / 8 + j / 8]: whether query i0 + i keeps key j0 + j. j0 is a multiple of 8.
  LINNET_DEVICE static void draw_mask(uint8_t* mask, const DropoutMask& dropout, int i0, int j0, int head, int64_t b) {
    constexpr int kPerRow = kTile / 8;
    for (int x = static_cast<int>(threadIdx.x); x < kMaskBytes; x += kThreads) {
      const uint4 words = philox({static_cast<unsigned>(j0 / 8 + x % kPerRow), static_cast<unsigned>(i0 + x / kPerRow),
                                     static_cast<unsigned>(head), static_cast<unsigned>(b)},
          dropout.key);
      unsigned bits = 0;
#pragma unroll
      for (int e = 0; e < 8; ++e) bits |= (philox_value(words, e) >= dropout.threshold ? 1u : 0u) << e;
      mask[x] = static_cast<uint8_t>(bits);
    }
  }
  // The bits of row(r), from this thread's first column on, for kept().
  using Bits = unsigned[kTile / 32];
  LINNET_DEVICE static void read_bits(const uint8_t* mask, int r, Bits& bits) {
    const auto* words = reinterpret_cast<const unsigned*>(mask + row(r) * (kTile / 8));
#pragma unroll
    for (int i = 0; i < kTile / 32; ++i) bits[i] = words[i] >> (lane() % 4 * 2);
  }
  // `column`: a compile-time score_column().
  LINNET_DEVICE static bool kept(const Bits& bits, int column) {
    return bits[column / 8] >> (column / 2 % 4 * 8 + column % 2) & 1;
  }
};

template <bool kExact, class Body> void for_size(int64_t size, Body&& body) {
  if (size <= 32) return body.template operator()<Tiles<32, 64, kExact>>();
  if (size <= 64) return body.template operator()<Tiles<64, 64, kExact>>();
  if (size <= 128) return body.template operator()<Tiles<128, 64, kExact>>();
  return body.template operator()<Tiles<256, 32, kExact>>();
}

// Calls body.operator()<T, Tiles<...>>(). bf16 values are exact in TF32.
template <class Body> void for_kernels(const KernelArgs& args, const Problem& p, Body&& body) {
  for_storage(args.in[0].type.dtype, [&]<class T>() {
    const auto of_tiles = [&]<class Tile>() { body.template operator()<T, Tile>(); };
    if constexpr (std::is_same_v<T, float>)
      if (args.attrs<AttentionAttrs>().precision == Precision::kF32) return for_size<true>(p.size, of_tiles);
    for_size<false>(p.size, of_tiles);
  });
}

inline bool supports(const KernelQuery& query) {
  return query.in[0].shape[2] / query.attrs<AttentionAttrs>().heads <= 256;
}
}  // namespace linnet::flash
