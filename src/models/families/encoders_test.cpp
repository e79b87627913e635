#include <gtest/gtest.h>
#include "error_of.h"
#include "golden_testing.h"
#include "models/families/config_file.h"
#include "models/families/encoder_family.h"
#include "models/modules/text_encoder.h"

namespace linnet {
namespace {
struct Inputs {
  Inputs(Trace& trace, const PretrainedGolden& golden)
      : tokens(trace.input("tokens", {DType::kI32, golden.shape("tokens")})),
        lengths(trace.input("lengths", {DType::kI32, golden.shape("lengths")})),
        types(trace.input("types", {DType::kI32, golden.shape("tokens")})) {}
  Tensor tokens, lengths, types;
};

// Those of all families with that head.
std::vector<std::string> folders(const std::string& part) {
  std::vector<std::string> names;
  for (const char* family : {"bert", "roberta", "xlm_roberta", "camembert", "distilbert", "electra", "mpnet", "albert",
           "modernbert", "deberta", "deberta_conv", "nomic_keys", "gte_keys"})
    names.push_back(std::string(family) + "_" + part);
  if (part == "model") names.insert(names.end(), {"t5_encoder_model", "mt5_encoder_model", "embedding_gemma_model"});
  names.push_back("jina_" + part);
  if (part != "masked") names.insert(names.end(), {"nomic_" + part, "gte_" + part});
  return names;
}

class MaskedEncoder : public testing::TestWithParam<std::string> {};

TEST_P(MaskedEncoder, AgreesWithTransformers) {
  PretrainedGolden golden(GetParam());
  auto& model = golden.model.as<MaskedLanguageModel>();
  golden.check_output("logits", [&](Trace& trace) {
    const Inputs in(trace, golden);
    return model.logits(in.tokens, in.lengths, in.types);
  });
  const Shape& shape = golden.shape("tokens");
  const LossFunction loss = [&](Trace& trace) {
    return masked_language_loss(model, trace, shape[0], shape[1], golden.shape("positions")[0], true);
  };
  golden.check_loss_and_gradients(loss);
  golden.check_training_in_fp16(loss);
  golden.check_saving();
}

INSTANTIATE_TEST_SUITE_P(
    Folders, MaskedEncoder, testing::ValuesIn(folders("masked")), [](const auto& info) { return info.param; });

struct Head {
  std::string folder;
  TextLoss* loss;
  int outputs;
};

// The classifiers of all families, and BERT's other heads.
std::vector<Head> heads() {
  std::vector<Head> all{{"bert_tagger", classification_loss, 5}, {"bert_answers", span_loss, 2},
      {"bert_numbers", regression_loss, 2}, {"bert_several", several_labels_loss, 3}};
  for (const std::string& folder : folders("classifier")) all.push_back({folder, classification_loss, 3});
  return all;
}

class EncoderHead : public testing::TestWithParam<Head> {};

TEST_P(EncoderHead, AgreesWithTransformers) {
  PretrainedGolden golden(GetParam().folder);
  auto& model = golden.model.as<TextClassifier>();
  golden.check_output("logits", [&](Trace& trace) {
    const Inputs in(trace, golden);
    return model.logits(in.tokens, in.lengths, in.types);
  });
  const Shape& shape = golden.shape("tokens");
  golden.check_loss_and_gradients(
      [&](Trace& trace) { return GetParam().loss(model, trace, shape[0], shape[1], true); });
  golden.check_saving();
  const std::vector<std::string> labels = label_names(golden.model.config);
  ASSERT_EQ(std::ssize(labels), GetParam().outputs);
  EXPECT_EQ(labels[0], "LABEL_0");
}

INSTANTIATE_TEST_SUITE_P(
    Folders, EncoderHead, testing::ValuesIn(heads()), [](const auto& info) { return info.param.folder; });

class EncoderEmbedding : public testing::TestWithParam<std::string> {};

TEST_P(EncoderEmbedding, AgreesWithTransformers) {
  PretrainedGolden golden(GetParam());
  auto& model = golden.model.as<SentenceEncoder>();
  golden.check_output("embeddings", [&](Trace& trace) {
    return model(trace.input("tokens", {DType::kI32, golden.shape("tokens")}),
        trace.input("lengths", {DType::kI32, golden.shape("lengths")}));
  });
  golden.check_saving();
}

INSTANTIATE_TEST_SUITE_P(
    Folders, EncoderEmbedding, testing::ValuesIn(folders("model")), [](const auto& info) { return info.param; });

TEST(ModernBertConfig, RefusesLayersOfAnotherType) {
  ConfigFile file("tests/golden/pretrained/modernbert_model/config.json");
  const auto layers = static_cast<size_t>(file.size("num_hidden_layers"));
  const auto refused = [&](size_t count, const char* type) {
    file.set("layer_types", std::vector<std::string>(count, type));
    return error_of([&] { find_family_as<EncoderFamily>(file).read(file); });
  };
  EXPECT_PRED2(has_text, refused(layers, "chunked_attention"), "\"layer_types\" holds \"chunked_attention\"");
  EXPECT_PRED2(has_text, refused(layers + 1, "full_attention"), "does not name each layer once");
}

TEST(RotaryEncoders, HaveTheOldThetaAndNoScaling) {
  for (const std::string name : {"modernbert_model", "nomic_keys_model", "gte_keys_model"}) {
    ConfigFile file("tests/golden/pretrained/" + name + "/config.json"), scaling;
    const auto read = [&] { return find_family_as<EncoderFamily>(file).read(file); };
    if (name != "modernbert_model") {
      file.erase("rope_parameters"), file.set("rope_theta", 500.0);
      EXPECT_EQ(read().layer_kinds[0].rotary->theta, 500) << name;
    }
    scaling.set("rope_type", "linear"), scaling.set("factor", 3.0);
    file.set("rope_scaling", scaling);
    EXPECT_PRED2(has_text, error_of([&] { read(); }), "\"rope_scaling\" is not supported");
  }
}

TEST(NomicConfig, HasTheDefaultActivationOfTransformers) {
  ConfigFile file("tests/golden/pretrained/nomic_keys_model/config.json");
  file.erase("hidden_act");
  EXPECT_EQ(find_family_as<EncoderFamily>(file).read(file).activation, Activation::kSilu);
}

// LayerNorm.gamma, tensors of other heads, position_ids: as the first published checkpoints have them.
TEST(BertOldNames, GiveTheSameModel) {
  const PretrainedGolden old("bert_old"), now("bert_masked");
  EXPECT_EQ(old.parameters, now.parameters);
  EXPECT_EQ(old.model.unused, (std::vector<std::string>{"bert.pooler.dense.bias", "bert.pooler.dense.weight",
                                  "cls.seq_relationship.bias", "cls.seq_relationship.weight"}));
}

TEST(BertNewHead, StandsOnAPlainModel) {
  const PretrainedGolden golden("bert_model", {.architecture = "BertForSequenceClassification", .labels = 5});
  EXPECT_EQ(golden.model.fresh, (std::vector<std::string>{"classifier.weight", "classifier.bias"}));
  EXPECT_EQ(label_count(golden.model.config), 5);
}

TEST(BertNewHead, TakesThePlaceOfOneForOtherClasses) {
  const PretrainedGolden golden("bert_classifier", {.labels = 7});
  EXPECT_EQ(golden.model.fresh, (std::vector<std::string>{"classifier.weight", "classifier.bias"}));
  EXPECT_EQ(label_count(golden.model.config), 7);
}
}  // namespace
}  // namespace linnet
