// What the attention kernels of our own share: tiles of queries and keys in shared memory as fp32, whatever the
// storage; 256 threads as 16 x 16, each with kEach x kEach scores of a kTile x kTile tile.
//
// Thread (ty, tx) has rows ty * kEach + r and columns tx + 16 * c of the scores: with rows of kSize + 4 floats, the
// float4 that 16 neighbours read of 16 rows lie in different banks. Of a result [kTile, kSize] it has the same rows and
// the columns of column().
#pragma once
#include "engine/kernels/cuda/philox.cuh"
#include "engine/kernels/cuda/storage.cuh"
#include "engine/ops/attention/attention.h"

namespace linnet::flash {

constexpr int kSide = 16, kThreads = kSide * kSide;

// One head of a tensor: row `t` of sample `b` begins at data + b * sample + t * row + head * size.
template <class T>
struct Rows {
  T* data;
  int64_t sample, row;
};
template <class T>
Rows<T> rows_of(const TensorView& x) {
  return {x.as<T>(), x.strides[0], x.strides[1]};
}

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
  // A range of keys outside of which queries [i, i + count) see nothing.
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

template <int kSizeOf, int kTileOf>
struct Tiles {
  static constexpr int kSize = kSizeOf, kTile = kTileOf, kEach = kTile / kSide;
  static constexpr int kStride = kSize + 4, kScoreStride = kTile + 4;  // floats between rows
  static constexpr int kVector = kSize / kSide < 4 ? kSize / kSide : 4, kGroups = kSize / (kSide * kVector);
  static constexpr int kFloats = kTile * kStride, kScoreFloats = kTile * kScoreStride;  // of a tile
  static constexpr int kMaskBytes = kTile * kTile / 8;

  // Blocks that a multiprocessor should hold at once: as many as registers allow without spilling.
  static constexpr int kForwardBlocks = kSize <= 64 ? 2 : 1, kBackwardBlocks = 1;

  using Scores = float[kEach][kEach];
  using Result = float[kEach][kGroups][kVector];

  LINNET_DEVICE static int row(int r) { return static_cast<int>(threadIdx.x) / kSide * kEach + r; }
  LINNET_DEVICE static int score_column(int c) { return static_cast<int>(threadIdx.x) % kSide + kSide * c; }
  LINNET_DEVICE static int column(int group, int v) {
    return (group * kSide + static_cast<int>(threadIdx.x) % kSide) * kVector + v;
  }

  // Rows [from, from + kTile) of a head into `tile`; zeros beyond `count` rows and `size` columns.
  template <class T>
  LINNET_DEVICE static void load(float* tile, const T* head, int64_t stride, int from, int count, int size) {
    constexpr int kPerRow = kSize / 4;
    const bool whole =
        size % 4 == 0 && (reinterpret_cast<uintptr_t>(head) | (stride * sizeof(T))) % (4 * sizeof(T)) == 0;
    for (int x = static_cast<int>(threadIdx.x); x < kTile * kPerRow; x += kThreads) {
      const int t = x / kPerRow, d = x % kPerRow * 4;
      float four[4] = {0, 0, 0, 0};
      if (from + t < count && d < size) {
        const T* location = head + (from + t) * stride + d;
        if (whole) {
          load4(location, four);
        } else {
#pragma unroll
          for (int e = 0; e < 4; ++e)
            if (d + e < size) four[e] = to_float(location[e]);
        }
      }
      *reinterpret_cast<float4*>(tile + t * kStride + d) = {four[0], four[1], four[2], four[3]};
    }
  }

