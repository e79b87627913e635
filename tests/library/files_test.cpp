// Models of other programs: ONNX files and model folders as parts of models, trained and written again.
#include <gtest/gtest.h>
#include <linnet/linnet.h>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include "temporary_folder.h"

namespace {
using namespace linnet;
using linnet::testing::TemporaryFolder;

std::vector<float> counted(size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i % 7) / 7 - 0.4f;
  return values;
}

TEST(Files, HalvesOfTheBytesAreReadAsTheyAreRounded) {
  struct Net : Module {
    Linear out{this, "out", 300, 20};
  } net;
  const auto loss = [&](Tracer& t) -> Loss {
    return {.sum = sum(net.out(t.input("x", {DType::kF32, {2, 300}}))), .count = t.number(2)};
  };
  Learner learner(net, loss), reader(net, loss, {.seed = 9});
  const TemporaryFolder folder;
  const std::string path = folder / "half.safetensors";
  const auto& whole = learner.parameter("out.weight");
  learner.save(path);
  const auto bytes = std::filesystem::file_size(path);
  for (const auto& [type, name, error] : {std::tuple{"fp16", "F16", 0x1p-11F}, {"bf16", "BF16", 0x1p-8F}}) {
    learner.save(path, type);
    EXPECT_LT(std::filesystem::file_size(path), bytes * 0.6);
    EXPECT_EQ(WeightFile(path).tensors().front().type, name);
    reader.load(path);
    const auto read = reader.parameter("out.weight");
    for (size_t i = 0; i < whole.size(); ++i)
      EXPECT_NEAR(read[i], whole[i], error * std::abs(whole[i]) + 1e-7F) << type;
  }
  EXPECT_THROW(learner.save(path, "int8"), Error);
}

