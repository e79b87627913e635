#include "models/nn/weight_quantization.h"
#include <gtest/gtest.h>
#include <cmath>
#include <set>
#include "base/error.h"
#include "models/nn/forward.h"
#include "models/nn/layers.h"
#include "models/nn/model_store.h"

namespace linnet {
namespace {
struct Net : Module {
  Net() : words{this, "words", 100, 64, normal_init(1)}, fc{this, "fc", 64, 48}, small{this, "small", 48, 3} {}
  Tensor operator()(Tensor ids) { return small(fc(words(ids))); }
  Embedding words;
  Linear fc, small;
};

std::set<std::string> quantized_names(const ParameterLayout& layout) {
  std::set<std::string> names;
  for (const QuantizedSlot& slot : layout.quantized()) names.insert(slot.slot.spec.name);
  return names;
}

TEST(WeightQuantization, ChoosesLargeMatricesAndKeepsWhatIsNamed) {
  Net net;
  using Names = std::set<std::string>;
  EXPECT_EQ(quantized_names(ParameterLayout(net)), Names());
  EXPECT_EQ(
      quantized_names(ParameterLayout(net, {}, parse_quantization("int8"))), (Names{"fc.weight", "words.weight"}));
  EXPECT_EQ(quantized_names(ParameterLayout(net, {}, parse_quantization("int8", {"words.*"}))), Names{"fc.weight"});
  const ParameterLayout mixed(net, {}, parse_quantization("int4-weights"));
  for (const QuantizedSlot& slot : mixed.quantized())
    EXPECT_EQ(slot.shape.format, slot.slot.spec.table ? WeightFormat::kInt8Blocks : WeightFormat::kInt4Blocks);
  EXPECT_THROW(parse_quantization("int3"), Error);
  EXPECT_THROW(ParameterLayout(net, {}, parse_quantization("int8", {"word.*"})), Error);
}

// Filters are rows of int8; the block formats leave them, as do windows that are not square.
TEST(WeightQuantization, ChoosesFiltersInInt8) {
  const auto choose = [](const std::string& word, const Shape& shape) {
    const ParameterSpec spec{"conv.weight", shape, constant_init(0), true};
    return parse_quantization(word).choose(spec);
  };
  EXPECT_EQ(choose("int8", {16, 3, 3, 8}), (PackedShape{WeightFormat::kInt8, 16, 72}));
  EXPECT_EQ(choose("int8", {64, 1, 1, 32}), (PackedShape{WeightFormat::kInt8, 64, 32}));
  EXPECT_FALSE(choose("int8", {16, 3, 3, 3})) << "27 numbers a window";
  EXPECT_FALSE(choose("int8", {8, 3, 3, 8})) << "8 filters";
  EXPECT_FALSE(choose("int8", {64, 32, 3, 3})) << "the order of ONNX";
  EXPECT_FALSE(choose("int8-weights", {16, 3, 3, 8}));
  EXPECT_FALSE(choose("int8", {64}));
}

// The flat buffer of graphs ends before the quantized parameters; loading has all of them.
TEST(WeightQuantization, ThePackedWeightsTakeTheirPlace) {
  Net net;
  const ParameterLayout whole(net), layout(net, {}, parse_quantization("int8"));
  EXPECT_EQ(layout.parameter_count(), whole.parameter_count());
  EXPECT_EQ(layout.stored_count(), 48 + 3 * 48 + 3);
  EXPECT_EQ(layout.parameters().size(), whole.parameters().size());
  EXPECT_TRUE(layout.buffers().empty());
  Store store;
  declare_model(store, layout);
  store.allocate();
  EXPECT_LT(store.total_bytes(), static_cast<size_t>(whole.parameter_count()) * 2);
}

TEST(WeightQuantization, AModelGivesNearlyTheSameInEveryFormat) {
  Net net;
  const auto function = [&](Trace& trace) {
    trace.graph().output("y", net(trace.input("ids", {DType::kI32, {2, 5}})));
  };
  const std::vector<int32_t> ids{1, 2, 3, 4, 5, 6, 7, 8, 99, 0};
  std::vector<float> exact;
  for (const std::string& word : quantization_words()) {
    Forward forward(net, {function}, ForwardOptions{.threads = 1, .quantization = parse_quantization(word)});
    forward.load([&](const ParameterTarget& parameters) {
      ThreadPool pool(1);
      for (const ParameterSlot& slot : forward.layout().parameters())  // by name: the order differs
        initialize(slot.spec, 1, parameters.flat + slot.offset);
    });
    forward.set("ids", ids);
    const auto y = forward.run().output("y");
    if (exact.empty()) exact.assign(y.begin(), y.end());
    double error = 0, size = 0;
    for (size_t i = 0; i < exact.size(); ++i) error += std::pow(y[i] - exact[i], 2), size += std::pow(exact[i], 2);
    const double distance = std::sqrt(error / size);
    EXPECT_LT(distance, word == "int4-weights" ? 0.2 : word == "none" ? 1e-9 : 0.03) << word;
    EXPECT_EQ(distance == 0, word == "none");
  }
}
}  // namespace
}  // namespace linnet
