#include <algorithm>
#include <cmath>
#include "base/error.h"
#include "base/thread_pool.h"
#include "engine/kernels/norm/batch_norm.h"
#include "engine/kernels/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/norm/batch_norm_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "engine/kernels/lanes-inl.h"

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

struct BatchNormRows {
  float *scale, *shift;  // [channels]: x * scale + shift
};

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

template <class T>
void normalize_rows_of(const BatchNormArgs& args, const float* scale, const float* shift, const T* residual, T* y,
                       ThreadPool& pool) {
  const int64_t channels = args.channels;
  const T* x = args.x.as<T>();
  for_ranges(pool, args.rows, channels, [&](int64_t begin, int64_t end) {
    ForRow(channels, [&](const auto& at) LINNET_LAMBDA {
      const Floats a = at.load(scale), b = at.load(shift);
      for (int64_t r = begin * channels; r < end * channels; r += channels) {
        Floats value = hn::MulAdd(at.load(x + r), a, b);
        if (residual) value = hn::Add(value, at.load(residual + r));
        // As ops/pointwise has it: NaN stays NaN.
        if (args.relu) value = hn::IfThenZeroElse(hn::Lt(value, SetAll(0)), value);
        at.store(value, y + r);
      }
    });
  });
}

// y = relu(x * scale[c] + shift[c] + residual), the residual and the ReLU where they are asked for.
void normalize_rows(const BatchNormArgs& args, const float* scale, const float* shift, StoredFloats residual,
                    MutableStoredFloats y, ThreadPool& pool) {
  if (y.is_bf16) normalize_rows_of(args, scale, shift, residual.bf16(), y.bf16(), pool);
  else normalize_rows_of(args, scale, shift, residual.f32(), y.f32(), pool);
}

// The part of dy that passes the ReLU, if there is one.
struct Gate {
  Floats scale, shift;  // of the forward pass
  bool relu;
  HWY_INLINE Floats operator()(Floats dy, Floats x) const {
    if (!relu) return dy;
    return hn::IfThenElseZero(hn::Gt(hn::MulAdd(x, scale, shift), SetAll(0)), dy);
  }
};

template <class T>
void chunk_sums_of(const BatchNormArgs& args, const BatchNormRows& forward, const T* dy, const float* mean, float* sums,
                   float* products, ThreadPool& pool) {
  const int64_t channels = args.channels;
  for_chunks(args, pool, [&](int64_t first, int64_t rows, int64_t chunk) {
    const T *x = args.x.as<T>() + first * channels, *slopes = dy + first * channels;
    ForRow(channels, [&](const auto& at) LINNET_LAMBDA {
      const Floats center = at.load(mean);
      const Gate gate{at.load(forward.scale), at.load(forward.shift), args.relu};
      Floats sum0 = SetAll(0), sum1 = sum0, product0 = sum0, product1 = sum0;
      int64_t r = 0;
      for (; r + 2 <= rows; r += 2) {
        const Floats x0 = at.load(x + r * channels), x1 = at.load(x + (r + 1) * channels);
        const Floats d0 = gate(at.load(slopes + r * channels), x0);
        const Floats d1 = gate(at.load(slopes + (r + 1) * channels), x1);
        sum0 = hn::Add(sum0, d0), sum1 = hn::Add(sum1, d1);
        product0 = hn::MulAdd(d0, hn::Sub(x0, center), product0);
        product1 = hn::MulAdd(d1, hn::Sub(x1, center), product1);
      }
      if (r < rows) {
        const Floats last = at.load(x + r * channels), d = gate(at.load(slopes + r * channels), last);
        sum0 = hn::Add(sum0, d);
        product0 = hn::MulAdd(d, hn::Sub(last, center), product0);
      }
      at.store(hn::Add(sum0, sum1), sums + chunk * channels);
      at.store(hn::Add(product0, product1), products + chunk * channels);
    });
  });
}

// sums, products [chunks, channels]: of dy, and of dy * (x - mean).
void chunk_sums(const BatchNormArgs& args, const BatchNormRows& forward, StoredFloats dy, const float* mean,
                float* sums, float* products, ThreadPool& pool) {
  if (dy.is_bf16) chunk_sums_of(args, forward, dy.bf16(), mean, sums, products, pool);
  else chunk_sums_of(args, forward, dy.f32(), mean, sums, products, pool);
}

template <class T>
void gradient_rows_of(const BatchNormArgs& args, const BatchNormRows& forward, const BatchNormRows& of_x,
                      const float* of_dy, const T* dy, T* dx, ThreadPool& pool) {
  const int64_t channels = args.channels;
  const T* x = args.x.as<T>();
  for_ranges(pool, args.rows, channels, [&](int64_t begin, int64_t end) {
    ForRow(channels, [&](const auto& at) LINNET_LAMBDA {
      const Gate gate{at.load(forward.scale), at.load(forward.shift), args.relu};
      const Floats a = at.load(of_dy), b = at.load(of_x.scale), k = at.load(of_x.shift);
      for (int64_t r = begin * channels; r < end * channels; r += channels) {
        const Floats value = at.load(x + r);
        at.store(hn::MulAdd(value, b, hn::MulAdd(gate(at.load(dy + r), value), a, k)), dx + r);
      }
    });
  });
}