// A convolutional network becomes a file, the file a part of another model, which is trained and becomes a file again.
TEST(Onnx, NetworksAreExportedImportedTrainedAndExportedAgain) {
  struct Net : Module {
    Conv2d conv{this, "conv", 2, 4, 3, {.padding = 1}};
    BatchNorm norm{this, "norm", 4};
    Linear out{this, "out", 4, 3};
    Tensor operator()(Tensor x) { return out(global_avg_pool(selu(norm(conv(x))))); }
  } net;
  const TensorType images{DType::kF32, {2, 6, 6, 2}};
  const TemporaryFolder folder;
  const std::string path = folder / "net.onnx";
  Learner learner(net, [&](Tracer& t) -> Loss {
    const Tensor y = net(t.input("images", images));
    t.output("y", y);
    return {.sum = sum(square(y)), .count = t.sample_count()};
  });
  learner.set("images", counted(144));
  learner.step(0.01);
  learner.evaluate();
  const std::vector<float> wanted(learner.output("y").begin(), learner.output("y").end());
  export_onnx(
      learner, {{"images", images}}, [&](Tracer& t) { t.output("y", net(t.input("images"))); }, path);

  struct Around : Module {
    explicit Around(const std::string& file) : body{this, "body", file} {}
    OnnxModule body;
    Linear head{this, "head", 3, 1};
  } around(path);
  EXPECT_EQ(around.body.inputs(), std::vector<std::string>{"images"});
  Learner second(around, [&](Tracer& t) -> Loss {
    const Tensor y = around.body(t.input("images", images));
    t.output("y", y);
    return {.sum = sum(square(around.head(y) - 1.0)), .count = t.sample_count()};
  });
  second.set("images", counted(144));
  const double before = second.evaluate();
  for (size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(second.output("y")[i], wanted[i], 1e-5);
  for (int step = 0; step < 50; ++step) second.step(0.01);
  EXPECT_LT(second.evaluate(), before / 10);
  const std::vector<float> trained(second.output("y").begin(), second.output("y").end());
  EXPECT_NE(trained, wanted);

  // Of another batch size than it was exported with.
  export_onnx(
      second, {{"images", images}}, [&](Tracer& t) { t.output("y", around.body(t.input("images"))); }, path);
  Around third(path);
  Learner reader(third,
      [&](Tracer& t) -> Loss {
        const Tensor y = third.body(t.input("images", {DType::kF32, {1, 6, 6, 2}}));
        t.output("y", y);
        return {.sum = sum(y), .count = t.number(1)};
      },
      {.training = false});
  std::vector<float> image = counted(144);
  image.resize(72);
  reader.set("images", image);
  reader.evaluate();
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(reader.output("y")[i], trained[i], 1e-5);
  EXPECT_THROW(OnnxModule(&around, "missing", "/nonexistent.onnx"), Error);
}

// Positions, means and masks follow a length that stays open; what is selected and grown is as it was.
TEST(Onnx, LengthsStayOpenAndSelectionsAreExported) {
  struct Net : Module {
    ConvTranspose2d grow{this, "grow", 2, 3, 3, {.stride = 2, .padding = 1}, 1};
  } net;
  const auto outputs = [&](Tracer& t) {
    const Tensor x = t.input("x"), lengths = t.input("lengths"), images = t.input("images");
    const Tensor counts = reshape(sequence_mask(lengths, x.dim(1)), {x.dim(0), x.dim(1), 1});
    t.output("mean", sum(x * counts, 1) - mean(x, 1));
    t.output("sums", cumsum(x, 1) + reshape(arange(x.dim(1)), {1, x.dim(1), 1}));
    t.output("best", top_k(x, 2).first);
    t.output("grown", net.grow(images));
  };
  const auto types = [](int64_t batch, int64_t length) {
    return InputTypes{{"x", {DType::kF32, {batch, length, 4}}}, {"lengths", {DType::kI32, {batch}}},
        {"images", {DType::kF32, {batch, 3, 5, 2}}}};
  };
  const auto values_of = [&](Module& model, const std::function<void(Tracer&)>& record) {
    const TracedLoss loss = [&](Tracer& t) -> Loss {
      record(t);
      return {.sum = sum(t.input("x")), .count = t.number(1)};
    };
    Learner learner(model, loss, {types(2, 6)}, {.training = false});
    learner.set("x", counted(48)), learner.set("images", counted(60));
    learner.set("lengths", std::vector<int32_t>{2, 6});
    learner.evaluate();
    std::vector<float> values;
    for (const char* name : {"mean", "sums", "best", "grown"})
      values.insert(values.end(), learner.output(name).begin(), learner.output(name).end());
    return std::pair(std::move(learner), values);
  };
  const auto [learner, wanted] = values_of(net, outputs);
  const TemporaryFolder folder;
  const std::string path = folder / "open.onnx";
  export_onnx(learner, types(1, 3), outputs, path,
      {.open_axes = {{"x", {{0, "batch"}, {1, "length"}}}, {"lengths", {{0, "batch"}}}, {"images", {{0, "batch"}}}}});
  struct Read : Module {
    explicit Read(const std::string& file) : body{this, "body", file} {}
    OnnxModule body;
  } read(path);
  const auto named = [&](Tracer& t) {
    for (const auto& [name, value] :
        read.body({{"x", t.input("x")}, {"lengths", t.input("lengths")}, {"images", t.input("images")}}))
      t.output(name, value);
  };
  const std::vector<float> found = values_of(read, named).second;
  ASSERT_EQ(found.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(found[i], wanted[i], 1e-5) << i;
}

// A decoder's folder is fine-tuned by a loop of one's own and saved as a folder, whose model has the same logits.
void tune_decoder(const std::string& folder) {
  struct Model : Module {
    explicit Model(const std::string& path) : decoder{this, "decoder", path} {}
    PretrainedDecoder decoder;
  };
  const auto learner_of = [](Model& model) {
    return Learner(model, [&model](Tracer& t) -> Loss {
      const Tensor tokens = t.input("tokens", {DType::kI32, {2, 6}}),
                   targets = t.input("targets", {DType::kI32, {2, 6}});
      const Tensor states = model.decoder(tokens);
      if (!t.training()) t.output("logits", model.decoder.logits(states));
      return {.sum = linear_cross_entropy_sum(states, model.decoder.head_weight(), {}, targets),
          .count = count_targets(targets)};
    });
  };
  const std::vector<int32_t> tokens{1, 2, 3, 4, 5, 6, 6, 5, 4, 3, 2, 1}, targets{2, 3, 4, 5, 6, 7, 5, 4, 3, 2, 1, 0};
  const auto fill = [&](Learner& learner) { learner.set("tokens", tokens), learner.set("targets", targets); };
  const auto logits_of = [](Learner& learner) {
    const auto logits = learner.output("logits");
    return std::vector<float>(logits.begin(), logits.end());
  };
  Model model(folder);
  Learner learner = learner_of(model);  // begins with the folder's weights
  fill(learner);
  const double before = learner.evaluate();
  EXPECT_TRUE(model.decoder.load(learner).fresh.empty());
  fill(learner);
  EXPECT_EQ(learner.evaluate(), before);
  TextGenerator generator(model.decoder, {.max_length = 16, .threads = 1});
  const auto text = generator.generate({{1, 2, 3}}, {.max_tokens = 6, .temperature = 0});
  for (int step = 0; step < 20; ++step) ASSERT_TRUE(learner.step(0.01).finite);
  EXPECT_LT(learner.evaluate(), before / 2);
  EXPECT_EQ(generator.generate({{1, 2, 3}}, {.max_tokens = 6, .temperature = 0}), text);
  generator.take(learner);  // by their names in the learner's model
  EXPECT_EQ(
      generator.generate({{1, 2, 3}}, {.max_tokens = 3, .temperature = 0}).front(), (std::vector<int32_t>{4, 5, 6}));
  const TemporaryFolder made;
  const std::string out = made / "decoder";
  model.decoder.save(learner, out);
  EXPECT_FALSE(WeightFile(out + "/model.safetensors").tensors().empty());

  Model again(out);
  EXPECT_EQ(again.decoder.width(), model.decoder.width());
  Learner second = learner_of(again);
  again.decoder.load(second);
  fill(second);
  second.evaluate();
  EXPECT_EQ(logits_of(second), logits_of(learner));
}

TEST(Pretrained, DecodersAreTunedByALoopOfOnesOwn) {
  tune_decoder("tests/golden/pretrained/gpt2");
  tune_decoder("tests/golden/pretrained/llama");
}

TEST(Pretrained, EncoderDecodersLearnATarget) {
  struct Model : Module {
    PretrainedEncoderDecoder t5{this, "t5", "tests/golden/pretrained/t5"};
  } model;
  Learner learner(model, [&](Tracer& t) -> Loss {
    const auto ids = [&](const char* name, const Shape& shape) { return t.input(name, {DType::kI32, shape}); };
    const Tensor targets = ids("targets", {1, 3});
    return {.sum = model.t5.loss_sum(ids("source", {1, 4}), ids("source_lengths", {1}), ids("target_in", {1, 3}),
                ids("target_lengths", {1}), targets),
        .count = count_targets(targets)};
  });
  EXPECT_TRUE(model.t5.load(learner).fresh.empty());
  learner.set<int32_t>("source", {3, 4, 5, 1}), learner.set<int32_t>("source_lengths", {4});
  learner.set<int32_t>("target_in", {0, 6, 7}), learner.set<int32_t>("target_lengths", {3});
  learner.set<int32_t>("targets", {6, 7, 1});
  const double before = learner.evaluate();
  for (int step = 0; step < 30; ++step) learner.step(0.01);
  EXPECT_LT(learner.evaluate(), before / 2);
}

TEST(Pretrained, ImageModelsTellClasses) {
  struct Model : Module {
    PretrainedImageModel vit{this, "vit", "tests/golden/pretrained/vit"};
  } model;
  const Shape image = model.vit.image_shape();
  Learner learner(model, [&](Tracer& t) -> Loss {
    const Tensor logits = model.vit(t.input("images", {DType::kU8, {2, image[0], image[1], image[2]}}));
    t.output("logits", logits);
    return cross_entropy_loss(logits, t.input("labels", {DType::kI32, {2}}));
  });
  EXPECT_TRUE(model.vit.load(learner).fresh.empty());
  std::vector<uint8_t> pixels(static_cast<size_t>(2 * image.elements()));
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<uint8_t>(i * 37 % 251);
  learner.set("images", pixels);
  learner.set<int32_t>("labels", {0, 1});
  const double before = learner.evaluate();
  EXPECT_EQ(learner.output("logits").size(), static_cast<size_t>(2 * model.vit.classes()));
  for (int step = 0; step < 30; ++step) learner.step(0.01);
  EXPECT_LT(learner.evaluate(), before);
}

TEST(Pretrained, AFolderOfAnotherKindIsAnError) {
  Module root;
  EXPECT_THROW(PretrainedDecoder(&root, "decoder", "tests/golden/pretrained/bert_model"), Error);
  EXPECT_THROW(PretrainedEncoder(&root, "encoder", "tests/golden/pretrained/gpt2"), Error);
  EXPECT_THROW(PretrainedImageModel(&root, "images", "tests/golden/pretrained/t5"), Error);
}
}  // namespace
