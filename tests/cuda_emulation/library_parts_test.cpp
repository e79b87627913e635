// The kernels of our own that work beside NVIDIA's libraries, and so are not part of an op that the emulation runs.
#include <gtest/gtest.h>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <vector>
#include "cuda_emulation/emulated_backend.h"
#include "engine/kernels/precision.h"
#include "engine/ops/attention/attention.h"
#include "engine/ops/cross_entropy/cross_entropy.h"
#include "engine/ops/dropout/dropout.h"
#include "engine/ops/matmul/matmul.h"

namespace linnet {
namespace {
using Floats = std::vector<float>;

Device& device() { return *emulated_backend().backend.device; }

// Numbers on the device, stored as `type`.
class OnDevice {
 public:
  OnDevice(const Floats& values, DType type) : type_(type), count_(values.size()) {
    memory_ = device().allocate(count_ * dtype_size(type) + 16, "test");
    std::vector<std::byte> bytes(count_ * dtype_size(type));
    for (size_t i = 0; i < count_; ++i) {
      const uint32_t bits = std::bit_cast<uint32_t>(values[i]);
      const auto high = static_cast<uint16_t>(std::bit_cast<uint32_t>(round_to_bf16(values[i])) >> 16);
      if (type == DType::kBF16) std::memcpy(bytes.data() + 2 * i, &high, 2);
      else std::memcpy(bytes.data() + 4 * i, &bits, 4);
    }
    device().upload(memory_, bytes.data(), bytes.size());
    device().wait();
  }
  ~OnDevice() { device().release(memory_); }
  OnDevice(const OnDevice&) = delete;

  template <class T = void> T* at(size_t element = 0) {
    return reinterpret_cast<T*>(memory_ + element * dtype_size(type_));
  }
  Floats values() {
    std::vector<std::byte> bytes(count_ * dtype_size(type_));
    device().download(bytes.data(), memory_, bytes.size());
    device().wait();
    Floats values(count_);
    for (size_t i = 0; i < count_; ++i) {
      uint32_t bits = 0;
      if (type_ == DType::kBF16) std::memcpy(reinterpret_cast<std::byte*>(&bits) + 2, bytes.data() + 2 * i, 2);
      else std::memcpy(&bits, bytes.data() + 4 * i, 4);
      values[i] = std::bit_cast<float>(bits);
    }
    return values;
  }

 private:
  DType type_;
  size_t count_;
  std::byte* memory_;
};

Floats numbers(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-3, 3);
  Floats values(count);
  for (float& v : values) v = round_to_bf16(uniform(random));
  return values;
}

double gelu_tanh(double x) { return x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))) / 2; }
double gelu(double x) { return x * (1 + std::erf(x / std::sqrt(2.0))) / 2; }
double function(GemmActivation f, double x) {
  if (f == GemmActivation::kRelu) return x < 0 ? 0 : x;
  if (f == GemmActivation::kGelu) return gelu(x);
  return f == GemmActivation::kGeluTanh ? gelu_tanh(x) : x;
}
double slope(GemmActivation f, double x) {
  if (f == GemmActivation::kRelu) return x > 0;
  const double h = 1e-5;
  return f == GemmActivation::kNone ? 1 : (function(f, x + h) - function(f, x - h)) / (2 * h);
}

constexpr GemmActivation kFunctions[] = {
    GemmActivation::kNone, GemmActivation::kRelu, GemmActivation::kGelu, GemmActivation::kGeluTanh};

TEST(MatmulEpilogue, ActivationsAndDerivativesOfEveryWidth) {
  for (const DType type : {DType::kF32, DType::kBF16})
    for (const size_t width : {1u, 7u, 8u, 300u})
      for (const GemmActivation f : kFunctions)
        for (const bool derivative : {false, true}) {
          const size_t rows = 3, count = rows * width;
          const double tolerance = type == DType::kF32 ? 1e-5 : 2e-2;
          const Floats x = numbers(count, 1), bias = numbers(width, 2), aux = numbers(count, 3);
          OnDevice x_at(x, type), bias_at(bias, DType::kF32), aux_at(aux, type), before(Floats(count), type);
          MatmulEpilogue e{.rows = static_cast<int64_t>(rows), .width = static_cast<int64_t>(width), .type = type};
          e.x = x_at.at(), e.out = x_at.at(), e.bias = bias_at.at<float>(), e.pre_activation = before.at(),
          e.scale = 1.25f;
          (derivative ? e.derivative : e.activation) = f;
          if (derivative) e.aux = aux_at.at();
          matmul_epilogue(&device(), e);
          const Floats out = x_at.values(), kept = before.values();
          for (size_t i = 0; i < count; ++i) {
            const double y = static_cast<double>(x[i]) + bias[i % width];
            const double scale = derivative && f != GemmActivation::kNone ? 1.25 * slope(f, aux[i]) : 1;
            const double expected = derivative ? y * scale : function(f, y);
            EXPECT_NEAR(kept[i], y, tolerance * (1 + std::abs(y)));
            EXPECT_NEAR(out[i], expected, tolerance * (1 + std::abs(expected))) << static_cast<int>(f) << derivative;
          }
        }
}