  // scores[r][c] = a[row r] . b[column c]
  LINNET_DEVICE static void products(const float* a, const float* b, Scores& scores) {
#pragma unroll
    for (int r = 0; r < kEach; ++r)
#pragma unroll
      for (int c = 0; c < kEach; ++c) scores[r][c] = 0;
#pragma unroll 1
    for (int d = 0; d < kSize; d += 4) {
      float4 x[kEach];
#pragma unroll
      for (int r = 0; r < kEach; ++r) x[r] = *reinterpret_cast<const float4*>(a + row(r) * kStride + d);
#pragma unroll
      for (int c = 0; c < kEach; ++c) {  // one at a time: registers are short in the backward kernels
        const float4 y = *reinterpret_cast<const float4*>(b + score_column(c) * kStride + d);
#pragma unroll
        for (int r = 0; r < kEach; ++r) {
          scores[r][c] += x[r].x * y.x;
          scores[r][c] += x[r].y * y.y;
          scores[r][c] += x[r].z * y.z;
          scores[r][c] += x[r].w * y.w;
        }
      }
    }
  }

  // result[row r] += sum over t of weights[row r][t] * tile[t]
  LINNET_DEVICE static void add_weighted(const float* weights, const float* tile, Result& result) {
#pragma unroll 1
    for (int t = 0; t < kTile; t += 4) {
      float4 w[kEach];
#pragma unroll
      for (int r = 0; r < kEach; ++r) w[r] = *reinterpret_cast<const float4*>(weights + row(r) * kScoreStride + t);
#pragma unroll
      for (int e = 0; e < 4; ++e)
#pragma unroll
        for (int g = 0; g < kGroups; ++g) {
          float y[kVector];
          const float* location = tile + (t + e) * kStride + column(g, 0);
          if constexpr (kVector == 4) {
            const float4 four = *reinterpret_cast<const float4*>(location);
            y[0] = four.x, y[1] = four.y, y[2] = four.z, y[3] = four.w;
          } else {
            const float2 two = *reinterpret_cast<const float2*>(location);
            y[0] = two.x, y[1] = two.y;
          }
#pragma unroll
          for (int r = 0; r < kEach; ++r) {
            const float weight = e == 0 ? w[r].x : e == 1 ? w[r].y : e == 2 ? w[r].z : w[r].w;
#pragma unroll
            for (int v = 0; v < kVector; ++v) result[r][g][v] += weight * y[v];
          }
        }
    }
  }

  LINNET_DEVICE static void clear(Result& result) {
#pragma unroll
    for (int r = 0; r < kEach; ++r)
#pragma unroll
      for (int g = 0; g < kGroups; ++g)
#pragma unroll
        for (int v = 0; v < kVector; ++v) result[r][g][v] = 0;
  }

  template <class T>
  LINNET_DEVICE static void store(const Result& result, float factor, T* head, int64_t stride, int from, int count,
                                  int size) {
#pragma unroll
    for (int r = 0; r < kEach; ++r) {
      if (from + row(r) >= count) continue;
#pragma unroll
      for (int g = 0; g < kGroups; ++g)
#pragma unroll
        for (int v = 0; v < kVector; ++v)
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
  LINNET_DEVICE static bool keeps(const uint8_t* mask, int i, int j) {
    return mask[i * (kTile / 8) + j / 8] >> (j % 8) & 1;
  }
};

// The largest of the 16 threads that share rows; their sum.
LINNET_DEVICE float row_max(float x) {
#pragma unroll
  for (int step = kSide / 2; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, step));
  return x;
}
LINNET_DEVICE float row_sum(float x) {
#pragma unroll
  for (int step = kSide / 2; step > 0; step /= 2) x += __shfl_xor_sync(kAllLanes, x, step);
  return x;
}

// Calls body.operator()<Tiles<...>>() for the head size.
template <class Body>
void for_size(int64_t size, Body&& body) {
  if (size <= 32) return body.template operator()<Tiles<32, 64>>();
  if (size <= 64) return body.template operator()<Tiles<64, 64>>();
  if (size <= 128) return body.template operator()<Tiles<128, 64>>();
  return body.template operator()<Tiles<256, 32>>();
}

inline bool supports(const KernelQuery& query) {
  return query.in[0].shape[2] / query.node.attrs.as<AttentionAttrs>().heads <= 256;
}

}  // namespace linnet::flash
