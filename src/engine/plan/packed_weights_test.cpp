#include <gtest/gtest.h>
#include <span>
#include <vector>
#include "engine/exec/executor.h"
#include "engine/ops/embedding/embedding.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/passes/passes.h"
#include "engine/plan/plan.h"
#include "models/nn/forward.h"
#include "models/nn/layers.h"
#include "models/nn/model_store.h"
#include "models/nn/module.h"

namespace linnet {
namespace {
// Two linear layers whose weights become panels, of which one is stored [in, out]; a head that shares its weight with
// the embedding; a layer of 3 outputs; and one that reads a row of each text, which are few.
struct Network : Module {
  Parameter words{this, "words", {96, 64}, normal_init(1)};
  Linear first{this, "first", 64, 128};
  Parameter second{this, "second", {128, 64}, normal_init(0.1)};
  Linear small{this, "small", 64, 3}, few{this, "few", 64, 64};

  void trace(Trace& trace, int64_t rows, int64_t length) {
    const Tensor ids = trace.input("ids", {DType::kI32, {rows, length}});
    const Tensor x = embedding(Tensor(words), ids);
    const Tensor y = matmul(relu(first(x)), second) + x;
    trace.graph().output("y", y);
    trace.graph().output("classes", small(y));
    trace.graph().output("few", few(trace.input("pooled", {DType::kF32, {rows, 64}})));
    trace.graph().output("scores", matmul(y, words, false, true));
  }
};

struct Results {
  std::vector<float> values;
  size_t memory;
};

Results computed(bool pack_weights, const WeightQuantization& quantization, int threads, int loads = 1) {
  Network network;
  std::vector<Forward::Function> functions;
  for (const int64_t rows : {2, 5})
    functions.emplace_back([&network, rows](Trace& trace) { network.trace(trace, rows, 8); });
  Forward forward(network, functions, {.threads = threads, .quantization = quantization, .pack_weights = pack_weights});
  for (int i = 0; i < loads; ++i)
    forward.load([&](const ParameterTarget& to) {
      for (const ParameterSlot& slot : forward.layout().parameters()) initialize(slot.spec, 5, to.flat + slot.offset);
    });
  std::vector<int32_t> ids(40);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i * 37 % 96);
  forward.set("ids", ids);
  forward.set("pooled", std::vector<float>(5 * 64, 0.25f));
  Results results{.values = {}, .memory = forward.memory_bytes()};
  for (const size_t function : {0, 1})
    for (const char* output : {"y", "classes", "few", "scores"}) {
      const auto values = forward.run(function).output(output);
      results.values.insert(results.values.end(), values.begin(), values.end());
    }
  return results;
}

TEST(PackedWeights, BitsAndMemoryAreThoseOfWeightsPackedInEveryRun) {
  for (const char* word : {"none", "bf16"}) {
    const WeightQuantization quantization = parse_quantization(word);
    const Results plain = computed(false, quantization, 1);
    for (const int threads : {1, 3}) {
      const Results packed = computed(true, quantization, threads);
      EXPECT_EQ(packed.values, plain.values);
      if (threads == 1) {
        EXPECT_EQ(packed.memory, plain.memory);
      }
    }
    EXPECT_EQ(computed(true, quantization, 2, /*loads=*/2).values, plain.values);
  }
}

// How many weights are packed for texts of these lengths.
size_t packed(const std::vector<int64_t>& lengths, bool with_output = false) {
  Network network;
  const ParameterLayout layout(network);
  Store store;
  const SharedRegions shared = declare_model(store, layout);
  std::vector<Plan> plans;
  for (const int64_t length : lengths) {
    Trace trace({.layout = &layout});
    network.trace(trace, 2, length);
    if (with_output) trace.graph().output("second", Tensor(network.second));
    Graph graph = optimize(trace.finish());
    constexpr size_t kInput = 1 << 12;
    for (const GraphInput& input : graph.inputs())
      if (!store.has(input.name))
        store.bind(input.name, {store.add_region(input.name, MemoryKind::kBatch, kInput), 0}, kInput);
    plans.push_back(make_plan(std::move(graph), store, shared, {}));
  }
  std::vector<Plan*> all;
  for (Plan& plan : plans) all.push_back(&plan);
  return PackedWeights(all, store).size();
}

TEST(PackedWeights, OnlyWeightsOfProductsWithManyRowsAndNothingElse) {
  EXPECT_EQ(packed({8}), 2U) << "first and second";
  EXPECT_EQ(packed({8, 16}), 2U);
  EXPECT_EQ(packed({8, 4}), 0U) << "8 rows are few: of either plan";
  EXPECT_EQ(packed({8}, /*with_output=*/true), 1U) << "whoever reads the output wants the weight as it is";
}
}  // namespace
}  // namespace linnet
