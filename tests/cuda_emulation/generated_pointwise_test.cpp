// Generated elementwise kernels give the values of engine/kernels/pointwise/expression.h, bit for bit where both use
// the same functions, and NVRTC takes them.
#include <gtest/gtest.h>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <random>
#include "base/error.h"
#include "cuda_emulation/emulation.cuh"
#include "cuda_emulation/pointwise_cases.h"
#include "engine/device/cuda/libraries.h"
#include "temporary_folder.h"

namespace linnet {
namespace {
using testing::pointwise_cases;
using testing::PointwiseCase;

constexpr int64_t kRows = 72, kWidth = 40;

uint16_t to_bf16(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  return x != x ? 0x7fff : static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}
float from_bf16(uint16_t x) { return std::bit_cast<float>(static_cast<uint32_t>(x) << 16); }

// Values of one operand in its type.
struct Memory {
  Memory(DType dtype, std::vector<float> given) : dtype(dtype), values(std::move(given)), narrow(values.size()) {
    if (dtype == DType::kF32) return;
    for (size_t i = 0; i < values.size(); ++i) narrow[i] = to_bf16(values[i]), values[i] = from_bf16(narrow[i]);
  }
  void* data() { return dtype == DType::kF32 ? static_cast<void*>(values.data()) : narrow.data(); }
  DType dtype;
  std::vector<float> values;
  std::vector<uint16_t> narrow;
};

std::vector<float> drawn(int64_t count, std::mt19937& random) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float special[] = {0, -0.0f, 1, -1, kInfinity, -kInfinity, NAN, 1e-40f, 3e38f, -90, 90, 1e-8f};
  std::uniform_real_distribution<float> uniform(-4, 4);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& x : values) x = random() % 5 ? uniform(random) : special[random() % std::size(special)];
  return values;
}

int64_t elements_of(Broadcast kind) {
  switch (kind) {
    case Broadcast::kFull: return kRows * kWidth;
    case Broadcast::kSuffix: return kWidth;
    case Broadcast::kPrefix: return kRows;
    case Broadcast::kScalar: return 1;
    case Broadcast::kMiddle: break;  // is not generated
  }
  return 0;
}

int64_t place_of(Broadcast kind, int64_t i) {
  switch (kind) {
    case Broadcast::kFull: return i;
    case Broadcast::kSuffix: return i % kWidth;
    case Broadcast::kPrefix: return i / kWidth;
    case Broadcast::kScalar: return 0;
    case Broadcast::kMiddle: break;
  }
  return 0;
}

void check_case(const PointwiseCase& one, testing::PointwiseFunction kernel) {
  std::mt19937 random(11);
  std::vector<Memory> operands;
  operands.reserve(one.operands.size());
  PointwiseArguments arguments{};
  arguments.count = kRows * kWidth;
  for (size_t k = 0; k < one.operands.size(); ++k) {
    const auto [dtype, kind] = one.operands[k];
    operands.emplace_back(dtype, drawn(elements_of(kind), random));
    arguments.in[k] = operands.back().data();
    arguments.size[k] = kind == Broadcast::kPrefix ? kWidth : elements_of(kind);
  }
  Memory result(one.result, std::vector<float>(kRows * kWidth, -77));
  arguments.out = result.data();
  const int64_t per_block = kPointwiseThreads * one.step;
  emulation::run(static_cast<unsigned>((arguments.count + per_block - 1) / per_block), kPointwiseThreads, 0,
      [&] { kernel(arguments); });
  for (int64_t i = 0; i < arguments.count; ++i) {
    float inputs[kMaxOperands];
    for (size_t k = 0; k < operands.size(); ++k)
      inputs[k] = operands[k].values[static_cast<size_t>(place_of(one.operands[k].kind, i))];
    float expected = evaluate_scalar(one.expression, inputs);
    const auto at = static_cast<size_t>(i);
    const float got = one.result == DType::kF32 ? result.values[at] : from_bf16(result.narrow[at]);
    if (one.result == DType::kBF16) expected = from_bf16(to_bf16(expected));
    // Rounding to bf16, a processor flushes what is below the smallest normal number, and a GPU keeps it.
    if (one.name.ends_with("to_bf16") && std::fpclassify(got) == FP_SUBNORMAL && expected == 0) continue;
    if (std::isnan(expected)) ASSERT_TRUE(std::isnan(got)) << i;
    else
      ASSERT_EQ(std::bit_cast<uint32_t>(got), std::bit_cast<uint32_t>(expected)) << got << " " << expected << " " << i;
  }
}

TEST(GeneratedPointwise, ValuesOfEveryFunctionAndOperand) {
  const std::vector<PointwiseCase> cases = pointwise_cases();
  const auto kernels = testing::generated_pointwise();
  ASSERT_EQ(cases.size(), kernels.size());
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(cases[i].name);
    check_case(cases[i], kernels[i]);
  }
}

TEST(GeneratedPointwise, CompilesForAGpu) {
  if (!has_nvrtc()) GTEST_SKIP() << "no NVRTC here";
  std::string source = pointwise_prelude() + pointwise_arguments_text();
  for (const PointwiseCase& one : pointwise_cases()) source += pointwise_kernel(one.source(), one.name);
  std::string log;
  EXPECT_GT(compile_cuda_uncached(source, 90, &log).size(), 1000u);
  EXPECT_EQ(log, "");
}

TEST(GeneratedPointwise, MachineCodeIsKeptOnDisk) {
  if (!has_nvrtc()) GTEST_SKIP() << "no NVRTC here";
  const testing::TemporaryFolder folder;
  setenv("LINNET_CACHE", folder.path().c_str(), 1);
  const std::string source = "extern \"C\" __global__ void nothing() {}\n";
  const std::string cubin = compile_cuda(source, 90);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
  EXPECT_EQ(compile_cuda(source, 90), cubin);
  EXPECT_NE(compile_cuda(source, 80), cubin);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 2);
  EXPECT_THROW(compile_cuda("extern \"C\" __global__ void wrong() { no such thing }", 90), Error);
  unsetenv("LINNET_CACHE");
}

// What a source says of its arguments and what the host passes.
TEST(GeneratedPointwise, ArgumentsAreLaidOutAsTheirTextSays) {
  EXPECT_NE(
      pointwise_arguments_text().find("long long count;\n  const void* in[16];\n  long long size[16];\n  void* out;"),
      std::string::npos);
  EXPECT_EQ(sizeof(PointwiseArguments), 34u * 8);
  EXPECT_EQ(offsetof(PointwiseArguments, size), 17u * 8);
  EXPECT_EQ(std::size(PointwiseArguments{}.in), static_cast<size_t>(kMaxOperands));
}
}  // namespace
}  // namespace linnet
