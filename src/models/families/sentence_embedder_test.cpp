#include "models/families/sentence_embedder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "formats/safetensors.h"
#include "models/families/config_file.h"
#include "data/text/pretrained_tokenizer.h"

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

  SentenceEmbedder embedder(folder, 4, 2);
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
  SentenceEmbedder embedder("tests/golden/pretrained/bert_model", 2, 1);
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

TEST(SentenceEmbedder, BitsDoNotDependOnTheNumberOfSentences) {
  SentenceEmbedder embedder("tests/golden/pretrained/bert_model", 16, 2);
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
