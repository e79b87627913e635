#include "engine/ops/attention/attention.h"
#include <gtest/gtest.h>
#include <cmath>
#include "engine/kernels/gemm/gemm.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/passes/passes.h"
#include "op_harness.h"

namespace linnet {
namespace {
using testing::check_op;
using testing::OpCase;

// On the CPU. On a GPU a library computes it in bf16, for shapes of its choice.
double bf16_tolerance() { return testing::tested_backend() ? 0 : 3e-2; }

OpCase attention_case(int64_t batch, int64_t queries, int64_t keys, int64_t heads, int64_t kv_heads, int64_t size,
    bool causal, bool lengths, float dropout) {
  OpCase op{
      .inputs = {{{batch, queries, heads * size}}, {{batch, keys, kv_heads * size}}, {{batch, keys, kv_heads * size}}}};
  op.bf16_tolerance = bf16_tolerance();
  op.inputs.push_back({.shape = {batch}, .integer = true, .low = 1, .high = static_cast<int32_t>(keys) + 1});
  op.inputs.push_back({.shape = {4}, .integer = true, .low = 0, .high = 1000});
  op.build = [=](Graph&, const auto& x) {
    AttentionOptions options{
        .heads = heads, .kv_heads = kv_heads, .causal = causal, .dropout = dropout, .dropout_site = 99};
    if (lengths) options.lengths = x[3];
    options.random = x[4];
    return std::vector{attention(x[0], x[1], x[2], options)};
  };
  return op;
}

TEST(Attention, SelfCausalCrossAndPadded) {
  for (bool causal : {false, true})
    for (bool lengths : {false, true})
      for (const auto& [queries, keys] : {std::pair<int64_t, int64_t>{7, 7}, {1, 5}, {3, 20}})
        check_op(attention_case(2, queries, keys, 2, 2, 8, causal, lengths, 0));
}

TEST(Attention, HeadsOfManySizesAndSharedKeys) {
  for (int64_t size : {1, 3, 16, 40}) check_op(attention_case(2, 6, 6, 2, 2, size, true, true, 0));
  check_op(attention_case(2, 5, 9, 4, 2, 8, false, true, 0));
  check_op(attention_case(1, 5, 5, 3, 1, 8, true, false, 0));
}

TEST(Attention, PackedDocumentsWindowsAndBiasByDistance) {
  for (const auto& [queries, keys] : {std::pair<int64_t, int64_t>{7, 7}, {1, 5}, {20, 31}})
    for (const int kind : {0, 1, 2, 3}) {
      const bool causal = kind < 3;
      OpCase op = attention_case(2, queries, keys, 2, kind == 1 ? 1 : 2, 8, causal, kind == 2, kind == 2 ? 0.3f : 0);
      op.inputs.push_back({.shape = {2, queries}, .integer = true, .low = 0, .high = 4});
      op.inputs.push_back({.shape = {2, queries + keys - 1}, .full = true});
      op.build = [=, kv_heads = kind == 1 ? 1 : 2](Graph&, const auto& x) {
        AttentionOptions options{.heads = 2, .kv_heads = kv_heads, .causal = causal};
        if (kind == 2) options.lengths = x[3], options.random = x[4], options.dropout = 0.3f;
        if (kind < 2) options.starts = x[5];
        if (kind == 1) options.window = 3;
        if (kind > 0) options.distance_bias = x[6];
        return std::vector{attention(x[0], x[1], x[2], options)};
      };
      check_op(op);
    }
}

// As a step of decoding has it, and with so many queries that another kernel computes it.
TEST(Attention, EachSampleMayHaveABiasOfItsOwn) {
  for (const auto& [queries, keys] : {std::pair<int64_t, int64_t>{1, 9}, {3, 5}, {20, 31}}) {
    OpCase op = attention_case(3, queries, keys, 2, 2, 8, false, true, 0);
    op.inputs.push_back({.shape = {3, 2, queries + keys - 1}, .full = true});
    op.build = [](Graph&, const auto& x) {
      return std::vector{attention(x[0], x[1], x[2], {.heads = 2, .lengths = x[3], .distance_bias = x[5]})};
    };
    op.differentiate = false;
    check_op(op);
  }
}

TEST(Attention, DropoutOfProbabilitiesIsTheSameInEveryForm) {
  check_op(attention_case(3, 19, 23, 2, 2, 8, false, true, 0.3f));
}

// A fused projection: the parts are read, and their gradients written, in place.
TEST(Attention, PartsOfOneProjection) {
  check_op({.inputs = {{{2, 9, 3 * 16}}, {.shape = {2}, .integer = true, .low = 1, .high = 10}},
      .build = [](Graph&, const auto& x) {
        const auto qkv = split_evenly(x[0] * 1.5, -1, 3);
        return std::vector{attention(qkv[0], qkv[1], qkv[2], {.heads = 2, .causal = true, .lengths = x[1]})};
      }});
}

struct Products {
  Graph graph;
  NamedTensors inputs;