// dx = dy * of_dy[c] + x * of_x.scale[c] + of_x.shift[c]
void gradient_rows(const BatchNormArgs& args, const BatchNormRows& forward, const BatchNormRows& of_x,
                   const float* of_dy, StoredFloats dy, MutableStoredFloats dx, ThreadPool& pool) {
  if (dx.is_bf16) gradient_rows_of(args, forward, of_x, of_dy, dy.bf16(), dx.bf16(), pool);
  else gradient_rows_of(args, forward, of_x, of_dy, dy.f32(), dx.f32(), pool);
}

}  // namespace
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet {
namespace {

HWY_EXPORT(chunk_moments);
HWY_EXPORT(normalize_rows);
HWY_EXPORT(chunk_sums);
HWY_EXPORT(gradient_rows);

// `z` may be null.
void check_types(StoredFloats x, StoredFloats y, StoredFloats z) {
  if (x.is_bf16 != y.is_bf16 || (z && x.is_bf16 != z.is_bf16)) fail_internal("batch_norm: operands of two types");
}

// What the forward pass multiplies x by and adds: the same bits for the backward pass, from what that is given.
void forward_row(const BatchNormArgs& args, int64_t c, float mean, float variance, const BatchNormRows& rows) {
  rows.scale[c] = static_cast<float>(args.weight[c] / std::sqrt(static_cast<double>(variance) + args.epsilon));
  rows.shift[c] = static_cast<float>(args.bias[c] - static_cast<double>(mean) * rows.scale[c]);
}

}  // namespace

size_t batch_norm_workspace(int64_t rows, int64_t channels) {
  return static_cast<size_t>((2 * chunk_count(rows, channels) + 5) * channels) * sizeof(float);
}

void batch_norm_forward(const BatchNormArgs& args, StoredFloats residual, MutableStoredFloats y, float* mean,
                        float* variance, std::byte* workspace, ThreadPool& pool) {
  check_types(args.x, y, residual);
  const int64_t channels = args.channels, chunks = chunk_count(args.rows, channels);
  auto* means = reinterpret_cast<float*>(workspace);
  float* squares = means + chunks * channels;
  const BatchNormRows forward{squares + chunks * channels, squares + (chunks + 1) * channels};
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
    forward_row(args, c, mean[c], variance[c], forward);
  }
  HWY_DYNAMIC_DISPATCH(normalize_rows)(args, forward.scale, forward.shift, residual, y, pool);
}

// dx = weight * rstd * (dy - mean(dy) - (x - mean) * rstd^2 * mean(dy * (x - mean)))
void batch_norm_backward(const BatchNormArgs& args, StoredFloats dy, const float* mean, const float* variance,
                         MutableStoredFloats dx, float* dweight, float* dbias, std::byte* workspace, ThreadPool& pool) {
  check_types(args.x, dy, dx);
  const int64_t channels = args.channels, chunks = chunk_count(args.rows, channels);
  auto* sums = reinterpret_cast<float*>(workspace);
  float *products = sums + chunks * channels, *of_dy = products + chunks * channels;
  const BatchNormRows of_x{of_dy + channels, of_dy + 2 * channels}, forward{of_dy + 3 * channels, of_dy + 4 * channels};
  for (int64_t c = 0; args.relu && c < channels; ++c) forward_row(args, c, mean[c], variance[c], forward);
  HWY_DYNAMIC_DISPATCH(chunk_sums)(args, forward, dy, mean, sums, products, pool);
  const auto count = static_cast<double>(args.rows);
  for (int64_t c = 0; c < channels; ++c) {
    double sum = 0, product = 0;
    for (int64_t i = 0; i < chunks; ++i) sum += sums[i * channels + c], product += products[i * channels + c];
    const double rstd = 1 / std::sqrt(static_cast<double>(variance[c]) + args.epsilon), a = args.weight[c] * rstd;
    const double b = -a * rstd * rstd * product / count;
    dbias[c] = static_cast<float>(sum);
    dweight[c] = static_cast<float>(product * rstd);
    of_dy[c] = static_cast<float>(a), of_x.scale[c] = static_cast<float>(b);
    of_x.shift[c] = static_cast<float>(-a * sum / count - b * mean[c]);
  }
  HWY_DYNAMIC_DISPATCH(gradient_rows)(args, forward, of_x, of_dy, dy, dx, pool);
}

}  // namespace linnet
#endif
