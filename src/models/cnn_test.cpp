#include "models/cnn.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "train/learner.h"

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
  EXPECT_EQ(names, (std::vector<std::string>{"conv.weight[16, 3, 3, 1]", "conv.bias[16]", "head.weight[10, 3136]",
                                             "head.bias[10]"}));
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

TEST(Cnn, PredictionsAreAnOutputOfEvaluationOnly) {
  Cnn model(small());
  for (const bool training : {true, false}) {
    Trace trace({.training = training});
    image_loss(model, trace, kBatch);
    const auto& outputs = trace.graph().outputs();
    ASSERT_EQ(outputs.size(), training ? 0u : 2u);
    if (training) continue;
    EXPECT_EQ(trace.graph().value(outputs[0].value).type, (TensorType{DType::kI32, {kBatch}}));
    EXPECT_EQ(trace.graph().value(outputs[1].value).type,
              (TensorType{DType::kF32, {kBatch, model.config.classes}}));  // the logits
  }
}

TEST(Cnn, MeansMustFitTheChannels) {
  EXPECT_THROW(Cnn({.channels = 3, .mean = {0.5}}), Error);
  EXPECT_THROW(Cnn({.deviation = {0}}), Error);
}

}  // namespace
}  // namespace linnet
