#include <array>
#include "base/error.h"
#include "engine/kernels/pointwise/expression.h"
#include "kernel_testing.h"

namespace linnet {
namespace {
Instruction input(int operand) { return {.function = Scalar::kInput, .a = static_cast<int16_t>(operand)}; }
Instruction constant(double value) { return {.function = Scalar::kConstant, .constant = value}; }

int64_t operand_index(const PointwiseOperand& operand, int64_t i, int64_t n) {
  switch (operand.broadcast) {
    case Broadcast::kFull: return i;
    case Broadcast::kSuffix: return i % operand.size;
    case Broadcast::kPrefix: return i / (n / operand.size);
    case Broadcast::kMiddle: return i / (n / operand.size * operand.row) * operand.row + i % operand.row;
    default: return 0;
  }
}

std::vector<double> reference(int64_t n, const Expression& e, const std::vector<PointwiseOperand>& operands) {
  std::vector<double> out;
  for (int64_t i = 0; i < n; ++i) {
    double inputs[kMaxOperands] = {};
    for (size_t k = 0; k < operands.size(); ++k) inputs[k] = operands[k].data[operand_index(operands[k], i, n)];
    out.push_back(evaluate_scalar(e, inputs));
  }
  return out;
}

void expect_right(int64_t n, const Expression& e, const std::vector<PointwiseOperand>& operands, double tolerance) {
  const auto want = reference(n, e, operands);
  for_every_isa(
      [&](ThreadPool& pool) {
        std::vector<float> out(static_cast<size_t>(n) + 1, -77.0f);
        pointwise(n, e, operands, out.data(), pool);
        EXPECT_EQ(out.back(), -77.0f) << "wrote past the end";
        out.pop_back();
        return out;
      },
      [&](const std::vector<float>& out) { expect_close(out, want, tolerance); });
}

TEST(Pointwise, EveryFunctionMatchesItsDefinition) {
  std::vector<float> x = random_floats(77, 1, -3, 3), y = random_floats(77, 2, -3, 3), z = random_floats(77, 3);
  const float special[] = {0, -0.0f, 1, kInf, -kInf, kNan};
  for (int i = 0; i < 36; ++i) {
    x[i] = special[i % 6];
    y[i] = special[i / 6];
  }
  const std::vector<PointwiseOperand> operands = {
      {x.data(), 77, Broadcast::kFull}, {y.data(), 77, Broadcast::kFull}, {z.data(), 77, Broadcast::kFull}};
  for (int f = static_cast<int>(Scalar::kAdd); f <= static_cast<int>(kLastScalar); ++f) {
    const auto function = static_cast<Scalar>(f);
    SCOPED_TRACE(scalar_name(function));
    expect_right(77, {{input(0), input(1), input(2), {.function = function, .a = 0, .b = 1, .c = 2}}}, operands, 2e-6);
  }
}

// [B, 1, D] within [B, T, D]: rows shorter and longer than a block, and blocks that meet two of B.
TEST(Pointwise, RowsAreRepeatedInTheMiddle) {
  for (const auto& [outer, times, row] :
      {std::array<int64_t, 3>{2, 3, 5}, {8, 49, 96}, {3, 700, 1}, {2, 5, 1500}, {4, 1, 33}, {1, 40, 48}}) {
    SCOPED_TRACE(std::to_string(outer) + " x " + std::to_string(times) + " x " + std::to_string(row));
    const int64_t n = outer * times * row;
    const std::vector<float> x = random_floats(n, 1), gate = random_floats(outer * row, 2);
    expect_right(n, {{input(0), input(1), {Scalar::kMul, 0, 1}}},
        {{x.data(), n, Broadcast::kFull}, {gate.data(), outer * row, Broadcast::kMiddle, row}}, 1e-6);
  }
}

TEST(Pointwise, EveryBroadcastAndRaggedSize) {
  // tanh(a * row + column) * s + 0.5
  const Expression e = {{input(0), input(1), input(2), input(3), constant(0.5), {Scalar::kMul, 0, 1},
      {Scalar::kAdd, 5, 2}, {Scalar::kTanh, 6}, {Scalar::kMul, 7, 3}, {Scalar::kAdd, 8, 4}}};
  const int64_t shapes[][2] = {
      {1, 1}, {1, 7}, {7, 1}, {5, 31}, {3, 16}, {64, 300}, {9, 1024}, {11, 1500}, {2, 20011}, {30011, 2}, {400, 257}};
  for (const auto& [rows, width] : shapes) {
    SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(width));
    const int64_t n = rows * width;
    const auto a = random_floats(n, 1), row = random_floats(width, 2), column = random_floats(rows, 3);
    const float s = 1.5f;
    expect_right(n, e,
        {{a.data(), n, Broadcast::kFull}, {row.data(), width, Broadcast::kSuffix},
            {column.data(), rows, Broadcast::kPrefix}, {&s, 1, Broadcast::kScalar}},
        1e-6);
  }
}

TEST(Pointwise, LongProgramsAndManyOperands) {
  // A chain that keeps 30 values alive at once: all are made first and added up last.
  Expression e;
  for (int k = 0; k < 16; ++k) e.code.push_back(input(k));
  for (int i = 0; i < 24; ++i)
    e.code.push_back({Scalar::kMul, static_cast<int16_t>(i % 16), static_cast<int16_t>((i * 7 + 1) % 16)});
  for (int i = 0; i < 24; ++i)
    e.code.push_back({Scalar::kAdd, static_cast<int16_t>(i == 0 ? 15 : 39 + i), static_cast<int16_t>(39 - i)});
  ASSERT_EQ(e.code.size(), 64u);
  const int64_t rows = 30, width = 97, n = rows * width;
  std::vector<std::vector<float>> data;
  std::vector<PointwiseOperand> operands;
  for (int k = 0; k < 16; ++k) {
    const auto broadcast = static_cast<Broadcast>(k % 4);
    const int64_t sizes[] = {n, width, rows, 1};
    data.push_back(random_floats(sizes[k % 4], 10 + k, -1, 1));
    operands.push_back({data.back().data(), sizes[k % 4], broadcast});
  }
  expect_right(n, e, operands, 1e-5);
}

// Rows and columns, shorter and longer than a block, in one part and in several.
TEST(Pointwise, SumsOfValuesThatAreNotStored) {
  for (const auto& [outer, rows, width] : {std::array<int64_t, 3>{1, 1, 1}, {7, 3, 1}, {500, 32, 1}, {2, 70'000, 1},
           {1, 9, 300}, {3, 50, 33}, {130, 4, 9}, {1, 2000, 40}, {2, 3, 5000}, {5, 1, 8}}) {
    SCOPED_TRACE(std::to_string(outer) + " x " + std::to_string(rows) + " x " + std::to_string(width));
    const int64_t n = outer * rows * width;
    const Expression square_of_difference{{input(0), input(1), {Scalar::kSub, 0, 1}, {Scalar::kSquare, 2}}};
    const std::vector<float> x = random_floats(n, 1), rest = random_floats(outer * width, 2);
    const std::vector<PointwiseOperand> operands{{x.data(), n, Broadcast::kFull},
        {rest.data(), outer * width, width == 1 ? Broadcast::kPrefix : Broadcast::kMiddle, width}};
    const std::vector<double> values = reference(n, square_of_difference, operands);
    std::vector<double> want(outer * width);
    for (int64_t i = 0; i < n; ++i) want[i / width / rows * width + i % width] += values[i];
    const auto sums = [&, outer = outer, rows = rows, width = width](
                          ThreadPool& pool, const Expression& e, const std::vector<PointwiseOperand>& of) {
      std::vector<double> workspace(pointwise_sum_workspace(outer, rows, width) / sizeof(double));
      std::vector<float> out(outer * width);
      pointwise_sum(outer, rows, width, e, of, out.data(), workspace.data(), pool);
      return out;
    };
    for_every_isa([&](ThreadPool& pool) { return sums(pool, square_of_difference, operands); },
        [&](const std::vector<float>& out) { expect_close(out, want, 1e-6); });
    std::fill(want.begin(), want.end(), 0.0);
    for (int64_t i = 0; i < n; ++i) want[i / width / rows * width + i % width] += x[i];
    for_every_isa([&](ThreadPool& pool) { return sums(pool, {{input(0)}}, {operands[0]}); },
        [&](const std::vector<float>& out) { expect_close(out, want, 1e-6); });
  }
  ThreadPool pool(2);
  // A row's sum has the same bits whatever is beside it, also where double rounds.
  for (const int64_t rows : {40, 1030, 20'000}) {
    std::vector<float> x = random_floats(9 * rows, 3), all(9), one(1);
    for (int64_t row = 0; row < 9; ++row) x[row * rows + rows / 2] = 0x1p60f, x[row * rows + rows / 2 + 1] = -0x1p60f;
    std::vector<double> workspace(pointwise_sum_workspace(9, rows, 1) / sizeof(double));
    const PointwiseOperand operand{x.data(), 9 * rows, Broadcast::kFull};
    for (const Expression& e : {Expression{{input(0)}}, Expression{{input(0), {Scalar::kNeg, 0}}}}) {
      pointwise_sum(9, rows, 1, e, std::span(&operand, 1), all.data(), workspace.data(), pool);
      for (int64_t row = 0; row < 9; ++row) {
        const PointwiseOperand alone{x.data() + row * rows, rows, Broadcast::kFull};
        pointwise_sum(1, rows, 1, e, std::span(&alone, 1), one.data(), workspace.data(), pool);
        EXPECT_EQ(one[0], all[row]) << row << " of " << rows;
      }
    }
  }
  std::vector<float> nothing(3, 1.0f);
  std::vector<double> workspace(pointwise_sum_workspace(1, 0, 3) / sizeof(double));
  pointwise_sum(1, 0, 3, {{constant(1)}}, {}, nothing.data(), workspace.data(), pool);
  EXPECT_EQ(nothing, std::vector<float>(3));
}

TEST(Pointwise, InPlaceAndLeaves) {
  ThreadPool pool(2);
  std::vector<float> x = random_floats(50'001, 5), expected = x;
  for (float& v : expected) v = v < 0 ? 0 : v + v;
  const PointwiseOperand full[] = {{x.data(), 50'001, Broadcast::kFull}};
  pointwise(50'001, {{input(0), {Scalar::kAdd, 0, 0}, {Scalar::kRelu, 1}}}, full, x.data(), pool);
  EXPECT_EQ(x, expected);
  std::vector<float> copy(50'001);
  pointwise(50'001, {{input(0)}}, full, copy.data(), pool);
  EXPECT_EQ(copy, x);
  pointwise(50'001, {{constant(-3)}}, {}, copy.data(), pool);
  EXPECT_EQ(copy, std::vector<float>(50'001, -3));
  pointwise(0, {{constant(-3)}}, {}, nullptr, pool);
}

TEST(Pointwise, RefusesWhatDoesNotFit) {
  ThreadPool pool(1);
  std::vector<float> x(12);
  const auto run = [&](Expression e, PointwiseOperand operand) {
    pointwise(12, e, std::span(&operand, 1), x.data(), pool);
  };
  EXPECT_THROW(run({{input(0)}}, {x.data(), 11, Broadcast::kFull}), Error);
  EXPECT_THROW(run({{input(0)}}, {x.data(), 5, Broadcast::kSuffix}), Error);
  EXPECT_THROW(run({{input(1)}}, {x.data(), 12, Broadcast::kFull}), Error);
  EXPECT_THROW(run({{input(0), {Scalar::kExp, 1}}}, {x.data(), 12, Broadcast::kFull}), Error);
  EXPECT_THROW(run({}, {x.data(), 12, Broadcast::kFull}), Error);
  EXPECT_THROW(run({std::vector<Instruction>(65, input(0))}, {x.data(), 12, Broadcast::kFull}), Error);
}
}  // namespace
}  // namespace linnet
