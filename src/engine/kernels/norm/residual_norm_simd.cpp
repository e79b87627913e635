#include <algorithm>
#include <initializer_list>
#include "base/error.h"
#include "engine/kernels/norm/residual_norm.h"
#include "engine/kernels/parallel.h"
#include "engine/kernels/random/philox.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/norm/residual_norm_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "engine/kernels/norm/layer_norm-inl.h"
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

template <class T>
HWY_INLINE void ForwardRowsOf(const ResidualNormForward& call, int64_t begin, int64_t end) {
  const int64_t width = call.width;
  const RowDropout dropout(call.dropout);
  for (int64_t row = begin; row < end; ++row) {
    const T *x = call.x.as<T>() + row * width, *f = call.f.as<T>() + row * width;
    T* sum = call.sum.as<T>() + row * width;
    if (call.dropout.p > 0)
      dropout.for_pieces(row, width, [&](int64_t piece, int64_t count, const uint16_t* values) LINNET_LAMBDA {
        ForRow(count, [&](const auto& at) LINNET_LAMBDA {
          at.store(hn::Add(at.load(x + piece), dropout.apply(at.load(f + piece), values + at.first)), sum + piece);
        });
      });
    else ForRow(width, [=](const auto& at) LINNET_LAMBDA { at.store(hn::Add(at.load(x), at.load(f)), sum); });
    NormalizeRow<T>(width, sum, call.weight, call.bias, call.epsilon, call.centered, call.y.as<T>() + row * width,
                    call.mean + row, call.rstd + row);
  }
}

void ResidualForwardRows(const ResidualNormForward& call, int64_t begin, int64_t end) {
  call.sum.is_bf16 ? ForwardRowsOf<Bfloat16>(call, begin, end) : ForwardRowsOf<float>(call, begin, end);
}

// Rows [begin, end); sums [2, width] gets this chunk's dweight and dbias.
template <class T>
HWY_INLINE void BackwardRowsOf(const ResidualNormBackward& call, int64_t begin, int64_t end, float* sums) {
  const int64_t width = call.width;
  const RowDropout dropout(call.dropout);
  std::fill(sums, sums + 2 * width, 0.0f);
  for (int64_t row = begin; row < end; ++row) {
    NormGradient<T> gradient(call.dy.as<T>() + row * width, call.sum.as<T>() + row * width, call.weight, call.mean[row],
                             call.rstd[row]);
    gradient.template add_up<true>(width, call.centered, sums, sums + width);
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

void ResidualBackwardRows(const ResidualNormBackward& call, int64_t begin, int64_t end, float* sums) {
  call.sum.is_bf16 ? BackwardRowsOf<Bfloat16>(call, begin, end, sums) : BackwardRowsOf<float>(call, begin, end, sums);
}

}  // namespace
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet {
namespace {

HWY_EXPORT(ResidualForwardRows);
HWY_EXPORT(ResidualBackwardRows);
HWY_EXPORT(AddRows);

// Operands that are left out have no type.
void check_types(bool is_bf16, std::initializer_list<StoredFloats> operands) {
  for (const StoredFloats& operand : operands)
    if (operand && operand.is_bf16 != is_bf16) fail_internal("residual_norm: operands of two types");
}

}  // namespace

void residual_norm_forward(const ResidualNormForward& args, ThreadPool& pool) {
  check_types(args.sum.is_bf16, {args.x, args.f, args.y});
  for_ranges(pool, args.rows, 2 * args.width, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(ResidualForwardRows)(args, begin, end);
  });
}

size_t residual_norm_backward_workspace(int64_t rows, int64_t width) {
  return static_cast<size_t>(row_chunks(rows) * 2 * width) * sizeof(float);
}

void residual_norm_backward(const ResidualNormBackward& args, void* workspace, ThreadPool& pool) {
  check_types(args.sum.is_bf16, {args.dy, args.dsum, args.dx, args.df});
  const int64_t rows = args.rows, width = args.width, chunks = row_chunks(rows);
  auto* sums = static_cast<float*>(workspace);  // [chunks, 2, width]
  for_ranges(pool, chunks, 2 * rows * width / chunks, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) HWY_DYNAMIC_DISPATCH(ResidualBackwardRows)
    (args, rows * c / chunks, rows * (c + 1) / chunks, sums + c * 2 * width);
  });
  constexpr int64_t columns = 64;
  for_ranges(pool, (width + columns - 1) / columns, 2 * chunks * columns, [&](int64_t begin, int64_t end) {
    const int64_t first = begin * columns, count = std::min(width, end * columns) - first;
    if (args.dweight != nullptr)
      HWY_DYNAMIC_DISPATCH(AddRows)(chunks, 2 * width, count, sums + first, false, args.dweight + first);
    if (args.dbias != nullptr)
      HWY_DYNAMIC_DISPATCH(AddRows)(chunks, 2 * width, count, sums + width + first, false, args.dbias + first);
  });
}

}  // namespace linnet
#endif
