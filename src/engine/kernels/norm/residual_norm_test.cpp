#include "engine/kernels/norm/norm.h"
#include "engine/kernels/random/philox.h"
#include "kernel_testing.h"

namespace linnet {
namespace {
struct Problem {
  int64_t samples, rows_per_sample, width;
  float p;
};

// Widths that are no multiple of a block of eight random values, and rows longer than a piece of the mask.
constexpr Problem kProblems[] = {{1, 1, 1, 0.3f}, {3, 5, 13, 0.1f}, {2, 7, 64, 0.5f}, {4, 33, 67, 0.2f},
    {1, 9, 516, 0.1f}, {2, 3, 1100, 0.3f}, {16, 20, 256, 0.1f}, {5, 4, 100, 0}};

template <class T> float round_to(float x) { return static_cast<float>(T(x)); }
template <class T> std::vector<float> random_values(int64_t n, uint32_t seed) {
  std::vector<float> x = random_floats(n, seed);
  for (float& v : x) v = round_to<T>(v);
  return x;
}

// The parts one after another, which have tests of their own, with T as the type that is stored.
template <class T> struct Parts {
  explicit Parts(const Problem& p)
      : rows(p.samples * p.rows_per_sample), size(rows * p.width), x(random_values<T>(size, 1)),
        f(random_values<T>(size, 2)), weight(random_floats(p.width, 3)), bias(random_floats(p.width, 4)),
        dy(random_values<T>(size, 5)), dsum(random_values<T>(size, 6)) {
    if (size > 40) x[30] = kNan, f[35] = kInf;
  }

  // sum, y, mean, rstd
  std::vector<float> forward(const Problem& p, ThreadPool& pool) const {
    std::vector<float> out(2 * size + 2 * rows), dropped(size);
    dropout(p.samples, p.rows_per_sample * p.width, f.data(), dropped.data(), p.p, kKey, pool);
    for (int64_t i = 0; i < size; ++i) out[i] = round_to<T>(x[i] + dropped[i]);
    RowNormForward args{.rows = rows, .width = p.width, .x = out.data(), .weight = weight.data(), .bias = bias.data()};
    args.epsilon = 1e-5f, args.y = &out[size], args.mean = &out[2 * size], args.rstd = args.mean + rows;
    row_norm_forward(args, pool);
    for (int64_t i = size; i < 2 * size; ++i) out[i] = round_to<T>(out[i]);
    return out;
  }

  // dx, df, dweight, dbias
  std::vector<float> backward(const Problem& p, bool with_sum, const std::vector<float>& y, ThreadPool& pool) const {
    std::vector<float> out(2 * size + 2 * p.width), work(row_norm_backward_workspace(rows, p.width) / 4);
    RowNormBackward args{.rows = rows, .width = p.width, .dy = dy.data(), .sum = y.data(), .weight = weight.data()};
    args.mean = &y[2 * size], args.rstd = args.mean + rows;
    args.dx = out.data(), args.dweight = &out[2 * size], args.dbias = args.dweight + p.width;
    row_norm_backward(args, work.data(), pool);
    for (int64_t i = 0; with_sum && i < size; ++i) out[i] += dsum[i];
    dropout(p.samples, p.rows_per_sample * p.width, out.data(), &out[size], p.p, kKey, pool);
    for (int64_t i = 0; i < 2 * size; ++i) out[i] = round_to<T>(out[i]);
    return out;
  }

  static constexpr uint64_t kKey = 0x1234567890abcdef;
  int64_t rows, size;
  std::vector<float> x, f, weight, bias, dy, dsum;
};

template <class T> class ResidualNorm : public testing::Test {};
using StoredTypes = testing::Types<float, Bfloat16>;
TYPED_TEST_SUITE(ResidualNorm, StoredTypes);

template <class Run, class Want> void compare(const Run& run, const Want& want) {
  for_every_isa(run, [&](const std::vector<float>& got) {
    ThreadPool pool(1);
    expect_same(got, want(pool));
  });
}

TYPED_TEST(ResidualNorm, ForwardEqualsItsPartsToTheBit) {
  for (const Problem& p : kProblems) {
    SCOPED_TRACE(std::to_string(p.rows_per_sample) + " x " + std::to_string(p.width));
    const Parts<TypeParam> parts(p);
    compare(
        [&](ThreadPool& pool) {
          std::vector<TypeParam> sum(parts.x.begin(), parts.x.end()), y(parts.f.begin(), parts.f.end());
          std::vector<float> statistics(2 * parts.rows);
          RowNormForward args{.rows = parts.rows, .width = p.width, .x = sum.data(), .f = y.data()};
          args.weight = parts.weight.data(), args.bias = parts.bias.data(), args.epsilon = 1e-5f;
          args.dropout = {p.p, parts.kKey, p.rows_per_sample};
          args.sum = sum.data(), args.y = y.data();  // both results over both operands
          args.mean = statistics.data(), args.rstd = args.mean + parts.rows;
          row_norm_forward(args, pool);
          std::vector<float> out(sum.begin(), sum.end());
          out.insert(out.end(), y.begin(), y.end());
          out.insert(out.end(), statistics.begin(), statistics.end());
          return out;
        },
        [&](ThreadPool& pool) { return parts.forward(p, pool); });
  }
}

TYPED_TEST(ResidualNorm, BackwardEqualsItsPartsToTheBit) {
  for (const Problem& p : kProblems)
    for (const bool with_sum : {false, true}) {
      SCOPED_TRACE(std::to_string(p.rows_per_sample) + " x " + std::to_string(p.width));
      const Parts<TypeParam> parts(p);
      ThreadPool pool(1);
      const std::vector<float> y = parts.forward(p, pool);
      const std::vector<TypeParam> sum(y.begin(), y.begin() + parts.size);
      compare(
          [&](ThreadPool& threads) {
            std::vector<TypeParam> dx(parts.dy.begin(), parts.dy.end()), df(parts.dsum.begin(), parts.dsum.end());
            std::vector<float> sums(2 * p.width), work(row_norm_backward_workspace(parts.rows, p.width) / 4);
            const std::vector<TypeParam> dsum = df;
            RowNormBackward args{.rows = parts.rows, .width = p.width, .dy = dx.data(), .sum = sum.data()};
            if (with_sum) args.dsum = p.p > 0 ? df.data() : dsum.data();
            args.weight = parts.weight.data(), args.mean = &y[2 * parts.size], args.rstd = args.mean + parts.rows;
            args.dropout = {p.p, parts.kKey, p.rows_per_sample};
            args.dx = dx.data();  // written over their operands
            if (p.p > 0) args.df = df.data();
            args.dweight = sums.data(), args.dbias = args.dweight + p.width;
            row_norm_backward(args, work.data(), threads);
            std::vector<float> out(dx.begin(), dx.end());
            if (p.p == 0) df = dx;
            out.insert(out.end(), df.begin(), df.end());
            out.insert(out.end(), sums.begin(), sums.end());
            return out;
          },
          [&](ThreadPool& threads) { return parts.backward(p, with_sum, y, threads); });
    }
}
}  // namespace
}  // namespace linnet
