#include "models/modules/llama.h"

#include <gtest/gtest.h>

#include "engine/exec/interpreter.h"

namespace linnet {
namespace {

using Ids = std::vector<int32_t>;

LlamaConfig small() {
  LlamaConfig config{.vocab_size = 30, .max_seq_len = 16, .width = 16, .heads = 4, .layers = 2, .hidden = 24};
  config.kv_heads = 2, config.deviation = 0.3;
  return config;
}

// Hidden states [T, D] of one row; positions and starts may be empty.
std::vector<double> states(Llama& model, const Ids& tokens, const Ids& positions, const Ids& starts) {
  Trace trace({.dtype = DType::kF64});
  const TensorType type{DType::kI32, {1, static_cast<int64_t>(tokens.size())}};
  NamedTensors inputs;
  const auto put = [&](const char* name, const Ids& values) {
    if (values.empty()) return Tensor{};
    inputs[name] = HostTensor(type, std::span<const int32_t>(values));
    return trace.input(name, type);
  };
  const TokenRows rows{put("tokens", tokens), put("positions", positions), put("starts", starts)};
  trace.graph().output("hidden", model.hidden(rows));
  for (const ParameterSpec& spec : model.parameters()) {
    std::vector<float> values(static_cast<size_t>(spec.shape.elements()));
    initialize(spec.initializer, spec.name, 1, spec.shape, values);
    const std::vector<double> wide(values.begin(), values.end());
    inputs[spec.name] = HostTensor({DType::kF64, spec.shape}, std::span<const double>(wide));
  }
  return interpret(trace.finish(), inputs).outputs.at("hidden").values();
}

// Documents packed into a row give what they give alone.
TEST(Llama, PackedDocumentsDoNotSeeEachOther) {
  Llama model(small());
  const Ids first{3, 1, 4, 1, 5}, second{9, 2, 6};
  std::vector<double> want = states(model, first, {}, {});
  const std::vector<double> rest = states(model, second, {}, {});
  want.insert(want.end(), rest.begin(), rest.end());
  const auto got = states(model, {3, 1, 4, 1, 5, 9, 2, 6}, {0, 1, 2, 3, 4, 0, 1, 2}, {0, 0, 0, 0, 0, 5, 5, 5});
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-12);
}

TEST(Llama, HasTheParametersOfItsSizes) {
  LlamaConfig config{.vocab_size = 32000, .width = 2048, .heads = 32, .layers = 22, .hidden = 5632};
  config.kv_heads = 4;
  EXPECT_EQ(Llama(config).parameter_count(), 1100048384);  // TinyLlama
}

}  // namespace
}  // namespace linnet
