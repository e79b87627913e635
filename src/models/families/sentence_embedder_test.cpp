#include "models/families/sentence_embedder.h"
#include <gtest/gtest.h>
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include "base/error.h"
#include "data/text/pretrained_tokenizer.h"
#include "formats/safetensors.h"
#include "formats/weight_files.h"
#include "models/families/config_file.h"
#include "temporary_folder.h"

namespace linnet {
namespace {
namespace fs = std::filesystem;

// The folder of all-MiniLM-L6-v2; empty when this machine has none.
std::string minilm_folder() {
  if (const char* folder = std::getenv("LINNET_MINILM")) return folder;
  const char* data = std::getenv("LINNET_DATA");
  if (!data) return "";
  const fs::path folder = fs::path(data) / "weights/all-minilm-l6-v2";
  return fs::exists(folder / "model.safetensors") ? folder.string() : "";
}

// The golden file's sentences as token ids, -1 behind each.
std::vector<std::vector<int32_t>> golden_ids(const SafetensorsFile& golden) {
  const SafetensorsEntry& ids = golden.at("ids");
  const int64_t count = ids.type.shape[0], longest = ids.type.shape[1];
  std::vector<std::vector<int32_t>> sentences(static_cast<size_t>(count));
  for (int64_t i = 0; i < count * longest; ++i) {
    int32_t id = 0;
    std::memcpy(&id, ids.data + static_cast<size_t>(i) * sizeof id, sizeof id);
    if (id >= 0) sentences[static_cast<size_t>(i / longest)].push_back(id);
  }
  return sentences;
}

TEST(Minilm, HasTheEmbeddingsOfItsOwnLibrary) {
  const std::string folder = minilm_folder();
  if (folder.empty()) GTEST_SKIP() << "neither LINNET_MINILM nor LINNET_DATA has the model (tests/golden/README.md)";
  const SafetensorsFile golden("tests/golden/minilm.safetensors");
  // The sentences as text and as what the model's own tokenizer makes of them.
  const std::vector<std::vector<int32_t>> sentences = golden_ids(golden);
  const auto count = static_cast<int64_t>(sentences.size());
  const ConfigFile texts =
      ConfigFile::parse("{\"sentences\": " + golden.metadata().at("sentences") + "}", golden.path());
  const auto tokenizer = load_pretrained_tokenizer(folder);
  for (size_t i = 0; i < sentences.size(); ++i)
    EXPECT_EQ(tokenizer->encode(texts.texts("sentences")[i], EncodeOptions{}).ids, sentences[i]);

  SentenceEmbedder embedder(folder, 4, {.threads = 2});
  EXPECT_EQ(embedder.max_tokens(), 256);
  const std::vector<float> ours = embedder.embed(sentences);
  const SafetensorsEntry& embeddings = golden.at("embeddings");
  ASSERT_EQ(static_cast<int64_t>(ours.size()), embeddings.type.shape.elements());
  for (int64_t i = 0; i < count; ++i) {
    double dot = 0, a = 0, b = 0, furthest = 0;
    for (int64_t j = 0; j < embedder.width(); ++j) {
      double theirs = 0;
      const auto at = static_cast<size_t>(i * embedder.width() + j);
      std::memcpy(&theirs, embeddings.data + at * sizeof theirs, sizeof theirs);
      dot += theirs * ours[at], a += theirs * theirs, b += static_cast<double>(ours[at]) * ours[at];
      furthest = std::max(furthest, std::abs(theirs - ours[at]));
    }
    EXPECT_GT(dot / std::sqrt(a * b), 0.99999) << "sentence " << i;
    EXPECT_LT(furthest, 1e-5) << "sentence " << i;
    EXPECT_NEAR(b, 1, 1e-5);
  }
}

TEST(SentenceEmbedder, GivesEachSentenceTheSameInAnyBatch) {
  SentenceEmbedder embedder("tests/golden/pretrained/bert_model", 2, {.threads = 1});
  const std::vector<std::vector<int32_t>> sentences{
      {5, 6, 7, 8}, {9}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17}};
  const std::vector<float> together = embedder.embed(sentences);
  const auto width = static_cast<size_t>(embedder.width());
  for (size_t i = 0; i < sentences.size(); ++i) {
    const std::vector<float> alone = embedder.embed({&sentences[i], 1});
    for (size_t j = 0; j < width; ++j) EXPECT_NEAR(alone[j], together[i * width + j], 1e-6) << i;
  }
  EXPECT_THROW(embedder.embed(std::vector<std::vector<int32_t>>{std::vector<int32_t>(25, 1)}), Error);
}

// Two tokens among padding and longer sentences, so that each pooling follows from the first and the last state.
TEST(SentenceEmbedder, PoolsAsTheFolderSays) {
  const std::vector<std::vector<int32_t>> sentences{
      {5, 9}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17}};
  const auto embed = [&](Pooling kind, bool normalized = false) {
    PretrainedModel model = open_pretrained("tests/golden/pretrained/bert_model", {.head = ModelHead::kNone});
    SentenceEmbedder embedder(std::move(model), {.normalized = normalized, .kind = kind}, 2, {.threads = 1});
    std::vector<float> rows = embedder.embed(sentences);
    rows.resize(static_cast<size_t>(embedder.width()));
    return rows;
  };
  const std::vector<float> first = embed(Pooling::kFirst), last = embed(Pooling::kLast), max = embed(Pooling::kMax),
                           mean = embed(Pooling::kMean), root = embed(Pooling::kRootMean);
  ASSERT_NE(first, last);
  double squares = 0;
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_NEAR(mean[i], (first[i] + last[i]) / 2, 1e-6);
    EXPECT_NEAR(root[i], mean[i] * std::sqrt(2.0), 1e-6);
    EXPECT_EQ(max[i], std::max(first[i], last[i]));
    squares += static_cast<double>(max[i]) * max[i];
  }
  const std::vector<float> normalized = embed(Pooling::kMax, true);
  for (size_t i = 0; i < first.size(); ++i) EXPECT_NEAR(normalized[i], max[i] / std::sqrt(squares), 1e-6);
}

