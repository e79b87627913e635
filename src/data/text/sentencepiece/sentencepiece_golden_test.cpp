// SentencePiece models beside what sentencepiece gave: tests/golden/make_sentencepiece.py.
#include <gtest/gtest.h>
#include "base/files.h"
#include "base/json.h"
#include "data/text/pretrained_tokenizer.h"
#include "data/text/unicode/utf8.h"
#include "temporary_folder.h"

namespace linnet {
namespace {
const std::string kFolder = "tests/golden/sentencepiece/";

// The file spells every byte of a line as a character.
std::string bytes_of(const std::string& spelt) {
  std::string bytes;
  for (size_t i = 0; i < spelt.size(); i += utf8_length_at(spelt, i))
    bytes += static_cast<char>(utf8_code_point_at(spelt, i));
  return bytes;
}

class SentencePieceGolden : public ::testing::TestWithParam<const char*> {
 protected:
  SentencePieceGolden()
      : golden_(Json::parse(read_file(kFolder + "golden.json"), "golden.json", JsonLimits::tables())),
        tokenizer_(load_pretrained_tokenizer(kFolder + GetParam() + ".model")) {
    for (const auto& line : golden_.at("lines")) lines_.push_back(bytes_of(line.get<std::string>()));
  }
  const Json& want(const char* what) const { return golden_.at("cases").at(GetParam()).at(what); }

  Json golden_;
  std::unique_ptr<PretrainedTokenizer> tokenizer_;
  std::vector<std::string> lines_;
};
INSTANTIATE_TEST_SUITE_P(Models, SentencePieceGolden,
    ::testing::Values("unigram_own", "unigram_suffix", "bpe_own", "bpe_phrases", "bpe_unused"),
    [](const auto& test) { return std::string(test.param); });

TEST_P(SentencePieceGolden, GivesTheIdsOfTheOriginal) {
  for (int round = 0; round < 2; ++round)  // the second time words are remembered
    for (size_t i = 0; i < lines_.size(); ++i)
      ASSERT_EQ(tokenizer_->encode(lines_[i]), want("ids")[i].get<std::vector<TokenId>>())
          << "line " << i << ": " << lines_[i];
}

TEST_P(SentencePieceGolden, OneLongLineIsCutLikeItsParts) {
  // Sums of scores so large that words have to be looked at in their place.
  std::string line;
  for (int i = 0; i < 3000; ++i) line += "the quick brown fox of ";
  std::vector<TokenId> ids, part;
  tokenizer_->encode(line, ids);
  tokenizer_->encode("the quick brown fox of the quick", part);
  ASSERT_GT(ids.size(), 9000u);
  EXPECT_TRUE(std::equal(part.begin(), part.end() - 4, ids.begin()));
}

TEST_P(SentencePieceGolden, DecodesAsTheOriginal) {
  for (size_t i = 0; i < lines_.size(); ++i)
    ASSERT_EQ(
        tokenizer_->decode(want("ids")[i].get<std::vector<TokenId>>(), false), want("decoded")[i].get<std::string>())
        << i;
}

TEST_P(SentencePieceGolden, OffsetsCoverTheText) {
  for (const std::string& line : lines_) {
    const Encoding encoding = tokenizer_->encode(line, {.add_special = false});
    ASSERT_EQ(encoding.ids.size(), encoding.offsets.size());
    size_t end = 0;
    for (const TextRange& range : encoding.offsets) {
      EXPECT_LE(range.begin, range.end);
      EXPECT_GE(range.begin, end) << line;
      end = std::max(end, range.end);
    }
    EXPECT_LE(end, line.size());
  }
}

// A model without tokenizer.json becomes what the class of transformers makes of it, and is saved as that.
class SentencePieceClass : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Classes, SentencePieceClass,
    ::testing::Values("T5", "Albert", "XLMRoberta", "Camembert", "MBart", "MBart50", "Nllb", "Pegasus", "DebertaV2",
        "Llama", "Gemma"),
    [](const auto& test) { return std::string(test.param); });

TEST_P(SentencePieceClass, GivesTheIdsOfTransformers) {
  const Json golden = Json::parse(read_file(kFolder + "classes.json"), "classes.json", JsonLimits::tables());
  const Json& want = golden.at("classes").at(GetParam());
  const auto ids = [](const Json& json) { return json.get<std::vector<TokenId>>(); };
  testing::TemporaryFolder folder, saved;
  folder.write(want.at("file").text(), read_file(kFolder + want.at("model").text() + ".model"));
  folder.write("tokenizer_config.json", want.at("settings").dump());
  for (const testing::TemporaryFolder* each : {&folder, &saved}) {
    const auto tokenizer = load_pretrained_tokenizer(each->path());
    const auto text = [&](size_t i) -> const std::string& { return golden.at("texts")[i].text(); };
    for (size_t i = 0; i < golden.at("texts").size(); ++i) {
      EXPECT_EQ(tokenizer->encode(text(i), EncodeOptions{}).ids, ids(want.at("ids")[i])) << text(i);
      EXPECT_EQ(tokenizer->decode(ids(want.at("ids")[i])), want.at("decoded")[i].text());
    }
    EXPECT_EQ(tokenizer->encode_pair(text(0), text(1), EncodeOptions{}).ids, ids(want.at("pair")));
    if (each == &folder) tokenizer->save_pretrained(saved.path());
  }
}
}  // namespace
}  // namespace linnet