TEST(MatmulEpilogue, NaNStaysAndAStoppedGradientIsZero) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  OnDevice x({nan, nan, 1, 2}, DType::kF32), aux({-1, 1, -1, 1}, DType::kF32);
  MatmulEpilogue e{.rows = 1, .width = 4};
  e.x = x.at(), e.out = x.at(), e.activation = GemmActivation::kRelu;
  matmul_epilogue(&device(), e);
  EXPECT_TRUE(std::isnan(x.values()[0]));
  e.activation = GemmActivation::kNone, e.derivative = GemmActivation::kRelu, e.aux = aux.at();
  matmul_epilogue(&device(), e);
  EXPECT_EQ(x.values()[0], 0);
  EXPECT_TRUE(std::isnan(x.values()[1]));
  EXPECT_EQ(x.values()[2], 0);
  EXPECT_EQ(x.values()[3], 2);
}

TEST(SoftmaxLoss, LossesAndGradientsOfAChunk) {
  for (const DType type : {DType::kF32, DType::kBF16})
    for (const size_t width : {1u, 5u, 64u, 700u, 9001u})
      for (const bool with_bias : {false, true}) {
        const size_t rows = 4, stride = (width + 7) / 8 * 8;
        const float smoothing = with_bias ? 0.1f : 0, dloss = 0.5f;
        const Floats x = numbers(rows * stride, 4), bias = numbers(width, 5);
        const std::vector<int32_t> targets{0, -1, static_cast<int32_t>(width) - 1, static_cast<int32_t>(width / 2)};
        OnDevice logits(x, type), bias_at(bias, DType::kF32), losses(Floats(rows, 9), DType::kF32);
        OnDevice dloss_at({dloss}, DType::kF32), targets_at(Floats(rows), DType::kF32);
        device().upload(targets_at.at<std::byte>(), reinterpret_cast<const std::byte*>(targets.data()), 4 * rows);
        device().wait();
        SoftmaxLoss l{.rows = static_cast<int64_t>(rows),
            .width = static_cast<int64_t>(width),
            .stride = static_cast<int64_t>(stride),
            .type = type};
        l.logits = logits.at(), l.bias = with_bias ? bias_at.at<float>() : nullptr;
        l.targets = targets_at.at<int32_t>(), l.smoothing = smoothing;
        l.losses = losses.at<float>();
        softmax_loss(&device(), l);
        const Floats alone = losses.values();
        l.dloss = dloss_at.at<float>();
        softmax_loss(&device(), l);
        EXPECT_EQ(losses.values(), alone);
        const Floats d = logits.values();
        for (size_t r = 0; r < rows; ++r) {
          double sum = 0, mean = 0;
          const auto value = [&](size_t j) {
            return static_cast<double>(x[r * stride + j]) + (with_bias ? bias[j] : 0);
          };
          for (size_t j = 0; j < width; ++j) sum += std::exp(value(j)), mean += value(j) / static_cast<double>(width);
          const double lse = std::log(sum);
          const bool counts = targets[r] >= 0;
          const double loss =
              counts ? lse - (1 - smoothing) * value(static_cast<size_t>(targets[r])) - smoothing * mean : 0;
          EXPECT_NEAR(alone[r], loss, 1e-4) << width;
          for (size_t j = 0; j < width; ++j) {
            const double goal =
                (static_cast<int32_t>(j) == targets[r] ? 1 - smoothing : 0) + smoothing / static_cast<double>(width);
            const double expected = counts ? dloss * (std::exp(value(j) - lse) - goal) : 0;
            EXPECT_NEAR(d[r * stride + j], expected, (type == DType::kF32 ? 1e-6 : 1e-3)) << r << " " << j;
          }
        }
      }
}

TEST(SoftmaxLoss, NaNAndTargetsThatAreNoneShow) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  OnDevice logits({1, nan, 2, 0, 0, 0, 0, 0, 1, 2, 3, 0, 0, 0, 0, 0}, DType::kF32), losses({0, 0}, DType::kF32);
  const std::vector<int32_t> targets{0, 3};
  OnDevice targets_at(Floats(2), DType::kF32);
  device().upload(targets_at.at<std::byte>(), reinterpret_cast<const std::byte*>(targets.data()), 8);
  device().wait();
  SoftmaxLoss l{.rows = 2, .width = 3, .stride = 8};
  l.logits = logits.at(), l.targets = targets_at.at<int32_t>(), l.losses = losses.at<float>();
  softmax_loss(&device(), l);
  EXPECT_TRUE(std::isnan(losses.values()[0]));
  EXPECT_TRUE(std::isnan(losses.values()[1]));
}