TEST(SentencePooling, IsReadFromItsFolder) {
  testing::TemporaryFolder folder;
  std::filesystem::create_directories(folder / "1_Pooling");
  folder.write("modules.json", R"([{"type": "sentence_transformers.models.Transformer", "path": ""},
                                   {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"}])");
  const auto kind_of = [&](const std::string& config) {
    folder.write("1_Pooling/config.json", config);
    return read_sentence_pooling(folder.path()).kind;
  };
  EXPECT_EQ(kind_of(R"({"pooling_mode_cls_token": false, "pooling_mode_mean_tokens": true})"), Pooling::kMean);
  EXPECT_EQ(kind_of(R"({"pooling_mode_cls_token": true})"), Pooling::kFirst);
  EXPECT_EQ(kind_of(R"({"pooling_mode_lasttoken": true})"), Pooling::kLast);
  EXPECT_EQ(kind_of(R"({"pooling_mode_max_tokens": true})"), Pooling::kMax);
  EXPECT_EQ(kind_of(R"({"pooling_mode": "mean_sqrt_len_tokens"})"), Pooling::kRootMean);
  for (const char* refused : {R"({"pooling_mode_max_tokens": true, "pooling_mode_mean_tokens": true})",
           R"({"pooling_mode": "weightedmean"})", R"({"pooling_mode_weightedmean_tokens": true})"})
    EXPECT_THROW(kind_of(refused), Error) << refused;
}

// tanh(the mean through one layer) through another, as sentence-transformers computes them; and a folder that is saved
// has what the layers were trained to be.
// Version 6 of sentence-transformers writes the length into the tokenizer's file, and modules for cross-encoders, too.
TEST(SentencePooling, ReadsFoldersOfNewerVersions) {
  testing::TemporaryFolder folder;
  folder.write(
      "modules.json", R"([{"type": "sentence_transformers.base.modules.transformer.Transformer", "path": ""}])");
  folder.write("sentence_bert_config.json", R"({"transformer_task": "feature-extraction"})");
  folder.write("tokenizer_config.json", R"({"model_max_length": 12})");
  EXPECT_EQ(read_sentence_pooling(folder.path()).max_tokens, 12);
  folder.write("sentence_bert_config.json", R"({"max_seq_length": 7})");
  EXPECT_EQ(read_sentence_pooling(folder.path()).max_tokens, 7);
  EXPECT_FALSE(sentence_files(folder.path()).empty());
  folder.write("config_sentence_transformers.json", R"({"model_type": "CrossEncoder"})");
  EXPECT_TRUE(is_cross_encoder(folder.path()));
  EXPECT_TRUE(sentence_files(folder.path()).empty());
}

TEST(SentencePooling, IsFollowedByLinearLayers) {
  testing::TemporaryFolder folder, saved;
  const std::string bert = "tests/golden/pretrained/bert_model";
  fs::copy(bert, folder.path(), fs::copy_options::recursive);
  const int64_t width = SentenceEmbedder(bert, 1, {.threads = 1}).width();
  folder.write("modules.json", R"([{"type": "Transformer", "path": ""}, {"type": "Pooling", "path": "1_Pooling"},
                                   {"type": "models.Dense", "path": "2_Dense"}, {"type": "Dense", "path": "3_Dense"}])");
  const auto add = [&](const std::string& name, int64_t in, float weight, const char* function, bool bias) {
    fs::create_directories(folder / name);
    folder.write(name + "/config.json", R"({"in_features": )" + std::to_string(in) +
                                            R"(, "out_features": 2, "bias": )" + (bias ? "true" : "false") +
                                            R"(, "activation_function": ")" + function + "\"}");
    const auto filled = [](const std::string& tensor, const Shape& shape, float value) {
      return WeightSource{tensor, FileDType::kF32, shape, [value](int64_t, int64_t count, std::byte* out) {
                            std::fill_n(reinterpret_cast<float*>(out), count, value);
                          }};
    };
    std::vector<WeightSource> tensors{filled("linear.weight", {2, in}, weight)};
    if (bias) tensors.push_back(filled("linear.bias", {2}, 0.25F));
    save_weight_files(folder / name, tensors, 1 << 20, {});
  };
  fs::create_directories(folder / "1_Pooling");
  folder.write("1_Pooling/config.json", R"({"pooling_mode_mean_tokens": true})");
  add("2_Dense", width, 0.125F, "torch.nn.modules.activation.Tanh", true);
  add("3_Dense", 2, 3, "torch.nn.modules.linear.Identity", false);

  const std::vector<std::vector<int32_t>> sentences{{5, 9, 7}};
  PretrainedModel plain = open_pretrained(bert, {.head = ModelHead::kNone});
  double sum = 0;
  for (const float value :
      SentenceEmbedder(std::move(plain), {.normalized = false}, 1, {.threads = 1}).embed(sentences))
    sum += value;
  const double expected = 3 * 2 * std::tanh(0.125 * sum + 0.25);
  const std::vector<float> embedding = SentenceEmbedder(folder.path(), 1, {.threads = 1}).embed(sentences);
  ASSERT_EQ(embedding.size(), 2U);
  EXPECT_NEAR(embedding[0], expected, 1e-5);

  PretrainedModel model = open_pretrained(folder.path(), {.head = ModelHead::kNone});
  take_pooling(model, folder.path());
  const ParameterLayout layout(*model.module);
  std::vector<float> parameters(static_cast<size_t>(layout.parameter_count()));
  load_parameters(model, layout, parameters.data());
  const ParameterSlot* last = nullptr;
  for (const ParameterSlot& slot : layout.parameters())
    if (slot.spec.name == "dense.1.weight") last = &slot;
  ASSERT_TRUE(last);
  std::fill_n(parameters.begin() + last->offset, 4, 1.5F);
  save_pretrained(model, layout, parameters.data(), saved.path());
  EXPECT_NEAR(SentenceEmbedder(saved.path(), 1, {.threads = 1}).embed(sentences)[1], expected / 2, 1e-5);
  folder.write("config_sentence_transformers.json", R"({"truncate_dim": 1})");
  SentenceEmbedder shortened(folder.path(), 2, {.threads = 1});
  EXPECT_EQ(shortened.width(), 1);
  EXPECT_EQ(shortened.embed({{sentences[0], sentences[0]}}), (std::vector{embedding[0], embedding[0]}));
  folder.write("modules.json", R"([{"type": "Pooling", "path": "../1_Pooling"}])");
  EXPECT_THROW(read_sentence_pooling(folder.path()), Error);
  folder.write("modules.json", R"([{"type": "Pooling", "path": "1_Pooling"}, {"type": "Normalize", "path": ""},
                                   {"type": "Dense", "path": "2_Dense"}])");
  EXPECT_THROW(read_sentence_pooling(folder.path()), Error);  // the layer would read vectors of length 1
}

