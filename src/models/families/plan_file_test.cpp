// The decoding graphs of every golden model run from a file in another process; their training and evaluation graphs
// are checked where their losses are (PretrainedGolden::check_loss_and_gradients).
#include "engine/plan/plan_file.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/hash.h"
#include "generation/causal_generator.h"
#include "generation/source_generator.h"
#include "engine/ir/op.h"
#include "models/modules/causal_model.h"
#include "models/nn/model_store.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/pointwise/pointwise.h"
#include "plan_file_check.h"
#include "models/families/golden_testing.h"

namespace linnet {
namespace {

NamedPlans numbered(const std::vector<const Plan*>& list) {
  NamedPlans plans;
  for (size_t i = 0; i < list.size(); ++i) plans["plan." + std::to_string(i)] = list[i];
  return plans;
}

class DecodingPlans : public ::testing::TestWithParam<const char*> {};

TEST_P(DecodingPlans, RunFromAFileToTheSameBits) {
  PretrainedGolden golden(GetParam());
  Store store;
  const SharedRegions shared = declare_model(store, golden.layout);
  std::optional<CausalGenerator> causal;
  std::optional<SourceGenerator> translator;
  if (auto* model = dynamic_cast<CausalModel*>(golden.model.module.get()))
    causal.emplace(*model, golden.layout, store, shared, CausalOptions{.rows = 2, .max_length = 8, .threads = 2});
  else
    translator.emplace(golden.model.as<EncoderDecoder>(), golden.layout, store, shared,
                       SourceOptions{.rows = 2, .beams = 2, .max_length = 6, .source_lengths = {4}, .threads = 2},
                       SearchSettings{});
  store.allocate();
  ThreadPool pool(2);
  golden.layout.initialize_constants(store.as<float>("constants"), pool);
  std::copy(golden.parameters.begin(), golden.parameters.end(), store.as<float>("parameters"));
  if (translator)  // each beam goes on from itself
    for (int32_t row = 0; row < 4; ++row) store.as<int32_t>("generate.parents")[row] = row;
  testing::check_plan_file(numbered(causal ? causal->plans() : translator->plans()), store, shared);
}

INSTANTIATE_TEST_SUITE_P(Golden, DecodingPlans,
                         ::testing::Values("gpt2", "gpt2_options", "llama", "llama_biases", "llama_scaled",
                                           "llama_tied", "mistral", "qwen2", "t5", "t5_gated", "t5_unscaled", "marian",
                                           "marian_two_vocabularies"),
                         [](const auto& info) { return info.param; });

// A plan of two nodes as bytes.
std::string small_file() {
  Graph graph;
  const Tensor x = graph.input("x", {DType::kF32, {3, 4}}), w = graph.input("w", {DType::kF32, {5, 4}});
  graph.output("y", relu(matmul(x, w, false, true)) * 1e-12);
  Store store;
  store.bind("x", {store.add_region("x", MemoryKind::kBatch, 48), 0}, 48);
  store.bind("w", {store.add_region("w", MemoryKind::kParameters, 80), 0}, 80);
  const SharedRegions shared{store.add_region("arena", MemoryKind::kActivations, 0),
                             store.add_region("workspace", MemoryKind::kWorkspace, 0)};
  const Plan plan = make_plan(std::move(graph), store, shared, {});
  return plans_to_bytes(store, shared, {{"net", &plan}});
}

TEST(PlanFile, ReadAndWrittenAgainItIsTheSame) {
  const std::string bytes = small_file();
  Store store;
  const LoadedPlans loaded = parse_plans(bytes, store, "a file");
  EXPECT_EQ(plans_to_bytes(store, loaded.shared, {{"net", &loaded.plans.at("net")}}), bytes);
  const std::string text = dump(loaded.plans.at("net").graph);
  EXPECT_NE(text.find("constant 1e-12"), std::string::npos) << text;
  EXPECT_NE(text.find("plan_file_test.cpp:"), std::string::npos) << text;
}

TEST(PlanFile, DamageIsOneLine) {
  const std::string bytes = small_file();
  for (size_t at = 0; at < bytes.size(); ++at) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x20);
    for (const std::string& text : {damaged, bytes.substr(0, at)}) {
      Store store;
      try {
        parse_plans(text, store, "a file");
        FAIL() << "byte " << at;
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::kUser) << error.what();
        EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
      }
    }
  }
}

// Behind the checksum, too, a file of nonsense is refused in one line or read as what it says.
TEST(PlanFile, DamageBehindTheChecksumIsNoCrash) {
  const std::string bytes = small_file();
  constexpr size_t kHash = 8, kContents = 20;  // after "LINNETPL" stand the checksum and the version
  for (size_t at = kContents; at < bytes.size(); ++at)
    for (const char flip : {'\x01', '\x20', '\x7f', '\xff'}) {
      std::string damaged = bytes;
      damaged[at] = static_cast<char>(damaged[at] ^ flip);
      const uint64_t hash = fnv1a(std::string_view(damaged).substr(kContents));
      std::memcpy(damaged.data() + kHash, &hash, sizeof hash);
      Store store;
      try {
        parse_plans(damaged, store, "a file");
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::kUser) << "byte " << at << ": " << error.what();
      }
    }
}

}  // namespace
}  // namespace linnet
