#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/thread_pool.h"
#include "kernels/norm/batch_norm.h"
#include "kernels/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/norm/batch_norm_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/lanes-inl.h"

#ifndef LINNET_KERNELS_BATCH_NORM_LAYOUT
#define LINNET_KERNELS_BATCH_NORM_LAYOUT
namespace linnet {
namespace {

// Rows of a chunk, which stays in the L2 cache between its two passes.
int64_t chunk_rows(int64_t rows, int64_t channels) {
  return std::clamp<int64_t>((1 << 15) / channels, 16, std::max<int64_t>(rows, 16));
}
int64_t chunk_count(int64_t rows, int64_t channels) {
  const int64_t each = chunk_rows(rows, channels);
  return (rows + each - 1) / each;
}

}  // namespace
}  // namespace linnet
#endif

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {

// Calls body(first row, rows, chunk) for every chunk.
template <class Body>
void for_chunks(const BatchNormArgs& args, ThreadPool& pool, const Body& body) {
  const int64_t each = chunk_rows(args.rows, args.channels);
  pool.run(chunk_count(args.rows, args.channels),
           [&](int64_t chunk, int) { body(chunk * each, std::min(each, args.rows - chunk * each), chunk); });
}

// The sum of term(row) over rows; four sums side by side hide the latency of an addition.
template <class Term>
HWY_INLINE Floats SumRows(int64_t rows, const Term& term) {
  Floats s0 = SetAll(0), s1 = s0, s2 = s0, s3 = s0;
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4) {
    s0 = hn::Add(s0, term(r));
    s1 = hn::Add(s1, term(r + 1));
    s2 = hn::Add(s2, term(r + 2));
    s3 = hn::Add(s3, term(r + 3));
  }
  for (; r < rows; ++r) s0 = hn::Add(s0, term(r));
  return hn::Add(hn::Add(s0, s1), hn::Add(s2, s3));
}

// means, squares [chunks, channels]: of each chunk, the squares around its mean.
template <class T>
void chunk_moments_of(const BatchNormArgs& args, float* means, float* squares, ThreadPool& pool) {
  const int64_t channels = args.channels;
  for_chunks(args, pool, [&](int64_t first, int64_t rows, int64_t chunk) {
    const T* x = args.x.as<T>() + first * channels;
    const Floats share = SetAll(1 / static_cast<float>(rows));
    ForRow(channels, [&](const auto& at) LINNET_LAMBDA {
      const Floats mean =
          hn::Mul(SumRows(rows, [&](int64_t r) LINNET_LAMBDA { return at.load(x + r * channels); }), share);
      at.store(mean, means + chunk * channels);
      at.store(SumRows(rows,
                       [&](int64_t r) LINNET_LAMBDA {
                         const Floats centered = hn::Sub(at.load(x + r * channels), mean);
                         return hn::Mul(centered, centered);
                       }),
               squares + chunk * channels);
    });
  });
}

void chunk_moments(const BatchNormArgs& args, float* means, float* squares, ThreadPool& pool) {
  const auto function = args.x.is_bf16 ? chunk_moments_of<Bfloat16> : chunk_moments_of<float>;
  function(args, means, squares, pool);
}

// out = a[c] * u + b[c] * v + k[c]; without v, out = a[c] * u + k[c].
template <class T>
void scale_rows_of(const BatchNormArgs& args, const float* a, const T* u, const float* b, const T* v, const float* k,
                   T* out, ThreadPool& pool) {
  const int64_t channels = args.channels;
  for_ranges(pool, args.rows, channels, [&](int64_t begin, int64_t end) {
    ForRow(channels, [&](const auto& at) LINNET_LAMBDA {
      const Floats scale = at.load(a), shift = at.load(k), other = v ? at.load(b) : SetAll(0);
      for (int64_t r = begin * channels; r < end * channels; r += channels) {
        Floats x = hn::MulAdd(at.load(u + r), scale, shift);
        if (v) x = hn::MulAdd(at.load(v + r), other, x);
        at.store(x, out + r);
      }
    });
  });
}

void scale_rows(const BatchNormArgs& args, const float* a, StoredFloats u, const float* b, StoredFloats v,
                const float* k, MutableStoredFloats out, ThreadPool& pool) {
  if (out.is_bf16)
    scale_rows_of(args, a, u.bf16(), b, v.bf16(), k, out.bf16(), pool);
  else
    scale_rows_of(args, a, u.f32(), b, v.f32(), k, out.f32(), pool);
}