  explicit Products(float dropout) {
    const Tensor q = graph.input("q", {DType::kF32, {2, 40, 64}}), k = graph.input("k", {DType::kF32, {2, 50, 64}}),
                 v = graph.input("v", {DType::kF32, {2, 50, 64}});
    AttentionOptions options{.heads = 2, .causal = true, .dropout = dropout};
    options.lengths = graph.input("n", {DType::kI32, {2}});
    options.random = graph.input("r", {DType::kI32, {4}});
    const Tensor o = attention(q, k, v, options), loss = sum_to(o * o * 0.5, {});
    const std::vector<Tensor> gradient = gradients(loss, std::array{q, k, v});
    graph.output("o", o);
    for (size_t i = 0; i < 3; ++i) graph.output(std::array{"dq", "dk", "dv"}[i], gradient[i]);
    for (const char* name : {"q", "k", "v"}) {
      inputs[name] = HostTensor({DType::kF32, {2, name[0] == 'q' ? 40 : 50, 64}});
      float i = static_cast<float>(name[0]);
      for (float& x : inputs[name].as<float>()) x = std::sin(1.7f * i * i), i += 1;
    }
    const std::vector<int32_t> lengths{50, 33}, random{1, 2, 3, 4};
    inputs["n"] = HostTensor({DType::kI32, {2}}, std::span<const int32_t>(lengths));
    inputs["r"] = HostTensor({DType::kI32, {4}}, std::span<const int32_t>(random));
  }
};

// The reference does not round; the kernel does, where the processor has bf16.
TEST(Attention, ProductsInBf16AreCloseToTheExactOnes) {
  for (float dropout : {0.0f, 0.2f}) {
    const Products products(dropout);
    const Graph lowered = lower_precision(products.graph, Precision::kBf16, Precision::kBf16);
    const auto exact = interpret(products.graph, products.inputs).outputs;
    const auto fast = interpret(lowered, products.inputs, {.kernels = KernelSet::kFast}).outputs;
    for (const auto& [name, tensor] : exact) {
      EXPECT_LE(testing::distance(fast.at(name), tensor), 1e-2) << name;
#ifdef __x86_64__  // elsewhere attention multiplies in fp32
      if (gemm_has_bf16()) {
        EXPECT_GT(testing::distance(fast.at(name), tensor), 1e-4) << name;  // it did round
      }
#endif
    }
  }
}

TEST(Attention, ADeviceIsAsPreciseAsItWasAskedToBe) {
  if (!testing::tested_backend()) GTEST_SKIP() << "on a device";
  for (const auto& [precision, least, most] :
      {std::tuple{Precision::kF32, 0.0, 2e-6}, std::tuple{Precision::kTf32, 1e-5, 1e-3}}) {
    const Products products(0.2f);
    PlannedGraph planned(products.graph, 1, *testing::tested_backend(), {.precision = precision});
    const auto got = planned.run(products.inputs);
    for (const auto& [name, tensor] : interpret(products.graph, products.inputs).outputs) {
      EXPECT_LE(testing::distance(got.at(name), tensor), most) << name;
      EXPECT_GE(testing::distance(got.at(name), tensor), least) << name;
    }
  }
}

// Values that are all one make the output the sum of the probabilities.
TEST(Attention, RowsOfProbabilitiesSumToOneUnderEveryMask) {
  for (bool causal : {false, true})
    for (bool with_lengths : {false, true}) {
      Graph graph;
      const Tensor q = graph.input("q", {DType::kF32, {2, 6, 8}}), k = graph.input("k", {DType::kF32, {2, 6, 8}});
      AttentionOptions options{.heads = 2, .causal = causal};
      if (with_lengths) options.lengths = graph.input("n", {DType::kI32, {2}});
      graph.output("o", attention(q, k, fill(graph, {DType::kF32, {2, 6, 8}}, 1), options));
      NamedTensors inputs;
      for (const char* name : {"q", "k"}) {
        inputs[name] = HostTensor({DType::kF32, {2, 6, 8}});
        int i = 0;
        for (float& v : inputs[name].as<float>()) v = static_cast<float>((i++ * 37 + name[0]) % 23) - 11;
      }
      const std::vector<int32_t> lengths{1, 4};
      inputs["n"] = HostTensor({DType::kI32, {2}}, std::span<const int32_t>(lengths));
      for (KernelSet kernels : {KernelSet::kFast, KernelSet::kReference})
        for (double value : interpret(graph, inputs, {.kernels = kernels}).outputs.at("o").values())
          EXPECT_NEAR(value, 1, 1e-6);
    }
}
}  // namespace
}  // namespace linnet
