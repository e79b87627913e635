#include <algorithm>
#include <cmath>
#include <initializer_list>
#include "base/error.h"
#include "base/numbers.h"
#include "engine/kernels/norm/row_norm.h"
#include "engine/kernels/parallel.h"
#include "engine/kernels/random/philox.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/norm/row_norm_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "engine/kernels/lanes-inl.h"
#include "engine/kernels/random/philox-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {

// Draws the mask of a row piece by piece.
class RowDropout {
 public:
  explicit RowDropout(const ResidualDropout& dropout)
      : dropout_(dropout),
        limit_(hn::Set(hn::RebindToSigned<FloatTag>(), static_cast<int32_t>(dropout_threshold(dropout.p)))),
        factor_(SetAll(dropout_scale(dropout.p))) {}

  // body(piece, count, values): for elements [piece, piece + count) of the row, whose random values are values[0 ..].
  template <class Body>
  HWY_INLINE void for_pieces(int64_t row, int64_t width, const Body& body) const {
    HWY_ALIGN uint16_t values[kPiece + 8 + 2 * kPhiloxValues];
    for (int64_t piece = 0; piece < width; piece += kPiece) {
      const int64_t count = std::min(kPiece, width - piece);
      body(piece, count, draw(row, width, piece, count, values));
    }
  }

  HWY_INLINE Floats apply(Floats x, const uint16_t* values) const {
    const hn::RebindToSigned<FloatTag> di;
    const auto value = hn::PromoteTo(di, hn::LoadU(hn::Rebind<uint16_t, FloatTag>(), values));
    return hn::IfThenZeroElse(hn::RebindMask(FloatTag(), hn::Lt(value, limit_)), hn::Mul(x, factor_));
  }

 private:
  static constexpr int64_t kPiece = 512;

  // Once for every type of the rows, as it is much code.
  HWY_NOINLINE const uint16_t* draw(int64_t row, int64_t width, int64_t piece, int64_t count, uint16_t* values) const {
    constexpr auto step = static_cast<int64_t>(kPhiloxValues);
    const auto sample = static_cast<uint32_t>(row / dropout_.rows_per_sample);
    const int64_t start = row % dropout_.rows_per_sample * width + piece, block = start / 8, skip = start % 8;
    for (int64_t done = 0; done < skip + count; done += step)
      PhiloxKeep16(static_cast<uint32_t>(block + done / 8), kDenseDropout, 0, sample, dropout_.key, values + done);
    return values + skip;
  }

  const ResidualDropout& dropout_;
  hn::Vec<hn::RebindToSigned<FloatTag>> limit_;
  Floats factor_;
};

// y = (x - mean) * rstd * weight + bias; weight and bias may be null. mean is 0 when not centered. T is float or
// Bfloat16.
template <class T>
HWY_INLINE void NormalizeRow(int64_t width, const T* x, const float* weight, const float* bias, float epsilon,
                             bool centered, T* y, float* mean, float* rstd) {
  const float scale = 1.0f / static_cast<float>(width);
  *mean = centered ? scale * SumRow(width, [=](const auto& at) LINNET_LAMBDA { return at.load(x); }) : 0.0f;
  // A second pass over the centered row, which is in L1: one pass would cancel where the mean is large.
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

template <class T>
void ForwardRows(const RowNormForward& call, int64_t begin, int64_t end) {
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
    NormalizeRow(width, x, call.weight, call.bias, call.epsilon, call.centered, call.y.as<T>() + row * width, &mean,
                 &rstd);
    if (call.mean != nullptr) call.mean[row] = mean;
    if (call.rstd != nullptr) call.rstd[row] = rstd;
  }
}

void Forward(const RowNormForward& call, int64_t begin, int64_t end) {
  (call.y.is_bf16 ? ForwardRows<Bfloat16> : ForwardRows<float>)(call, begin, end);
}

// The gradient of a row, with n = (x - mean) * rstd and g = dy * weight:
//   dx = rstd * (g - sum(g) / width (when centered) - n * sum(g n) / width)
template <class T>
struct NormGradient {
  const T *dy, *x;
  const float* weight;  // may be null
  float mean, rstd;
  Floats center, factor, mean_g, mean_gn;