TEST(SentencePrompts, AreNamedOrUsual) {
  testing::TemporaryFolder folder;
  EXPECT_EQ(read_sentence_prompts(folder.path()).of(""), "");
  folder.write("config_sentence_transformers.json",
      R"({"prompts": {"query": "search_query: ", "document": ""}, "default_prompt_name": "query"})");
  const SentencePrompts prompts = read_sentence_prompts(folder.path());
  EXPECT_EQ(prompts.of(""), "search_query: ");
  EXPECT_EQ(prompts.of("document"), "");
  EXPECT_THROW(prompts.of("passage"), Error);
  // A pooling without the prompt's tokens, which is not supported, hinders nobody who uses no prompt.
  std::filesystem::create_directories(folder / "1_Pooling");
  folder.write("modules.json", R"([{"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"}])");
  folder.write("1_Pooling/config.json", R"({"include_prompt": false})");
  EXPECT_THROW(read_sentence_prompts(folder.path()).of("query"), Error);
  EXPECT_EQ(read_sentence_prompts(folder.path()).of("document"), "");
}

TEST(ShortenRows, KeepsTheFirstNumbersOfEachRow) {
  std::vector<float> rows{3, 4, 9, 0, 2, 9};
  shorten_rows(rows, 3, 2, true);
  EXPECT_EQ(rows, (std::vector<float>{0.6f, 0.8f, 0, 1}));
}

TEST(SentenceEmbedder, BitsDoNotDependOnTheNumberOfSentences) {
  SentenceEmbedder embedder("tests/golden/pretrained/bert_model", 16, {.threads = 2});
  std::vector<std::vector<int32_t>> sentences(16);
  for (size_t i = 0; i < sentences.size(); ++i)
    for (size_t token = 0; token <= i % 9; ++token) sentences[i].push_back(static_cast<int32_t>(5 + 3 * i + token));
  const std::vector<float> all = embedder.embed(sentences);
  const size_t width = static_cast<size_t>(embedder.width());
  for (const size_t count : {1, 2, 4, 5, 11}) {
    const std::vector<float> some = embedder.embed(std::span(sentences).last(count));
    EXPECT_EQ(some, std::vector<float>(all.end() - static_cast<std::ptrdiff_t>(count * width), all.end())) << count;
  }
}
}  // namespace
}  // namespace linnet
