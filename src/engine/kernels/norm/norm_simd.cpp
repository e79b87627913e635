#include <algorithm>
#include <cmath>
#include <initializer_list>
#include "base/error.h"
#include "base/numbers.h"
#include "base/thread_pool.h"
#include "engine/kernels/norm/norm.h"
#include "engine/kernels/parallel.h"
#include "engine/kernels/random/philox.h"
#include "engine/kernels/reduce/reduce.h"

#define HWY_TARGET_INCLUDE "engine/kernels/norm/norm_simd.cpp"
#include <hwy/foreach_target.h>
#include "engine/kernels/lanes-inl.h"
#include "engine/kernels/random/philox-inl.h"

#ifndef LINNET_KERNELS_BATCH_NORM_LAYOUT
#define LINNET_KERNELS_BATCH_NORM_LAYOUT
namespace linnet {
namespace {
// Rows of a chunk, which stays in L2 between its two passes.
int64_t chunk_rows(int64_t rows, int64_t channels) {
  return std::clamp<int64_t>((1 << 15) / channels, 16, std::max<int64_t>(rows, 16));
}
int64_t chunk_count(int64_t rows, int64_t channels) { return ceil_div(rows, chunk_rows(rows, channels)); }

struct BatchNormRows {
  float *scale, *shift;  // [channels]: x * scale + shift
};
}  // namespace
}  // namespace linnet
#endif

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {
template <class Body> void for_chunks(const BatchNormArgs& args, ThreadPool& pool, const Body& body) {
  const int64_t each = chunk_rows(args.rows, args.channels);
  pool.run(chunk_count(args.rows, args.channels),
      [&](int64_t chunk, int) { body(chunk * each, std::min(each, args.rows - chunk * each), chunk); });
}

// The sum of term(row) over rows; four partial sums hide the latency of additions.
template <class Term> HWY_INLINE Floats SumRows(int64_t rows, const Term& term) {
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

// means, squares [chunks, channels]: of each chunk, the squares relative to its mean.
template <class T> void chunk_moments(const BatchNormArgs& args, float* means, float* squares, ThreadPool& pool) {
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

auto chunk_moments_of(bool bf16) { return bf16 ? chunk_moments<Bfloat16> : chunk_moments<float>; }

// y = relu(x * scale[c] + shift[c] + residual), residual and ReLU optional.
template <class T> void normalize_rows(const BatchNormArgs& args, const float* scale, const float* shift,
    StoredFloats residual, MutableStoredFloats y, ThreadPool& pool) {
  const int64_t channels = args.channels;
  const T *x = args.x.as<T>(), *added = residual.as<T>();
  T* to = y.as<T>();
  for_ranges(pool, args.rows, channels, [&](int64_t begin, int64_t end) {
    ForRow(channels, [&](const auto& at) LINNET_LAMBDA {
      const Floats a = at.load(scale), b = at.load(shift);
      for (int64_t r = begin * channels; r < end * channels; r += channels) {
        Floats value = hn::MulAdd(at.load(x + r), a, b);
        if (added) value = hn::Add(value, at.load(added + r));
        // As in ops/pointwise: NaN stays NaN.
        if (args.relu) value = Relu(value);
        at.store(value, to + r);
      }
    });
  });
}

auto normalize_rows_of(bool bf16) { return bf16 ? normalize_rows<Bfloat16> : normalize_rows<float>; }

// The part of dy that passes the ReLU, if there is one.
struct Gate {
  Floats scale, shift;  // of the forward pass
  bool relu;
  HWY_INLINE Floats operator()(Floats dy, Floats x) const {
    if (!relu) return dy;
    return hn::IfThenElseZero(hn::Gt(hn::MulAdd(x, scale, shift), SetAll(0)), dy);
  }
};

// sums, products [chunks, channels]: of dy, and of dy * (x - mean).
template <class T> void chunk_sums(const BatchNormArgs& args, const BatchNormRows& forward, StoredFloats dy,
    const float* mean, float* sums, float* products, ThreadPool& pool) {
  const int64_t channels = args.channels;
  for_chunks(args, pool, [&](int64_t first, int64_t rows, int64_t chunk) {
    const T *x = args.x.as<T>() + first * channels, *slopes = dy.as<T>() + first * channels;
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

auto chunk_sums_of(bool bf16) { return bf16 ? chunk_sums<Bfloat16> : chunk_sums<float>; }

// dx = dy * of_dy[c] + x * of_x.scale[c] + of_x.shift[c]
template <class T> void gradient_rows(const BatchNormArgs& args, const BatchNormRows& forward,
    const BatchNormRows& of_x, const float* of_dy, StoredFloats dy, MutableStoredFloats dx, ThreadPool& pool) {
  const int64_t channels = args.channels;
  const T *x = args.x.as<T>(), *slopes = dy.as<T>();
  T* to = dx.as<T>();
  for_ranges(pool, args.rows, channels, [&](int64_t begin, int64_t end) {
    ForRow(channels, [&](const auto& at) LINNET_LAMBDA {
      const Gate gate{at.load(forward.scale), at.load(forward.shift), args.relu};
      const Floats a = at.load(of_dy), b = at.load(of_x.scale), k = at.load(of_x.shift);
      for (int64_t r = begin * channels; r < end * channels; r += channels) {
        const Floats value = at.load(x + r);
        at.store(hn::MulAdd(value, b, hn::MulAdd(gate(at.load(slopes + r), value), a, k)), to + r);
      }
    });
  });
}

auto gradient_rows_of(bool bf16) { return bf16 ? gradient_rows<Bfloat16> : gradient_rows<float>; }

class RowDropout : public DropoutLanes {
 public:
  HWY_INLINE explicit RowDropout(const ResidualDropout& dropout) : DropoutLanes(dropout.p), dropout_(dropout) {}

  // body(piece, count, values): for elements [piece, piece + count) of the row, whose random values are values[0 ..].
  template <class Body> HWY_INLINE void for_pieces(int64_t row, int64_t width, const Body& body) const {
    HWY_ALIGN uint16_t values[kPiece + 8 + 2 * kPhiloxValues];
    for (int64_t piece = 0; piece < width; piece += kPiece) {
      const int64_t count = std::min(kPiece, width - piece);
      body(piece, count, draw(row, width, piece, count, values));
    }
  }

 private:
  static constexpr int64_t kPiece = 512;

  // Shared by all types of rows, as it is much code.
  HWY_NOINLINE const uint16_t* draw(int64_t row, int64_t width, int64_t piece, int64_t count, uint16_t* values) const {
    constexpr auto step = static_cast<int64_t>(kPhiloxValues);
    const auto sample = static_cast<uint32_t>(row / dropout_.rows_per_sample);
    const int64_t start = row % dropout_.rows_per_sample * width + piece, block = start / 8, skip = start % 8;
    for (int64_t done = 0; done < skip + count; done += step)
      PhiloxKeep16(static_cast<uint32_t>(block + done / 8), kDenseDropout, 0, sample, dropout_.key, values + done);
    return values + skip;
  }

  const ResidualDropout& dropout_;
};

// y = (x - mean) * rstd * weight + bias; weight and bias may be null. mean is 0 if not centered. T: float or Bfloat16.
template <class T> HWY_INLINE void NormalizeRow(int64_t width, const T* x, const float* weight, const float* bias,
    float epsilon, bool centered, T* y, float* mean, float* rstd) {
  const float scale = 1.0f / static_cast<float>(width);
  *mean = centered ? scale * SumRow(width, [=](const auto& at) LINNET_LAMBDA { return at.load(x); }) : 0.0f;
  // A second pass over the centered row, in L1: one pass would cancel if the mean is large.
  const float filler = *mean;
  const Floats center = SetAll(filler);
  const float variance = scale * SumRow(width, [=](const auto& at) LINNET_LAMBDA {
    const Floats c = hn::Sub(at.load(x, filler), center);
    return hn::Mul(c, c);
  });
  *rstd = 1.0f / std::sqrt(variance + epsilon);
  const Floats factor = SetAll(*rstd);
  ForRow(width, [&](const auto& at) LINNET_LAMBDA {
    Floats v = hn::Mul(hn::Sub(at.load(x), center), factor);
    if (weight != nullptr) v = hn::Mul(v, at.load(weight));
    if (bias != nullptr) v = hn::Add(v, at.load(bias));
    at.store(v, y);
  });
}

template <class T> void ForwardRows(const RowNormForward& call, int64_t begin, int64_t end) {
  const int64_t width = call.width;
  const RowDropout dropout(call.dropout);
  for (int64_t row = begin; row < end; ++row) {
    const T* x = call.x.as<T>() + row * width;
    if (call.f) {
      const T* f = call.f.as<T>() + row * width;
      T* sum = call.sum.as<T>() + row * width;
      if (call.dropout.p > 0)
        dropout.for_pieces(row, width, [&](int64_t piece, int64_t count, const uint16_t* values) LINNET_LAMBDA {
          ForRow(count, [&](const auto& at) LINNET_LAMBDA {
            at.store(hn::Add(at.load(x + piece), dropout.apply(at.load(f + piece), values + at.first)), sum + piece);
          });
        });
      else ForRow(width, [=](const auto& at) LINNET_LAMBDA { at.store(hn::Add(at.load(x), at.load(f)), sum); });
      x = sum;
    }
    float mean, rstd;
    NormalizeRow(
        width, x, call.weight, call.bias, call.epsilon, call.centered, call.y.as<T>() + row * width, &mean, &rstd);
    if (call.mean != nullptr) call.mean[row] = mean;
    if (call.rstd != nullptr) call.rstd[row] = rstd;
  }
}

auto ForwardRowsOf(bool bf16) { return bf16 ? ForwardRows<Bfloat16> : ForwardRows<float>; }

// The gradient of a row, with n = (x - mean) * rstd and g = dy * weight:
//   dx = rstd * (g - sum(g) / width (when centered) - n * sum(g n) / width)
template <class T> struct NormGradient {
  const T *dy, *x;
  const float* weight;  // may be null
  float mean, rstd;
  Floats center = SetAll(mean), factor = SetAll(rstd), mean_g = SetAll(0), mean_gn = SetAll(0);

  template <class At> HWY_INLINE Floats slope(const At& at) const {
    const Floats d = at.load(dy);
    return weight != nullptr ? hn::Mul(d, at.load(weight)) : d;
  }

  // The two sums over the row, and the row's part of dweight and dbias.
  template <bool kSums> HWY_INLINE void add_up(int64_t width, bool centered, float* dweight, float* dbias) {
    Floats total_g = SetAll(0), total_gn = SetAll(0);
    ForRow(width, [&](const auto& at) LINNET_LAMBDA {
      const Floats n = hn::Mul(hn::Sub(at.load(x, mean), center), factor), g = slope(at);
      total_g = hn::Add(total_g, g);
      total_gn = hn::MulAdd(g, n, total_gn);
      if (kSums) {
        const Floats d = at.load(dy);
        at.store(hn::MulAdd(d, n, at.load(dweight)), dweight);
        at.store(hn::Add(d, at.load(dbias)), dbias);
      }
    });
    const float scale = 1.0f / static_cast<float>(width);
    mean_g = SetAll(centered ? SumLanes(total_g) * scale : 0.0f);
    mean_gn = SetAll(SumLanes(total_gn) * scale);
  }

  template <class At>  // once the sums are known
  HWY_INLINE Floats at_position(const At& at) const {
    const Floats n = hn::Mul(hn::Sub(at.load(x), center), factor);
    return hn::Mul(factor, hn::NegMulAdd(n, mean_gn, hn::Sub(slope(at), mean_g)));
  }
};

// Rows [begin, end); sums [2, width], if not null, gets this chunk's dweight and dbias.
template <class T> void BackwardRows(const RowNormBackward& call, int64_t begin, int64_t end, float* sums) {
  const int64_t width = call.width;
  const RowDropout dropout(call.dropout);
  if (sums) std::fill(sums, sums + 2 * width, 0.0f);
  for (int64_t row = begin; row < end; ++row) {
    NormGradient<T> gradient{call.dy.as<T>() + row * width, call.sum.as<T>() + row * width, call.weight,
        call.centered ? call.mean[row] : 0.0f, call.rstd[row]};
    if (sums) gradient.template add_up<true>(width, call.centered, sums, sums + width);
    else gradient.template add_up<false>(width, call.centered, nullptr, nullptr);
    const T* dsum = call.dsum ? call.dsum.as<T>() + row * width : nullptr;
    T* dx = call.dx.as<T>() + row * width;
    const auto total = [&](const auto& at) LINNET_LAMBDA {
      const Floats d = gradient.at_position(at);
      return dsum != nullptr ? hn::Add(d, at.load(dsum)) : d;
    };
    if (!call.df) {
      ForRow(width, [&](const auto& at) LINNET_LAMBDA { at.store(total(at), dx); });
      continue;
    }
    T* df = call.df.as<T>() + row * width;
    dropout.for_pieces(row, width, [&](int64_t piece, int64_t count, const uint16_t* values) LINNET_LAMBDA {
      ForRow(count, [&](auto at) LINNET_LAMBDA {
        const uint16_t* own = values + at.first;
        at.first += piece;
        const Floats d = total(at);
        at.store(d, dx);
        at.store(dropout.apply(d, own), df);
      });
    });
  }
}

auto BackwardRowsOf(bool bf16) { return bf16 ? BackwardRows<Bfloat16> : BackwardRows<float>; }
}  // namespace
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet {
namespace {
HWY_EXPORT(chunk_moments_of);
HWY_EXPORT(normalize_rows_of);
HWY_EXPORT(chunk_sums_of);
HWY_EXPORT(gradient_rows_of);
HWY_EXPORT(ForwardRowsOf);
HWY_EXPORT(BackwardRowsOf);

// The forward pass's factor and summand of x: the backward pass gets the same bits from the same inputs.
void forward_row(const BatchNormArgs& args, int64_t c, float mean, float variance, const BatchNormRows& rows) {
  rows.scale[c] = static_cast<float>(args.weight[c] / std::sqrt(static_cast<double>(variance) + args.epsilon));
  rows.shift[c] = static_cast<float>(args.bias[c] - static_cast<double>(mean) * rows.scale[c]);
}

// Missing operands have no type.
void check_types(bool is_bf16, std::initializer_list<StoredFloats> operands) {
  for (const StoredFloats& operand : operands)
    if (operand && operand.is_bf16 != is_bf16) fail_internal("a norm was given operands of two types");
}
}  // namespace

size_t batch_norm_workspace(int64_t rows, int64_t channels) {
  return bytes_for<float>((2 * chunk_count(rows, channels) + 5) * channels);
}

void batch_norm_forward(const BatchNormArgs& args, StoredFloats residual, MutableStoredFloats y, float* mean,
    float* variance, std::byte* workspace, ThreadPool& pool) {
  check_types(args.x.is_bf16, {y, residual});
  const int64_t channels = args.channels, chunks = chunk_count(args.rows, channels);
  auto* means = reinterpret_cast<float*>(workspace);
  float* squares = means + chunks * channels;
  const BatchNormRows forward{squares + chunks * channels, squares + (chunks + 1) * channels};
  HWY_DYNAMIC_DISPATCH(chunk_moments_of)(args.x.is_bf16)(args, means, squares, pool);
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
  HWY_DYNAMIC_DISPATCH(normalize_rows_of)(y.is_bf16)(args, forward.scale, forward.shift, residual, y, pool);
}

// dx = weight * rstd * (dy - mean(dy) - (x - mean) * rstd^2 * mean(dy * (x - mean)))
void batch_norm_backward(const BatchNormArgs& args, StoredFloats dy, const float* mean, const float* variance,
    MutableStoredFloats dx, float* dweight, float* dbias, std::byte* workspace, ThreadPool& pool) {
  check_types(args.x.is_bf16, {dy, dx});
  const int64_t channels = args.channels, chunks = chunk_count(args.rows, channels);
  auto* sums = reinterpret_cast<float*>(workspace);
  float *products = sums + chunks * channels, *of_dy = products + chunks * channels;
  const BatchNormRows of_x{of_dy + channels, of_dy + 2 * channels}, forward{of_dy + 3 * channels, of_dy + 4 * channels};
  for (int64_t c = 0; args.relu && c < channels; ++c) forward_row(args, c, mean[c], variance[c], forward);
  HWY_DYNAMIC_DISPATCH(chunk_sums_of)(dy.is_bf16)(args, forward, dy, mean, sums, products, pool);
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
  HWY_DYNAMIC_DISPATCH(gradient_rows_of)(dx.is_bf16)(args, forward, of_x, of_dy, dy, dx, pool);
}

void row_norm_forward(const RowNormForward& args, ThreadPool& pool) {
  check_types(args.y.is_bf16, {args.x, args.f, args.sum});
  for_ranges(pool, args.rows, (args.f ? 2 : 1) * args.width, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(ForwardRowsOf)(args.y.is_bf16)(args, begin, end);
  });
}

size_t row_norm_backward_workspace(int64_t rows, int64_t width) {
  return bytes_for<float>(row_chunks(rows) * 2 * width);
}

void row_norm_backward(const RowNormBackward& args, void* workspace, ThreadPool& pool) {
  check_types(args.sum.is_bf16, {args.dy, args.dsum, args.dx, args.df});
  const int64_t rows = args.rows, width = args.width, chunks = row_chunks(rows);
  auto* sums = args.dweight || args.dbias ? static_cast<float*>(workspace) : nullptr;  // [chunks, 2, width]
  for_each_index(pool, chunks, (args.dsum ? 2 : 1) * rows * width / chunks, [&](int64_t c) {
    HWY_DYNAMIC_DISPATCH(BackwardRowsOf)
    (args.sum.is_bf16)(args, rows * c / chunks, rows * (c + 1) / chunks, sums ? sums + c * 2 * width : nullptr);
  });
  if (!sums) return;
  constexpr int64_t columns = 64;
  if (args.dweight) add_rows(chunks, 2 * width, width, sums, false, args.dweight, columns, pool);
  if (args.dbias) add_rows(chunks, 2 * width, width, sums + width, false, args.dbias, columns, pool);
}
}  // namespace linnet
#endif