  HWY_INLINE NormGradient(const T* dy_row, const T* x_row, const float* weight_row, float row_mean, float row_rstd)
      : dy(dy_row),
        x(x_row),
        weight(weight_row),
        mean(row_mean),
        rstd(row_rstd),
        center(SetAll(row_mean)),
        factor(SetAll(row_rstd)),
        mean_g(SetAll(0)),
        mean_gn(SetAll(0)) {}

  template <class At>
  HWY_INLINE Floats slope(const At& at) const {
    const Floats d = at.load(dy);
    return weight != nullptr ? hn::Mul(d, at.load(weight)) : d;
  }

  // The two sums over the row, and on the way the row's part in dweight and dbias.
  template <bool kSums>
  HWY_INLINE void add_up(int64_t width, bool centered, float* dweight, float* dbias) {
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

  // dx, once the sums are known.
  template <class At>
  HWY_INLINE Floats at_position(const At& at) const {
    const Floats n = hn::Mul(hn::Sub(at.load(x), center), factor);
    return hn::Mul(factor, hn::NegMulAdd(n, mean_gn, hn::Sub(slope(at), mean_g)));
  }
};

// Rows [begin, end); sums [2, width], where not null, gets this chunk's dweight and dbias.
template <class T>
void BackwardRows(const RowNormBackward& call, int64_t begin, int64_t end, float* sums) {
  const int64_t width = call.width;
  const RowDropout dropout(call.dropout);
  if (sums) std::fill(sums, sums + 2 * width, 0.0f);
  for (int64_t row = begin; row < end; ++row) {
    NormGradient<T> gradient(call.dy.as<T>() + row * width, call.sum.as<T>() + row * width, call.weight,
                             call.centered ? call.mean[row] : 0.0f, call.rstd[row]);
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

void Backward(const RowNormBackward& call, int64_t begin, int64_t end, float* sums) {
  (call.sum.is_bf16 ? BackwardRows<Bfloat16> : BackwardRows<float>)(call, begin, end, sums);
}

}  // namespace
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet {
namespace {

HWY_EXPORT(Forward);
HWY_EXPORT(Backward);
HWY_EXPORT(AddRows);

// Operands that are left out have no type.
void check_types(bool is_bf16, std::initializer_list<StoredFloats> operands) {
  for (const StoredFloats& operand : operands)
    if (operand && operand.is_bf16 != is_bf16) fail_internal("a norm was given operands of two types");
}

}  // namespace

void row_norm_forward(const RowNormForward& args, ThreadPool& pool) {
  check_types(args.y.is_bf16, {args.x, args.f, args.sum});
  for_ranges(pool, args.rows, (args.f ? 2 : 1) * args.width, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(Forward)(args, begin, end);
  });
}

size_t row_norm_backward_workspace(int64_t rows, int64_t width) {
  return static_cast<size_t>(row_chunks(rows) * 2 * width) * sizeof(float);
}

void row_norm_backward(const RowNormBackward& args, void* workspace, ThreadPool& pool) {
  check_types(args.sum.is_bf16, {args.dy, args.dsum, args.dx, args.df});
  const int64_t rows = args.rows, width = args.width, chunks = row_chunks(rows);
  auto* sums = args.dweight || args.dbias ? static_cast<float*>(workspace) : nullptr;  // [chunks, 2, width]
  for_ranges(pool, chunks, (args.dsum ? 2 : 1) * rows * width / chunks, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) HWY_DYNAMIC_DISPATCH(Backward)
    (args, rows * c / chunks, rows * (c + 1) / chunks, sums ? sums + c * 2 * width : nullptr);
  });
  if (!sums) return;
  constexpr int64_t columns = 64;
  for_ranges(pool, ceil_div(width, columns), 2 * chunks * columns, [&](int64_t begin, int64_t end) {
    const int64_t first = begin * columns, count = std::min(width, end * columns) - first;
    if (args.dweight)
      HWY_DYNAMIC_DISPATCH(AddRows)(chunks, 2 * width, count, sums + first, false, args.dweight + first);
    if (args.dbias)
      HWY_DYNAMIC_DISPATCH(AddRows)(chunks, 2 * width, count, sums + width + first, false, args.dbias + first);
  });
}

}  // namespace linnet
#endif
