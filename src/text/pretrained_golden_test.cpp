// Every kind of tokenizer beside what its original gave: tests/golden/make_tokenizers.py.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/files.h"
#include "text/json_reader-inl.h"
#include "text/pretrained_tokenizer.h"

namespace linnet {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<TokenId>;

const std::string kFolder = "tests/golden/tokenizers/";

const nlohmann::json& golden() {
  static const nlohmann::json json = parse_json(read_file(kFolder + "golden.json"), "golden.json");
  return json;
}

std::vector<std::string> lines() { return golden().at("lines").get<std::vector<std::string>>(); }

Ids ids_of(const PretrainedTokenizer& tokenizer, std::string_view text) {
  Ids ids;
  tokenizer.encode(text, ids);
  return ids;
}

class PretrainedGolden : public ::testing::TestWithParam<const char*> {
 protected:
  PretrainedGolden() : want_(golden().at("cases").at(GetParam())) {
    const std::string base = kFolder + GetParam();
    tokenizer_ = load_pretrained_tokenizer(fs::exists(base + ".json") ? base + ".json" : base + ".model");
  }
  const nlohmann::json& want_;
  std::unique_ptr<PretrainedTokenizer> tokenizer_;
};
INSTANTIATE_TEST_SUITE_P(Kinds, PretrainedGolden,
                         ::testing::Values("gpt2", "roberta", "llama3", "bert", "llama", "unigram", "steps", "t5",
                                           "spbpe"),
                         [](const auto& test) { return std::string(test.param); });

TEST_P(PretrainedGolden, GivesTheIdsOfTheOriginal) {
  const auto texts = lines();
  for (size_t i = 0; i < texts.size(); ++i)
    ASSERT_EQ(ids_of(*tokenizer_, texts[i]), want_.at("ids")[i].get<Ids>()) << "line " << i << ": " << texts[i];
}

TEST_P(PretrainedGolden, DecodesAsTheOriginal) {
  const auto& decoded = want_.at("decoded");
  for (size_t i = 0; i < decoded.size(); ++i)
    ASSERT_EQ(tokenizer_->decode(want_.at("ids")[i].get<Ids>(), false), decoded[i].get<std::string>()) << i;
}

TEST_P(PretrainedGolden, OffsetsAreTheOriginals) {
  if (!want_.contains("offsets")) GTEST_SKIP() << "sentencepiece's are not in the file";
  const auto texts = lines();
  EncodeOptions options;
  options.add_special = false;
  std::string different;
  int count = 0;
  for (size_t i = 0; i < want_.at("offsets").size(); ++i) {
    const Encoding encoding = tokenizer_->encode(texts[i], options);
    EXPECT_EQ(encoding.offsets.size(), encoding.ids.size());
    std::vector<size_t> flat;
    for (const TextRange& range : code_point_offsets(texts[i], encoding.offsets)) {
      flat.push_back(range.begin);
      flat.push_back(range.end);
    }
    if (flat != want_.at("offsets")[i].get<std::vector<size_t>>()) different += "line " + std::to_string(i) + ", ";
    count += flat != want_.at("offsets")[i].get<std::vector<size_t>>();
  }
  // Where NFKC reorders or composes several marks their sources are told apart less finely than the original does, and
  // spaces next to a special token at the start are trimmed otherwise.
  const std::string name = GetParam();
  EXPECT_LE(count, name == "unigram" ? 10 : name == "roberta" ? 1 : 0) << different;
}

TEST_P(PretrainedGolden, PairsFollowTheTemplate) {
  if (!want_.contains("pair_ids")) GTEST_SKIP() << "no template";
  const auto texts = lines();
  for (size_t i = 0; i < want_.at("pair_ids").size(); ++i) {
    const Encoding encoding = tokenizer_->encode_pair(texts[i], texts[i + 1], {});
    EXPECT_EQ(encoding.ids, want_.at("pair_ids")[i].get<Ids>()) << i;
    EXPECT_EQ(encoding.segments, want_.at("pair_types")[i].get<std::vector<uint8_t>>()) << i;
  }
}

TEST_P(PretrainedGolden, WhatIsSavedLoadsTheSame) {
  char name[] = "/tmp/linnet_tokenizer_XXXXXX";
  const std::string folder = ::mkdtemp(name);
  tokenizer_->save_pretrained(folder);
  const auto again = load_pretrained_tokenizer(folder);
  EXPECT_EQ(again->kind(), tokenizer_->kind());
  EXPECT_EQ(again->roles().end, tokenizer_->roles().end);
  for (const std::string& text : lines()) ASSERT_EQ(ids_of(*again, text), ids_of(*tokenizer_, text)) << text;
  fs::remove_all(folder);
}

}  // namespace
}  // namespace linnet
