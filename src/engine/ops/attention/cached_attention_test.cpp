#include <gtest/gtest.h>
#include <algorithm>
#include <cmath>
#include "base/error.h"
#include "engine/ops/attention/attention.h"
#include "engine/ops/cache/cache.h"
#include "engine/ops/movement/movement.h"
#include "op_harness.h"

namespace linnet {
namespace {
using testing::distance;

constexpr int64_t kSlots = 3, kLength = 37, kHeads = 4, kKeyHeads = 2, kSize = 9;
constexpr int64_t kQuery = kHeads * kSize, kKey = kKeyHeads * kSize;

HostTensor random_tensor(const Shape& shape, float seed) {
  HostTensor tensor({DType::kF32, shape});
  for (float& x : tensor.as<float>()) x = std::sin(seed * seed), seed += 1.7f;
  return tensor;
}

HostTensor integers(const Shape& shape, const std::vector<int32_t>& values) {
  return HostTensor({DType::kI32, shape}, std::span<const int32_t>(values));
}

// Tokens of several rows of a cache: of one row some that follow each other, and one that is nothing.
struct Tokens {
  std::vector<int32_t> rows, lengths, starts;
  int64_t count() const { return static_cast<int64_t>(rows.size()); }
};
const Tokens kTokens{{1, 1, 1, 0, -1, 2}, {5, 6, 7, 37, 0, 1}, {0, 3, 6, 20, 0, 0}};

Graph graph_of(int64_t tokens, bool starts) {
  Graph graph;
  const Tensor cache = graph.input("cache", {DType::kF32, {kSlots, kLength, 2 * kKey}});
  const Tensor q = graph.input("q", {DType::kF32, {tokens, 1, kQuery}});
  const Tensor rows = graph.input("rows", {DType::kI32, {tokens}});
  const Tensor lengths = graph.input("lengths", {DType::kI32, {tokens}});
  const Tensor first = starts ? graph.input("starts", {DType::kI32, {tokens, 1}}) : Tensor{};
  const auto both = split_evenly(cache, -1, 2);
  graph.output(
      "o", cached_attention(q, both[0], both[1], rows, lengths, first, {.heads = kHeads, .kv_heads = kKeyHeads}));
  return graph;
}

NamedTensors inputs_of(const Tokens& tokens, const HostTensor& q, bool starts) {
  NamedTensors in;
  in["cache"] = random_tensor({kSlots, kLength, 2 * kKey}, 3);
  in["q"] = q;
  in["rows"] = integers({tokens.count()}, tokens.rows), in["lengths"] = integers({tokens.count()}, tokens.lengths);
  if (starts) in["starts"] = integers({tokens.count(), 1}, tokens.starts);
  return in;
}

// Each token is attention of one query to the row it names.
TEST(CachedAttention, ATokenAttendsToTheRowThatItNames) {
  for (const bool starts : {false, true}) {
    const HostTensor q = random_tensor({kTokens.count(), 1, kQuery}, 1);
    const NamedTensors in = inputs_of(kTokens, q, starts);
    const Graph graph = graph_of(kTokens.count(), starts);
    const HostTensor fast = interpret(graph, in, {.kernels = KernelSet::kFast}).outputs.at("o");
    const HostTensor exact = interpret(graph, in, {.kernels = KernelSet::kReference}).outputs.at("o");
    EXPECT_LT(distance(fast, exact), 1e-6);
    for (size_t i = 0; i < kTokens.rows.size(); ++i) {
      Graph one;
      const Tensor cache = one.input("cache", {DType::kF32, {kSlots, kLength, 2 * kKey}});
      const auto both = split_evenly(slice(cache, 0, std::max(kTokens.rows[i], 0), 1), -1, 2);
      AttentionOptions options{.heads = kHeads, .kv_heads = kKeyHeads};
      options.lengths = one.input("lengths", {DType::kI32, {1}});
      if (starts) options.starts = one.input("starts", {DType::kI32, {1, 1}});
      one.output("o", attention(one.input("q", {DType::kF32, {1, 1, kQuery}}), both[0], both[1], options));
      NamedTensors of_one{{"cache", in.at("cache")}, {"lengths", integers({1}, {kTokens.lengths[i]})}};
      if (starts) of_one["starts"] = integers({1, 1}, {kTokens.starts[i]});
      of_one["q"] = HostTensor({DType::kF32, {1, 1, kQuery}}, q.as<float>().subspan(i * kQuery, kQuery));
      const HostTensor want = interpret(one, of_one).outputs.at("o");
      for (size_t d = 0; d < kQuery; ++d) EXPECT_NEAR(fast[i * kQuery + d], want[d], 1e-6) << i;
    }
  }
}

// Many tokens are dealt to the threads in blocks.
TEST(CachedAttention, ATokenHasTheSameBitsWhateverTheOthersAre) {
  Tokens tokens;
  for (int32_t i = 0; i < 41; ++i) tokens.rows.push_back(i % 3), tokens.lengths.push_back(i % 38);
  const HostTensor q = random_tensor({tokens.count(), 1, kQuery}, 1);
  const HostTensor all =
      interpret(graph_of(tokens.count(), false), inputs_of(tokens, q, false), {.kernels = KernelSet::kFast})
          .outputs.at("o");
  for (size_t i = 0; i < tokens.rows.size(); ++i) {
    const HostTensor own({DType::kF32, {1, 1, kQuery}}, q.as<float>().subspan(i * kQuery, kQuery));
    const HostTensor alone = interpret(graph_of(1, false),
        inputs_of({{tokens.rows[i]}, {tokens.lengths[i]}, {}}, own, false), {.kernels = KernelSet::kFast})
                                 .outputs.at("o");
    for (size_t d = 0; d < kQuery; ++d) ASSERT_EQ(all[i * kQuery + d], alone[d]) << i;
  }
}

TEST(CachedAttention, ARowBeyondTheCacheIsAnError) {
  const HostTensor q = random_tensor({1, 1, kQuery}, 1);
  for (const KernelSet kernels : {KernelSet::kFast, KernelSet::kReference}) {
    EXPECT_THROW(interpret(graph_of(1, false), inputs_of({{kSlots}, {2}, {}}, q, false), {.kernels = kernels}), Error);
    EXPECT_THROW(interpret(graph_of(1, false), inputs_of({{-1}, {2}, {}}, q, false), {.kernels = kernels}), Error);
  }
}

TEST(CachePut, TokensGoToTheirRowsAndPositions) {
  Graph graph;
  graph.output(
      "y", cache_put(graph.input("cache", {DType::kF32, {kSlots, 4, 2}}), graph.input("rows", {DType::kF32, {4, 1, 2}}),
               graph.input("slots", {DType::kI32, {4}}), graph.input("positions", {DType::kI32, {4}})));
  NamedTensors in{{"cache", HostTensor({DType::kF32, {kSlots, 4, 2}})}, {"rows", random_tensor({4, 1, 2}, 1)}};
  in["slots"] = integers({4}, {2, 2, -1, 0}), in["positions"] = integers({4}, {1, 2, 9, 3});
  const HostTensor got = interpret(graph, in).outputs.at("y");
  std::vector<float> want(kSlots * 4 * 2);
  const auto rows = in["rows"].as<float>();
  for (size_t d = 0; d < 2; ++d)
    want[(2 * 4 + 1) * 2 + d] = rows[d], want[(2 * 4 + 2) * 2 + d] = rows[2 + d], want[3 * 2 + d] = rows[6 + d];
  for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(got[i], want[i]) << i;
  in["positions"] = integers({4}, {1, 4, 0, 3});
  EXPECT_THROW(interpret(graph, in), Error);
}
}  // namespace
}  // namespace linnet
