// Every kind of tokenizer beside what its original gave: tests/golden/make_tokenizers.py.
#include <gtest/gtest.h>
#include <unistd.h>
#include <filesystem>
#include "base/files.h"
#include "base/json.h"
#include "data/text/pretrained_tokenizer.h"
#include "temporary_folder.h"

namespace linnet {
namespace {
namespace fs = std::filesystem;
using Ids = std::vector<TokenId>;

const std::string kFolder = "tests/golden/tokenizers/";

const Json& golden() {
  static const Json json = Json::parse(read_file(kFolder + "golden.json"), "golden.json", JsonLimits::tables());
  return json;
}

std::vector<std::string> lines() { return golden().at("lines").get<std::vector<std::string>>(); }

class PretrainedGolden : public ::testing::TestWithParam<const char*> {
 protected:
  PretrainedGolden() : want_(golden().at("cases").at(GetParam())) {
    const std::string base = kFolder + GetParam();
    tokenizer_ = load_pretrained_tokenizer(fs::exists(base + ".json") ? base + ".json" : base + ".model");
  }
  const Json& want_;
  std::unique_ptr<PretrainedTokenizer> tokenizer_;
};
INSTANTIATE_TEST_SUITE_P(Kinds, PretrainedGolden,
    ::testing::Values("gpt2", "roberta", "llama3", "bert", "llama", "unigram", "steps", "words", "t5", "spbpe"),
    [](const auto& test) { return std::string(test.param); });

TEST_P(PretrainedGolden, GivesTheIdsOfTheOriginal) {
  const auto texts = lines();
  for (size_t i = 0; i < texts.size(); ++i)
    ASSERT_EQ(tokenizer_->encode(texts[i]), want_.at("ids")[i].get<Ids>()) << "line " << i << ": " << texts[i];
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
  const testing::TemporaryFolder folder;
  tokenizer_->save_pretrained(folder.path());
  const auto again = load_pretrained_tokenizer(folder.path());
  EXPECT_EQ(again->kind(), tokenizer_->kind());
  EXPECT_EQ(again->roles().end, tokenizer_->roles().end);
  for (const std::string& text : lines()) ASSERT_EQ(again->encode(text), tokenizer_->encode(text)) << text;
}

// Every way to cut a text in two: what a stream makes of the second part follows what the first part reads as.
TEST_P(PretrainedGolden, AStreamGoesOnFromItsContext) {
  for (const auto& want : want_.at("ids")) {
    const Ids ids = want.get<Ids>();
    const std::string whole = tokenizer_->decode(ids, true);
    for (size_t cut = 0; cut <= ids.size(); ++cut) {
      const std::span<const TokenId> all(ids);
      std::string text = tokenizer_->decode(all.first(cut), true);
      text.resize(whole_size(text));
      TextStream stream(*tokenizer_, true, all.first(cut));
      for (const TokenId id : all.subspan(cut)) text += stream.push(id);
      ASSERT_EQ(text + stream.finish(), whole) << "cut at " << cut;
    }
  }
}

// make_prompts.py's folders.
class PromptGolden : public ::testing::Test {
 protected:
  std::unique_ptr<PretrainedTokenizer> open(const Json& test) {
    for (const auto& file : fs::directory_iterator(folder_)) fs::remove_all(file);
    const std::string file = test.at("file").text();
    const Json& post = test.at("post_processor");
    write_file_atomically(folder_ + "/tokenizer_config.json", test.at("config").dump());
    if (file.ends_with(".model")) {
      write_file_atomically(folder_ + "/tokenizer.model", read_file(kFolder + file));
      return load_pretrained_tokenizer(folder_);
    }
    Json tokenizer = Json::parse(read_file(kFolder + file), file, JsonLimits::tables());
    if (post == "files") {
      std::string merges = "#version: 0.2\n";
      for (const auto& pair : tokenizer["model"]["merges"])
        merges += pair[0].get<std::string>() + " " + pair[1].get<std::string>() + "\n";
      write_file_atomically(folder_ + "/vocab.json", tokenizer["model"]["vocab"].dump());
      write_file_atomically(folder_ + "/merges.txt", merges);
    } else {
      tokenizer["post_processor"] = post;
      write_file_atomically(folder_ + "/tokenizer.json", tokenizer.dump());
    }
    return load_pretrained_tokenizer(folder_);
  }
  const testing::TemporaryFolder made_;
  const std::string folder_ = made_.path();
};

TEST_F(PromptGolden, PromptsBecomeWhatTransformersFeeds) {
  const Json golden = Json::parse(read_file(kFolder + "prompts.json"), "prompts.json", JsonLimits::tables());
  const auto prompts = golden.at("prompts").get<std::vector<std::string>>();
  for (const auto& [name, test] : golden.at("cases").items()) {
    const auto tokenizer = open(test);
    const bool model = test.at("file").get<std::string>().ends_with(".model");
    for (size_t i = 0; i < prompts.size(); ++i) {
      // Of SentencePiece models transformers 5 takes the vocabulary alone: extra spaces stay, "</s>" is a token.
      if (model && (i == 2 || i == 3)) continue;
      EXPECT_EQ(tokenizer->encode(prompts[i], {}).ids, test.at("ids")[i].get<Ids>()) << name << ": " << prompts[i];
    }
  }
}

// tokenizer.json cannot say add_bos_token: a folder that does is written with a template.
TEST_F(PromptGolden, ABeginTokenStaysWhenTheFolderIsSaved) {
  const Json golden = Json::parse(read_file(kFolder + "prompts.json"), "prompts.json", JsonLimits::tables());
  const Json& test = golden.at("cases").at("gpt2_files_with_begin");
  const auto tokenizer = open(test);
  for (const auto& file : fs::directory_iterator(folder_)) fs::remove_all(file);
  tokenizer->save_pretrained(folder_);
  fs::remove(folder_ + "/tokenizer_config.json");
  EXPECT_EQ(load_pretrained_tokenizer(folder_)->encode("A gentle hum", {}).ids, test.at("ids")[0].get<Ids>());
}
}  // namespace
}  // namespace linnet
