#include "models/families/vit.h"
#include <gtest/gtest.h>
#include "base/error.h"
#include "base/files.h"
#include "engine/ops/cross_entropy/cross_entropy.h"
#include "golden_testing.h"
#include "temporary_folder.h"

namespace linnet {
namespace {
Tensor logits(Vit& model, Trace& trace, const PretrainedGolden& golden) {
  return model.logits(trace.input("images", {trace.options().dtype, golden.shape("images")}));
}

class VitGolden : public ::testing::TestWithParam<const char*> {};

TEST_P(VitGolden, AgreesWithTransformers) {
  PretrainedGolden golden(GetParam());
  auto& model = golden.model.as<Vit>();
  golden.check_output("logits", [&](Trace& trace) { return logits(model, trace, golden); });
  const LossFunction loss = [&](Trace& trace) -> Loss {
    const Tensor labels = trace.input("labels", {DType::kI32, golden.shape("labels")});
    const Tensor values = logits(model, trace, golden);
    return {cross_entropy_sum(values, labels), count_targets(labels, values.type().dtype)};
  };
  golden.check_loss_and_gradients(loss);
  golden.check_training_in_fp16(loss);
  golden.check_saving();
}

INSTANTIATE_TEST_SUITE_P(Cases, VitGolden, ::testing::Values("vit", "vit_no_bias"),
    [](const auto& test) { return std::string(test.param); });

TEST(VitNewHead, TakesTheNumberOfLabels) {
  const PretrainedGolden golden("vit", {.head = ModelHead::kClasses, .labels = 5});
  EXPECT_TRUE(golden.model.fresh.empty());
  const PretrainedGolden more("vit", {.labels = 7});  // a head is there, of another size
  EXPECT_EQ(more.model.fresh, (std::vector<std::string>{"classifier.weight", "classifier.bias"}));
}

// A configuration that is made here says what the one of transformers says.
TEST(VitConfigFile, GoesBothWays) {
  const ConfigFile theirs("tests/golden/pretrained/vit/config.json");
  const VitConfig config = vit_config(theirs);
  EXPECT_EQ(config.patches(), 9);
  EXPECT_EQ(config.mean, (std::vector<double>{0.5, 0.5, 0.5}));
  const ConfigFile ours = vit_config_file(config, {"LABEL_0", "LABEL_1", "LABEL_2", "LABEL_3", "LABEL_4"});
  for (const char* key : {"image_size", "patch_size", "num_channels", "hidden_size", "num_hidden_layers",
           "num_attention_heads", "intermediate_size"})
    EXPECT_EQ(ours.integer(key), theirs.integer(key)) << key;
  EXPECT_EQ(ours.number("layer_norm_eps", 0), theirs.number("layer_norm_eps", 1));
  EXPECT_EQ(ours.text("hidden_act"), theirs.text("hidden_act"));
  EXPECT_EQ(ours.object("id2label").dump(), theirs.object("id2label").dump());
  EXPECT_EQ(new_pretrained(ours).parameter_count(), new_pretrained(theirs).parameter_count());
}

TEST(VitConfigFile, NormalizationComesFromThePreprocessor) {
  const testing::TemporaryFolder folder;
  const std::string at = folder.path();
  VitConfig config = vit_config(ConfigFile("tests/golden/pretrained/vit/config.json"));
  config.mean = {0.1, 0.2, 0.3}, config.deviation = {0.4, 0.5, 0.6};
  vit_config_file(config, {"a", "b"}).save(at + "/config.json");
  write_file_atomically(at + "/preprocessor_config.json", vit_preprocessor_file(config, "crop"));
  const VitConfig read = vit_config(ConfigFile(at + "/config.json"));
  EXPECT_EQ(read.mean, config.mean);
  EXPECT_EQ(read.deviation, config.deviation);
  EXPECT_EQ(read.images.classes, 2);
  const ConfigFile crop(at + "/preprocessor_config.json"),
      stretch = ConfigFile::parse(vit_preprocessor_file(config, "stretch"), "stretch");
  EXPECT_EQ(crop.object("size").integer("shortest_edge"), read.images.height);
  EXPECT_TRUE(crop.flag("do_center_crop", false));
  EXPECT_EQ(stretch.object("size").integer("width"), read.images.width);
  EXPECT_FALSE(stretch.flag("do_center_crop", true));
  // Bytes as they are: 127.5 is in the middle, as 0.5 is of bytes divided by 255.
  write_file_atomically(
      at + "/preprocessor_config.json", R"({"do_rescale": false, "image_mean": 127.5, "image_std": [51, 51, 51]})");
  const VitConfig bytes = vit_config(ConfigFile(at + "/config.json"));
  EXPECT_EQ(bytes.mean, (std::vector{0.5, 0.5, 0.5}));
  EXPECT_EQ(bytes.deviation, (std::vector{0.2, 0.2, 0.2}));
  write_file_atomically(at + "/preprocessor_config.json", R"({"rescale_factor": 0.0078431372549019607})");
  EXPECT_EQ(vit_config(ConfigFile(at + "/config.json")).mean, (std::vector{0.25, 0.25, 0.25}));
}
}  // namespace
}  // namespace linnet