TEST(SoftmaxLoss, SumsOfColumnsAndOfNumbers) {
  const size_t rows = 150, width = 300, stride = 304;
  const Floats x = numbers(rows * stride, 6);
  OnDevice x_at(x, DType::kF32), parts(Floats(3 * width), DType::kF32), to(Floats(width, 1), DType::kF32);
  for (const bool add : {false, true})
    sum_columns(&device(), DType::kF32, rows, width, stride, x_at.at(), parts.at<float>(), to.at<float>(), add);
  const Floats sums = to.values();
  for (size_t j = 0; j < width; ++j) {
    double sum = 0;
    for (size_t r = 0; r < rows; ++r) sum += x[r * stride + j];
    EXPECT_NEAR(sums[j], 2 * sum, 1e-3);
  }
  sum_numbers(&device(), static_cast<int64_t>(x.size()), x_at.at<float>(), to.at<float>());
  EXPECT_NEAR(to.values()[0], std::accumulate(x.begin(), x.end(), 0.0), 0.1);
}

// Rows that cuDNN leaves as they were, or as NaN, in slices of wider rows.
TEST(AttentionStaging, RowsThatNoKeyOrNoQueryReachesAreZero) {
  const size_t batch = 3, keys = 5, queries = 4, width = 16, row = 24;
  const std::vector<int32_t> lengths{5, 0, 2};
  OnDevice lengths_at(Floats(batch), DType::kF32);
  device().upload(lengths_at.at<std::byte>(), reinterpret_cast<const std::byte*>(lengths.data()), 4 * batch);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  OnDevice of_keys(Floats(batch * keys * row, nan), DType::kBF16);
  OnDevice of_queries(Floats(batch * queries * row, nan), DType::kBF16);
  const auto rows = [&](OnDevice& x, size_t length, bool with_keys) {
    return MaskedRows{.data = x.at(8),
        .length = static_cast<int64_t>(length),
        .width = width,
        .sample = static_cast<int64_t>(length * row),
        .row = row,
        .of_keys = with_keys};
  };
  const MaskedRows results[] = {rows(of_queries, queries, false), rows(of_keys, keys, true)};
  zero_masked_rows(&device(), batch, lengths_at.at<int32_t>(), results);
  const auto check = [&](OnDevice& x, size_t length, bool with_keys) {
    const Floats found = x.values();
    for (size_t b = 0; b < batch; ++b)
      for (size_t t = 0; t < length; ++t)
        for (size_t j = 0; j < row; ++j) {
          const auto seen = static_cast<size_t>(lengths[b]);
          const bool cleared = j >= 8 && (with_keys ? t >= seen : seen == 0);
          const float value = found[(b * length + t) * row + j];
          EXPECT_TRUE(cleared ? value == 0 : std::isnan(value)) << b << " " << t << " " << j;
        }
  };
  check(of_queries, queries, false);
  check(of_keys, keys, true);
}

TEST(AttentionStaging, SeedLengthsAndCopies) {
  const std::vector<int32_t> words{1, 2, 3, 4, 5, 0, 99};  // random, lengths of 3 samples
  OnDevice in(Floats(7), DType::kF32), seed(Floats(6), DType::kF32), lengths(Floats(6), DType::kF32);
  device().upload(in.at<std::byte>(), reinterpret_cast<const std::byte*>(words.data()), 28);
  AttentionExtras e{.batch = 3, .queries = 7, .keys = 9, .random = in.at<int32_t>(), .lengths = in.at<int32_t>(4)};
  e.site = 77, e.seed = seed.at<int64_t>(), e.offset = seed.at<int64_t>(4);
  e.query_lengths = lengths.at<int32_t>(), e.key_lengths = lengths.at<int32_t>(3);
  prepare_attention(&device(), e);
  int64_t seeds[3];
  int32_t found[6];
  device().download(reinterpret_cast<std::byte*>(seeds), seed.at<std::byte>(), 24);
  device().download(reinterpret_cast<std::byte*>(found), lengths.at<std::byte>(), 24);
  device().wait();
  EXPECT_EQ(static_cast<uint64_t>(seeds[0]), dropout_key(words.data(), 77));
  EXPECT_EQ(seeds[2], 0);
  EXPECT_EQ(std::vector(found, found + 6), (std::vector<int32_t>{7, 7, 7, 5, 1, 9}));

  const Floats x = numbers(2 * 3 * 10, 7);
  OnDevice from(x, DType::kF32), packed(Floats(2 * 3 * 4), DType::kBF16), to(Floats(2 * 3 * 10), DType::kF32);
  TensorView view{from.at<float>(2), {DType::kF32, {2, 3, 4}}, {30, 10, 1}};
  pack_bf16(&device(), view, packed.at());
  view.data = to.at<float>(2);
  unpack_bf16(&device(), packed.at(), view);
  const Floats copied = to.values();
  for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(copied[i], i % 10 >= 2 && i % 10 < 6 ? x[i] : 0) << i;
}
}  // namespace
}  // namespace linnet
