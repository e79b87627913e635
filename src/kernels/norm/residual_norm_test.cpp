#include "kernels/norm/residual_norm.h"

#include "kernels/kernel_testing.h"
#include "kernels/norm/layer_norm.h"
#include "kernels/random/dropout.h"

namespace linnet {
namespace {

struct Problem {
  int64_t samples, rows_per_sample, width;
  float p;
};

// Widths that are no multiple of a block of eight random values, and rows longer than a piece of the mask.
constexpr Problem kProblems[] = {{1, 1, 1, 0.3f},   {3, 5, 13, 0.1f},   {2, 7, 64, 0.5f},    {4, 33, 67, 0.2f},
                                 {1, 9, 516, 0.1f}, {2, 3, 1100, 0.3f}, {16, 20, 256, 0.1f}, {5, 4, 100, 0}};

// The parts one after another, which have tests of their own.
struct Parts {
  explicit Parts(const Problem& p)
      : rows(p.samples * p.rows_per_sample),
        size(rows * p.width),
        x(random_floats(size, 1)),
        f(random_floats(size, 2)),
        weight(random_floats(p.width, 3)),
        bias(random_floats(p.width, 4)),
        dy(random_floats(size, 5)),
        dsum(random_floats(size, 6)) {
    if (size > 40) x[30] = kNan, f[35] = kInf;
  }

  std::vector<float> forward(const Problem& p, ThreadPool& pool) const {
    std::vector<float> out(2 * size + 2 * rows), dropped(size);
    dropout(p.samples, p.rows_per_sample * p.width, f.data(), dropped.data(), p.p, kKey, pool);
    for (int64_t i = 0; i < size; ++i) out[i] = x[i] + dropped[i];
    layer_norm_forward(rows, p.width, out.data(), weight.data(), bias.data(), 1e-5f, &out[size], &out[2 * size],
                       &out[2 * size + rows], pool);
    return out;
  }

  // dx, df, dweight, dbias
  std::vector<float> backward(const Problem& p, bool with_sum, const std::vector<float>& y, ThreadPool& pool) const {
    std::vector<float> out(2 * size + 2 * p.width), work(layer_norm_backward_workspace(rows, p.width) / 4);
    layer_norm_backward(rows, p.width, dy.data(), y.data(), weight.data(), &y[2 * size], &y[2 * size + rows],
                        out.data(), &out[2 * size], &out[2 * size + p.width], work.data(), pool);
    for (int64_t i = 0; with_sum && i < size; ++i) out[i] += dsum[i];
    dropout(p.samples, p.rows_per_sample * p.width, out.data(), &out[size], p.p, kKey, pool);
    return out;
  }

  static constexpr uint64_t kKey = 0x1234567890abcdef;
  int64_t rows, size;
  std::vector<float> x, f, weight, bias, dy, dsum;
};

// NaN compares unequal to itself, and its sign and payload may differ.
void expect_same(const std::vector<float>& got, const std::vector<float>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_TRUE(got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i])))
        << "element " << i << " is " << got[i] << ", not " << want[i];
}

template <class Run, class Want>
void compare(const Run& run, const Want& want) {
  for_every_isa(run, [&](const std::vector<float>& got) {
    ThreadPool pool(1);
    expect_same(got, want(pool));
  });
}

TEST(ResidualNorm, ForwardEqualsItsPartsToTheBit) {
  for (const Problem& p : kProblems) {
    SCOPED_TRACE(std::to_string(p.rows_per_sample) + " x " + std::to_string(p.width));
    const Parts parts(p);
    compare(
        [&](ThreadPool& pool) {
          std::vector<float> out(2 * parts.size + 2 * parts.rows);
          ResidualNormForward args{
              parts.rows,          p.width,           parts.x.data(), parts.f.data(),
              parts.weight.data(), parts.bias.data(), 1e-5f,          {p.p, Parts::kKey, p.rows_per_sample}};
          args.sum = out.data(), args.y = &out[parts.size], args.mean = &out[2 * parts.size];
          args.rstd = args.mean + parts.rows;
          std::copy(parts.x.begin(), parts.x.end(), args.sum);  // both results over both operands
          std::copy(parts.f.begin(), parts.f.end(), args.y);
          args.x = args.sum, args.f = args.y;
          residual_norm_forward(args, pool);
          return out;
        },
        [&](ThreadPool& pool) { return parts.forward(p, pool); });
  }
}

TEST(ResidualNorm, BackwardEqualsItsPartsToTheBit) {
  for (const Problem& p : kProblems)
    for (const bool with_sum : {false, true}) {
      SCOPED_TRACE(std::to_string(p.rows_per_sample) + " x " + std::to_string(p.width));
      const Parts parts(p);
      ThreadPool pool(1);
      const std::vector<float> y = parts.forward(p, pool);
      compare(
          [&](ThreadPool& threads) {
            std::vector<float> out(2 * parts.size + 2 * p.width);
            std::vector<float> work(residual_norm_backward_workspace(parts.rows, p.width) / 4);
            ResidualNormBackward args{parts.rows,
                                      p.width,
                                      parts.dy.data(),
                                      y.data(),
                                      parts.weight.data(),
                                      &y[2 * parts.size],
                                      &y[2 * parts.size + parts.rows]};
            args.dropout = {p.p, Parts::kKey, p.rows_per_sample};
            args.dx = out.data(), args.df = p.p > 0 ? &out[parts.size] : nullptr;
            args.dweight = &out[2 * parts.size], args.dbias = args.dweight + p.width;
            std::copy(parts.dy.begin(), parts.dy.end(), args.dx);  // written over their operands
            args.dy = args.dx;
            if (with_sum) args.dsum = parts.dsum.data();
            if (with_sum && args.df != nullptr) {
              std::copy(parts.dsum.begin(), parts.dsum.end(), args.df);
              args.dsum = args.df;
            }
            residual_norm_backward(args, work.data(), threads);
            if (args.df == nullptr) std::copy_n(args.dx, parts.size, &out[parts.size]);
            return out;
          },
          [&](ThreadPool& threads) { return parts.backward(p, with_sum, y, threads); });
    }
}

}  // namespace
}  // namespace linnet
