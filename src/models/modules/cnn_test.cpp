#include <gtest/gtest.h>
#include <algorithm>
#include <cmath>
#include "base/error.h"
#include "engine/exec/interpreter.h"
#include "models/modules/image_model.h"
#include "models/nn/parameter_layout.h"
#include "training/trainer/learner.h"
#include "training/trainer/step_graphs.h"

namespace linnet {
namespace {
constexpr int64_t kBatch = 16, kSize = 8;

// Class 0 is bright on the left, class 1 on the right, under noise.
struct Halves {
  std::vector<uint8_t> images;
  std::vector<int32_t> labels;
  Halves() {
    for (int32_t n = 0; n < kBatch; ++n) {
      labels.push_back(n % 2);
      for (int32_t i = 0; i < kSize * kSize; ++i)
        images.push_back(
            static_cast<uint8_t>((i % kSize < kSize / 2) == (n % 2 == 0) ? 150 + i * (n + 1) % 90 : i * 7 % 60));
    }
  }
};

CnnConfig small() {
  return {.height = kSize, .width = kSize, .filters = 4, .classes = 2, .mean = {0.4}, .deviation = {0.3}};
}

TEST(Cnn, TheMnistModelHasTheParametersItShould) {
  const Cnn model({});
  EXPECT_EQ(model.parameter_count(), 31530);
  std::vector<std::string> names;
  for (const ParameterSpec& spec : model.parameters()) names.push_back(spec.name + spec.shape.text());
  EXPECT_EQ(names, (std::vector<std::string>{
                       "conv.weight[16, 3, 3, 1]", "conv.bias[16]", "head.weight[10, 3136]", "head.bias[10]"}));
}

TEST(Cnn, LearnsWhichHalfIsBright) {
  Cnn model(small());
  SingleShapeLearner learner(model, [&](Trace& trace) { return image_loss(model, trace, kBatch); });
  const Halves data;
  learner.set<uint8_t>("images", data.images);
  learner.set<int32_t>("labels", data.labels);
  for (int step = 0; step < 50; ++step) learner.step(0.01);
  EXPECT_LT(learner.evaluate(), 0.05);
}

TEST(Cnn, RowsWithoutALabelChangeNothing) {
  Cnn model(small());
  const Halves data;
  std::vector<float> weights[2];
  for (const uint8_t rubbish : {0, 200}) {
    SingleShapeLearner learner(model, [&](Trace& trace) { return image_loss(model, trace, kBatch); });
    Halves padded = data;
    for (int64_t row = kBatch - 3; row < kBatch; ++row) {
      padded.labels[static_cast<size_t>(row)] = -1;
      std::fill_n(padded.images.begin() + row * kSize * kSize, kSize * kSize, rubbish);
    }
    learner.set<uint8_t>("images", padded.images);
    learner.set<int32_t>("labels", padded.labels);
    EXPECT_EQ(learner.step(0.01).tokens, kBatch - 3);
    const auto trained = learner.parameter("conv.weight");
    weights[rubbish != 0].assign(trained.begin(), trained.end());
  }
  EXPECT_EQ(weights[0], weights[1]);
}

// Each row's loss is that of its two labels by their shares, with the smoothing of both; a row without a label has
// none. The gradient towards the last bias is the sum of probabilities less targets.
TEST(Cnn, AMixedImageHasTheLossOfBothLabels) {
  constexpr double kSmoothing = 0.1;
  constexpr int64_t kClasses = 3, kRows = 14;
  CnnConfig config = small();
  config.classes = kClasses;
  Cnn model(config);
  const ParameterLayout layout(model);
  std::vector<float> parameters(static_cast<size_t>(layout.parameter_count()));
  for (size_t i = 0; i < parameters.size(); ++i) parameters[i] = 0.02f * static_cast<float>(i * 37 % 23) - 0.2f;
  const auto label = [](size_t row) { return row < kRows ? static_cast<int32_t>(row % 3) : -1; };
  const auto other = [](size_t row) { return row < kRows ? static_cast<int32_t>(row / 2 % 3) : -1; };
  const auto share = [](size_t row) { return static_cast<float>(row % 5) / 4; };
  const auto run = [&](const Graph& graph) {
    const Halves data;
    NamedTensors inputs;
    for (const GraphInput& input : graph.inputs()) {
      HostTensor tensor(graph.value(input.value).type);
      if (input.name == "parameters") std::ranges::copy(parameters, tensor.as<float>().begin());
      if (input.name == "images") std::ranges::copy(data.images, tensor.as<uint8_t>().begin());
      for (size_t row = 0; row < kBatch; ++row) {
        if (input.name == "labels") tensor.as<int32_t>()[row] = label(row);
        if (input.name == "other_labels") tensor.as<int32_t>()[row] = other(row);
        if (input.name == "shares") tensor.as<float>()[row] = share(row);
      }
      inputs[input.name] = std::move(tensor);
    }
    return interpret(graph, inputs);
  };
  const LossFunction loss = [&](Trace& trace) { return image_loss(model, trace, kBatch, kSmoothing, true); };
  const std::vector<double> logits = run(evaluate_graph(layout, loss, "parameters")).outputs.at("logits").values();
  double expected = 0, slopes[kClasses] = {};
  for (size_t row = 0; row < kRows; ++row) {
    const double* x = logits.data() + row * kClasses;
    double total = 0, mean = 0;
    for (int64_t c = 0; c < kClasses; ++c) total += std::exp(x[c]), mean += x[c] / kClasses;
    for (const auto& [target, part] : {std::pair{label(row), share(row)}, {other(row), 1 - share(row)}}) {
      expected += part * (std::log(total) - (1 - kSmoothing) * x[target] - kSmoothing * mean);
      slopes[target] -= part * (1 - kSmoothing);
    }
    for (int64_t c = 0; c < kClasses; ++c) slopes[c] += std::exp(x[c]) / total - kSmoothing / kClasses;
  }
  const InterpreterResult trained = run(accumulate_graph(layout, loss, {}));
  EXPECT_NEAR(trained.states.at("loss_sum")[0], expected, 1e-4);
  EXPECT_EQ(trained.states.at("token_count")[0], kRows);
  const ParameterSlot& bias = layout.parameters().back();
  ASSERT_EQ(bias.spec.name, "head.bias");
  for (int64_t c = 0; c < kClasses; ++c)
    EXPECT_NEAR(trained.states.at("gradient")[bias.offset + c], slopes[c], 1e-4) << c;
}

TEST(Cnn, PredictionsAreAnOutputOfEvaluationOnly) {
  Cnn model(small());
  for (const bool training : {true, false}) {
    Trace trace({.training = training});
    image_loss(model, trace, kBatch);
    const auto& outputs = trace.graph().outputs();
    ASSERT_EQ(outputs.size(), training ? 0u : 2u);
    if (training) continue;
    EXPECT_EQ(trace.graph().value(outputs[0].value).type,
        (TensorType{DType::kF32, {kBatch, model.config.classes}}));  // the logits
    EXPECT_EQ(trace.graph().value(outputs[1].value).type, (TensorType{DType::kI32, {kBatch}}));
  }
}

TEST(Cnn, MeansMustFitTheChannels) {
  EXPECT_THROW(Cnn({.channels = 3, .mean = {0.5}}), Error);
  EXPECT_THROW(Cnn({.deviation = {0}}), Error);
}
}  // namespace
}  // namespace linnet
