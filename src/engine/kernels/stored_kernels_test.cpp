// Kernels that read and write activations as bf16 give what they give for fp32 numbers of equal value, rounded.
#include <functional>
#include <string>
#include "engine/kernels/embedding.h"
#include "engine/kernels/pointwise/expression.h"
#include "engine/kernels/random/philox.h"
#include "engine/kernels/reduce/reduce.h"
#include "engine/kernels/rope.h"
#include "engine/kernels/stored_floats.h"
#include "kernel_testing.h"

namespace linnet {
namespace {
std::vector<Bfloat16> in_bf16(const std::vector<float>& x) {
  std::vector<Bfloat16> out;
  for (const float v : x) out.emplace_back(v);
  return out;
}

std::vector<float> in_fp32(const std::vector<Bfloat16>& x) { return {x.begin(), x.end()}; }

// Numbers that bf16 holds exactly, among them those that are no numbers.
std::vector<float> exact(int64_t n, uint32_t seed) {
  std::vector<float> x = in_fp32(in_bf16(random_floats(n, seed)));
  if (n > 40) x[17] = kNan, x[23] = kInf, x[31] = -0.0f;
  return x;
}

// run(x, y, pool) reads as many numbers as `x` has and writes `results`. From bf16 to bf16, from one to the other and
// in place.
void expect_same_in_bf16(const std::vector<float>& x, int64_t results,
    const std::function<void(StoredFloats, MutableStoredFloats, ThreadPool&)>& run) {
  const std::vector<Bfloat16> x16 = in_bf16(x);
  for (const bool from_bf16 : {false, true})
    for (const bool to_bf16 : {false, true}) {
      SCOPED_TRACE(std::string("from ") + (from_bf16 ? "bf16" : "fp32") + " to " + (to_bf16 ? "bf16" : "fp32"));
      std::vector<float> want;
      for_every_isa(
          [&](ThreadPool& pool) {
            want.assign(static_cast<size_t>(results), 0);
            run(x.data(), want.data(), pool);
            for (float& v : want) v = to_bf16 ? round_to_bf16(v) : v;
            const StoredFloats from = from_bf16 ? StoredFloats(x16.data()) : StoredFloats(x.data());
            std::vector<float> floats(static_cast<size_t>(results) + 1, -7);
            std::vector<Bfloat16> shorts = in_bf16(floats);
            run(from, to_bf16 ? MutableStoredFloats(shorts.data()) : MutableStoredFloats(floats.data()), pool);
            std::vector<float> got = to_bf16 ? in_fp32(shorts) : floats;
            EXPECT_EQ(got.back(), -7) << "wrote past the end";
            got.pop_back();
            return got;
          },
          [&](const std::vector<float>& got) { EXPECT_TRUE(same_bits(got, want)); });
    }
  if (results != static_cast<int64_t>(x.size())) return;
  for_every_isa(
      [&](ThreadPool& pool) {
        std::vector<Bfloat16> apart(x.size()), place = x16;
        run(x16.data(), apart.data(), pool);
        run(place.data(), place.data(), pool);
        EXPECT_TRUE(same_bits(in_fp32(place), in_fp32(apart))) << "in place";
        return in_fp32(place);
      },
      [](const std::vector<float>&) {});
}

TEST(StoredKernels, Dropout) {
  for (const float p : {0.0f, 0.3f})
    expect_same_in_bf16(exact(3 * 5001, 1), 3 * 5001, [p](StoredFloats x, MutableStoredFloats y, ThreadPool& pool) {
      dropout(3, 5001, x, y, p, 0x1234567, pool, 2);
    });
}

// a * row + column with every broadcast; a and row are of the type that is tested.
TEST(StoredKernels, Pointwise) {
  const auto input = [](int operand) {
    return Instruction{.function = Scalar::kInput, .a = static_cast<int16_t>(operand)};
  };
  const Expression e = {{input(0), input(1), input(2), input(3), {Scalar::kMul, 0, 1}, {Scalar::kAdd, 4, 2},
      {Scalar::kTanh, 5}, {Scalar::kMul, 6, 3}}};
  const int64_t shapes[][2] = {{1, 7}, {5, 31}, {64, 300}, {11, 1500}, {2, 20011}};
  for (const auto& [rows, width] : shapes) {
    SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(width));
    const int64_t n = rows * width, columns = width;
    const std::vector<float> column = exact(rows, 2), scale = {1.5f};
    const std::vector<Bfloat16> column16 = in_bf16(column), scale16 = in_bf16(scale);
    std::vector<float> x = exact(n, 1), row = exact(columns, 3);
    x.insert(x.end(), row.begin(), row.end());
    expect_same_in_bf16(x, n, [&](StoredFloats from, MutableStoredFloats y, ThreadPool& pool) {
      const PointwiseOperand operands[] = {{from, n, Broadcast::kFull}, {from + n, columns, Broadcast::kSuffix},
          {from.is_bf16 ? StoredFloats(column16.data()) : StoredFloats(column.data()),
              static_cast<int64_t>(column.size()), Broadcast::kPrefix},
          {from.is_bf16 ? StoredFloats(scale16.data()) : StoredFloats(scale.data()), 1, Broadcast::kScalar}};
      pointwise(n, e, operands, y, pool);
    });
  }
  expect_same_in_bf16(exact(50'001, 4), 50'001, [&](StoredFloats x, MutableStoredFloats y, ThreadPool& pool) {
    const PointwiseOperand full[] = {{x, 50'001, Broadcast::kFull}};
    pointwise(50'001, {{input(0), {Scalar::kAdd, 0, 0}, {Scalar::kRelu, 1}}}, full, y, pool);
  });
}

TEST(StoredKernels, SumsOfRows) {
  for (const auto& [rows, width] : {std::pair<int64_t, int64_t>{3, 7}, {67, 1025}, {1000, 100}}) {
    const std::vector<float> x = exact(rows * width, 1);
    const std::vector<Bfloat16> x16 = in_bf16(x);
    std::vector<float> want;
    const auto sums = [&, rows = rows, width = width](StoredFloats from, ThreadPool& pool) {
      std::vector<float> out(static_cast<size_t>(width)), work(sum_rows_workspace(rows, width) / sizeof(float));
      sum_rows(rows, width, from, out.data(), work.data(), pool);
      return out;
    };
    for_every_isa(
        [&](ThreadPool& pool) {
          want = sums(x.data(), pool);
          return sums(x16.data(), pool);
        },
        [&](const std::vector<float>& got) { EXPECT_TRUE(same_bits(got, want)); });
  }
}

TEST(StoredKernels, RowsOfATableAndTheirGradient) {
  constexpr int64_t kCount = 70, kWidth = 257, kVocabulary = 9;
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < kCount; ++i) ids.push_back(i * i % kVocabulary);
  const std::vector<float> table = random_floats(kVocabulary * kWidth, 1), dy = exact(kCount * kWidth, 2);
  const std::vector<Bfloat16> dy16 = in_bf16(dy);
  for_every_isa(
      [&](ThreadPool& pool) {
        std::vector<Bfloat16> rows(kCount * kWidth);
        gather_rows(kCount, kWidth, table.data(), ids.data(), rows.data(), pool);
        for (size_t i = 0; i < rows.size(); ++i)
          EXPECT_EQ(rows[i], round_to_bf16(table[static_cast<size_t>(ids[i / kWidth]) * kWidth + i % kWidth]));
        std::vector<float> want = table, got = table;
        scatter_add_rows(kCount, kWidth, dy.data(), ids.data(), want.data(), pool);
        scatter_add_rows(kCount, kWidth, dy16.data(), ids.data(), got.data(), pool);
        EXPECT_TRUE(same_bits(got, want));
        return got;
      },
      [](const std::vector<float>&) {});
}

TEST(StoredKernels, SoftmaxAndItsGradient) {
  constexpr int64_t kRows = 9, kWidth = 77;
  std::vector<float> x = in_fp32(in_bf16(random_floats(kRows * kWidth, 1, -9, 9)));
  std::fill(x.begin() + kWidth, x.begin() + 2 * kWidth, -kInf);
  const std::vector<float> dy = in_fp32(in_bf16(random_floats(kRows * kWidth, 2)));
  for_every_isa(
      [&](ThreadPool& pool) {
        std::vector<float> want(x.size());
        std::vector<Bfloat16> got = in_bf16(x);
        softmax_forward(kRows, kWidth, x.data(), want.data(), pool);
        softmax_forward(kRows, kWidth, got.data(), got.data(), pool);
        expect_close(in_fp32(got), want, 0x1p-8);
        const std::vector<float> y = in_fp32(got);
        std::vector<Bfloat16> dx = in_bf16(dy);
        softmax_backward(kRows, kWidth, dy.data(), y.data(), want.data(), pool);
        softmax_backward(kRows, kWidth, dx.data(), got.data(), dx.data(), pool);
        for (float& v : want) v = round_to_bf16(v);
        EXPECT_TRUE(same_bits(in_fp32(dx), want));
        return in_fp32(dx);
      },
      [](const std::vector<float>&) {});
}

TEST(StoredKernels, Rope) {
  constexpr int64_t kBatch = 2, kLength = 33, kHeads = 3, kOthers = 1, kSize = 34, kWidth = (kHeads + kOthers) * kSize;
  std::vector<double> frequencies;
  for (int64_t i = 0; i < kSize / 2; ++i) frequencies.push_back(1.0 / static_cast<double>(1 + i));
  const std::vector<float> x = exact(kBatch * kLength * kWidth, 1);
  const std::vector<Bfloat16> x16 = in_bf16(x);
  RopeArgs args{.batch = kBatch, .length = kLength, .width = kWidth, .heads = kHeads, .head_size = kSize};
  args.frequencies = frequencies.data();
  args.x_batch_stride = args.y_batch_stride = kLength * kWidth, args.x_row_stride = args.y_row_stride = kWidth;
  for_every_isa(
      [&](ThreadPool& pool) {
        std::vector<float> want(x.size());
        std::vector<Bfloat16> got = x16;
        RopeArgs call = args;
        call.x = x.data(), call.y = want.data();
        rope_rows(call, pool);
        call.x = got.data(), call.y = got.data();
        rope_rows(call, pool);
        for (float& v : want) v = round_to_bf16(v);
        EXPECT_TRUE(same_bits(in_fp32(got), want));
        return in_fp32(got);
      },
      [](const std::vector<float>&) {});
}
}  // namespace
}  // namespace linnet