// sums, products [chunks, channels]: of dy, and of dy * (x - mean).
template <class T>
void chunk_sums_of(const BatchNormArgs& args, const T* dy, const float* mean, float* sums, float* products,
                   ThreadPool& pool) {
  const int64_t channels = args.channels;
  for_chunks(args, pool, [&](int64_t first, int64_t rows, int64_t chunk) {
    const T *x = args.x.as<T>() + first * channels, *slopes = dy + first * channels;
    ForRow(channels, [&](const auto& at) LINNET_LAMBDA {
      const Floats center = at.load(mean);
      Floats sum0 = SetAll(0), sum1 = sum0, product0 = sum0, product1 = sum0;
      int64_t r = 0;
      for (; r + 2 <= rows; r += 2) {
        const Floats d0 = at.load(slopes + r * channels), d1 = at.load(slopes + (r + 1) * channels);
        sum0 = hn::Add(sum0, d0), sum1 = hn::Add(sum1, d1);
        product0 = hn::MulAdd(d0, hn::Sub(at.load(x + r * channels), center), product0);
        product1 = hn::MulAdd(d1, hn::Sub(at.load(x + (r + 1) * channels), center), product1);
      }
      if (r < rows) {
        const Floats d = at.load(slopes + r * channels);
        sum0 = hn::Add(sum0, d);
        product0 = hn::MulAdd(d, hn::Sub(at.load(x + r * channels), center), product0);
      }
      at.store(hn::Add(sum0, sum1), sums + chunk * channels);
      at.store(hn::Add(product0, product1), products + chunk * channels);
    });
  });
}

void chunk_sums(const BatchNormArgs& args, StoredFloats dy, const float* mean, float* sums, float* products,
                ThreadPool& pool) {
  if (dy.is_bf16)
    chunk_sums_of(args, dy.bf16(), mean, sums, products, pool);
  else
    chunk_sums_of(args, dy.f32(), mean, sums, products, pool);
}

}  // namespace
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet {
namespace {

HWY_EXPORT(chunk_moments);
HWY_EXPORT(chunk_sums);
HWY_EXPORT(scale_rows);

void check_types(StoredFloats x, StoredFloats y, StoredFloats z) {
  if (x.is_bf16 != y.is_bf16 || x.is_bf16 != z.is_bf16) fail_internal("batch_norm: operands of two types");
}

}  // namespace

size_t batch_norm_workspace(int64_t rows, int64_t channels) {
  return static_cast<size_t>((2 * chunk_count(rows, channels) + 3) * channels) * sizeof(float);
}

void batch_norm_forward(const BatchNormArgs& args, MutableStoredFloats y, float* mean, float* variance,
                        std::byte* workspace, ThreadPool& pool) {
  check_types(args.x, y, y);
  const int64_t channels = args.channels, chunks = chunk_count(args.rows, channels);
  auto* means = reinterpret_cast<float*>(workspace);
  float *squares = means + chunks * channels, *scale = squares + chunks * channels, *shift = scale + channels;
  HWY_DYNAMIC_DISPATCH(chunk_moments)(args, means, squares, pool);
  const int64_t each = chunk_rows(args.rows, channels);
  for (int64_t c = 0; c < channels; ++c) {
    double joined = 0, square = 0, count = 0;
    for (int64_t i = 0; i < chunks; ++i) {
      const auto rows = static_cast<double>(std::min(each, args.rows - i * each));
      const double apart = means[i * channels + c] - joined, both = count + rows;
      square += squares[i * channels + c] + apart * apart * count * rows / both;
      joined += apart * rows / both;
      count = both;
    }
    mean[c] = static_cast<float>(joined);
    variance[c] = static_cast<float>(square / count);
    scale[c] = static_cast<float>(args.weight[c] / std::sqrt(static_cast<double>(variance[c]) + args.epsilon));
    shift[c] = static_cast<float>(args.bias[c] - joined * scale[c]);
  }
  HWY_DYNAMIC_DISPATCH(scale_rows)(args, scale, args.x, nullptr, nullptr, shift, y, pool);
}

// dx = weight * rstd * (dy - mean(dy) - (x - mean) * rstd^2 * mean(dy * (x - mean)))
void batch_norm_backward(const BatchNormArgs& args, StoredFloats dy, const float* mean, const float* variance,
                         MutableStoredFloats dx, float* dweight, float* dbias, std::byte* workspace, ThreadPool& pool) {
  check_types(args.x, dy, dx);
  const int64_t channels = args.channels, chunks = chunk_count(args.rows, channels);
  auto* sums = reinterpret_cast<float*>(workspace);
  float *products = sums + chunks * channels, *of_dy = products + chunks * channels, *of_x = of_dy + channels,
        *shift = of_x + channels;
  HWY_DYNAMIC_DISPATCH(chunk_sums)(args, dy, mean, sums, products, pool);
  const auto count = static_cast<double>(args.rows);
  for (int64_t c = 0; c < channels; ++c) {
    double sum = 0, product = 0;
    for (int64_t i = 0; i < chunks; ++i) sum += sums[i * channels + c], product += products[i * channels + c];
    const double rstd = 1 / std::sqrt(static_cast<double>(variance[c]) + args.epsilon), a = args.weight[c] * rstd;
    const double b = -a * rstd * rstd * product / count;
    dbias[c] = static_cast<float>(sum);
    dweight[c] = static_cast<float>(product * rstd);
    of_dy[c] = static_cast<float>(a), of_x[c] = static_cast<float>(b);
    shift[c] = static_cast<float>(-a * sum / count - b * mean[c]);
  }
  HWY_DYNAMIC_DISPATCH(scale_rows)(args, of_dy, dy, of_x, args.x, shift, dx, pool);
}

}  // namespace linnet
#endif
