#include <array>
#include <cmath>
#include "engine/kernels/gemm/gemm.h"
#include "engine/kernels/loss/cross_entropy.h"
#include "kernel_testing.h"

namespace linnet {
namespace {
struct Problem {
  int64_t rows, width, classes;
  float smoothing;
  bool bias, accumulate;
  int left_out;  // every so many rows one is left out; 0: none
};

// A chunk has at most 768 rows where the classes are more than 341.
constexpr Problem kProblems[] = {{1, 3, 1, 0, true, false, 0}, {7, 16, 33, 0.1f, false, false, 3},
    {130, 24, 257, 0.1f, true, true, 2}, {40, 8, 5000, 0, true, false, 0}, {1600, 3, 400, 0.2f, true, true, 7},
    {769, 5, 1200, 0, false, false, 0}};

struct Operands {
  std::vector<float> hidden, weight, bias, start;
  std::vector<int32_t> targets;
};

Operands operands(const Problem& p) {
  Operands x{random_floats(p.rows * p.width, 1, -1, 1), random_floats(p.classes * p.width, 2),
      random_floats(p.classes, 3), random_floats(p.classes * p.width, 4), {}};
  for (int64_t i = 0; i < p.rows; ++i)
    x.targets.push_back(p.left_out && i % p.left_out == 1 ? -1 : static_cast<int32_t>(i * 7919 % p.classes));
  return x;
}

constexpr float kLossGradient = 0.37f;

// dhidden, dweight, dbias, loss
std::vector<double> reference(const Problem& p, const Operands& o) {
  const int64_t d = p.width;
  std::vector<double> out(p.rows * d + p.classes * d + p.classes + 1), x(p.classes);
  double *dhidden = out.data(), *dweight = dhidden + p.rows * d, *dbias = dweight + p.classes * d;
  if (p.accumulate) std::copy(o.start.begin(), o.start.end(), dweight);
  for (int64_t i = 0; i < p.rows; ++i) {
    if (o.targets[i] < 0) continue;
    double sum = 0, mean = 0;
    for (int64_t j = 0; j < p.classes; ++j) {
      x[j] = p.bias ? o.bias[j] : 0;
      for (int64_t k = 0; k < d; ++k) x[j] += double(o.hidden[i * d + k]) * o.weight[j * d + k];
      sum += std::exp(x[j]);
      mean += x[j] / double(p.classes);
    }
    out.back() += std::log(sum) - (1.0 - p.smoothing) * x[o.targets[i]] - p.smoothing * mean;
    for (int64_t j = 0; j < p.classes; ++j) {
      const double g = kLossGradient * (std::exp(x[j]) / sum - p.smoothing / double(p.classes) -
                                           (j == o.targets[i] ? 1.0 - p.smoothing : 0.0));
      dbias[j] += g;
      for (int64_t k = 0; k < d; ++k) {
        dhidden[i * d + k] += g * o.weight[j * d + k];
        dweight[j * d + k] += g * o.hidden[i * d + k];
      }
    }
  }
  return out;
}

LinearCrossEntropyArgs arguments(const Problem& p, const Operands& o) {
  LinearCrossEntropyArgs args;
  args.rows = p.rows, args.width = p.width, args.classes = p.classes;
  args.hidden = o.hidden.data(), args.weight = o.weight.data(), args.bias = p.bias ? o.bias.data() : nullptr;
  args.targets = o.targets.data(), args.smoothing = p.smoothing;
  return args;
}

struct Scratch {
  Scratch(const Problem& p, int threads, Precision precision = Precision::kF32, bool bf16_hidden = false)
      : size(linear_cross_entropy_workspace(p.rows, p.width, p.classes, {}, precision, bf16_hidden, threads)),
        bytes(size + 128, std::byte{0xEE}) {}
  std::byte* data() { return bytes.data() + (64 - reinterpret_cast<uintptr_t>(bytes.data()) % 64) % 64; }
  // Nothing was written past the end.
  bool intact() { return data()[size] == std::byte{0xEE}; }
  size_t size;
  std::vector<std::byte> bytes;
};

TEST(LinearCrossEntropy, LossAndGradientsMatchTheFormula) {
  for (const Problem& p : kProblems) {
    SCOPED_TRACE(std::to_string(p.rows) + " x " + std::to_string(p.width) + " x " + std::to_string(p.classes));
    const Operands o = operands(p);
    auto want = reference(p, o);
    want.push_back(want.back());
    for_every_isa(
        [&](ThreadPool& pool) {
          Scratch scratch(p, pool.size());
          std::vector<float> got(want.size());
          LinearCrossEntropyArgs args = arguments(p, o);
          args.loss = &got.back();
          linear_cross_entropy(args, scratch.data(), pool);  // the loss alone
          args.dloss = kLossGradient, args.accumulate = p.accumulate;
          args.dhidden = got.data(), args.dweight = got.data() + p.rows * p.width;
          args.dbias = p.bias ? args.dweight + p.classes * p.width : nullptr;
          args.loss = &got[got.size() - 2];
          std::copy(o.hidden.begin(), o.hidden.end(), got.begin());
          args.hidden = got.data();  // written over what it was computed from
          if (p.accumulate) std::copy(o.start.begin(), o.start.end(), args.dweight);
          linear_cross_entropy(args, scratch.data(), pool);
          EXPECT_TRUE(scratch.intact());
          return got;
        },
        [&](std::vector<float> got) {
          if (!p.bias) std::fill(want.end() - 2 - p.classes, want.end() - 2, 0);
          expect_close(got, want, 3e-5);
        });
  }
}

// And the logits, where products multiply in bf16.
TEST(LinearCrossEntropy, InBf16OnlyTheHiddenStatesAndTheirGradientAreRounded) {
  for (const Problem& p : kProblems) {
    SCOPED_TRACE(std::to_string(p.rows) + " x " + std::to_string(p.width) + " x " + std::to_string(p.classes));
    Operands o = operands(p);
    o.hidden = rounded_to_bf16(o.hidden);
    const auto run = [&](auto hidden, ThreadPool& pool) {  // the gradient is written over what it was computed from
      Scratch scratch(p, pool.size(), Precision::kBf16, StoredFloats(hidden.data()).is_bf16);
      std::vector<float> got(p.classes * p.width + p.classes + 1);
      LinearCrossEntropyArgs args = arguments(p, o);
      args.precision = Precision::kBf16, args.dloss = kLossGradient, args.accumulate = p.accumulate;
      args.hidden = hidden.data(), args.dhidden = hidden.data(), args.dweight = got.data();
      if (p.bias) args.dbias = args.dweight + p.classes * p.width;
      if (p.accumulate) std::copy(o.start.begin(), o.start.end(), args.dweight);
      args.loss = &got.back();
      linear_cross_entropy(args, scratch.data(), pool);
      EXPECT_TRUE(scratch.intact());
      got.insert(got.begin(), hidden.begin(), hidden.end());
      return got;
    };
    for_every_isa([&](ThreadPool& pool) { return run(to_bf16(o.hidden), pool); },
        [&](const std::vector<float>& got) {
          ThreadPool pool(1);
          std::vector<float> want = run(o.hidden, pool);
          for (int64_t i = 0; i < p.rows * p.width; ++i) want[i] = round_to_bf16(want[i]);
          if (gemm_has_bf16()) expect_close(got, want, 1e-2);
          else expect_same(got, want);
        });
  }
}

TEST(LinearCrossEntropy, Bf16ProductsAreNearTheFormula) {
  for (const Problem& p : kProblems) {
    SCOPED_TRACE(std::to_string(p.rows) + " x " + std::to_string(p.width) + " x " + std::to_string(p.classes));
    const Operands o = operands(p);
    const auto want = reference(p, o);
    for_every_isa(
        [&](ThreadPool& pool) {
          Scratch scratch(p, pool.size(), Precision::kBf16);
          std::vector<float> got(want.size());
          LinearCrossEntropyArgs args = arguments(p, o);
          args.precision = Precision::kBf16, args.dloss = kLossGradient, args.accumulate = p.accumulate;
          args.dhidden = got.data(), args.dweight = got.data() + p.rows * p.width, args.loss = &got.back();
          args.dbias = args.dweight + p.classes * p.width;
          if (p.accumulate) std::copy(o.start.begin(), o.start.end(), args.dweight);
          linear_cross_entropy(args, scratch.data(), pool);
          EXPECT_TRUE(scratch.intact());
          return got;
        },
        [&](const std::vector<float>& got) {
          // Parts one after another, each within what rounding its operands to eight bits allows.
          const std::array<int64_t, 5> ends{0, p.rows * p.width, p.rows * p.width + p.classes * p.width,
              p.rows * p.width + p.classes * p.width + p.classes, std::ssize(want)};
          for (size_t part = 0; part + 1 < ends.size(); ++part) {
            double error = 0, norm = 0;
            for (int64_t i = ends[part]; i < ends[part + 1]; ++i)
              error += std::pow(got[i] - want[i], 2), norm += want[i] * want[i];
            EXPECT_LE(std::sqrt(error), 1.5e-2 * std::sqrt(norm) + 1e-6) << "part " << part;
          }
        });
  }
}

TEST(LinearCrossEntropy, NanAndInfinityShowInTheLossExceptFromRowsLeftOut) {
  const Problem p{6, 5, 40, 0, false, false, 2};  // rows 1, 3, 5 are left out
  for (const float bad : {kNan, kInf})
    for (const bool in_weight : {false, true})
      for (const int64_t row : {int64_t{2}, int64_t{3}}) {
        Operands o = operands(p);
        (in_weight ? o.weight : o.hidden)[row * p.width + 2] = bad;
        for_every_isa(
            [&](ThreadPool& pool) {
              Scratch scratch(p, pool.size());
              std::vector<float> got(1 + (p.rows + p.classes) * p.width);
              LinearCrossEntropyArgs args = arguments(p, o);
              args.loss = got.data(), args.dhidden = &got[1], args.dweight = &got[1] + p.rows * p.width;
              linear_cross_entropy(args, scratch.data(), pool);
              return got;
            },
            [&](const std::vector<float>& got) {
              const bool harmless = !in_weight && row == 3;
              EXPECT_EQ(std::isfinite(got[0]), harmless);
              EXPECT_EQ(std::isfinite(got[1 + 2 * p.width + 2]), harmless);
              EXPECT_EQ(got[1 + 3 * p.width], 0);
            });
      }
}

TEST(LinearCrossEntropy, NoRowsGiveZeros) {
  ThreadPool pool(2);
  const Problem p{0, 4, 9, 0, true, false, 0};
  const Operands o = operands(p);
  Scratch scratch(p, 2);
  float loss = 5;
  std::vector<float> dweight(36, 5), dbias(9, 5);
  LinearCrossEntropyArgs args = arguments(p, o);
  args.loss = &loss, args.dhidden = &loss, args.dweight = dweight.data(), args.dbias = dbias.data();
  linear_cross_entropy(args, scratch.data(), pool);
  EXPECT_EQ(loss, 0);
  EXPECT_EQ(dweight, std::vector<float>(36, 0));
  EXPECT_EQ(dbias, std::vector<float>(9, 0));
}
}  // namespace
}  // namespace linnet
