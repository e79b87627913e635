#include <gtest/gtest.h>
#include <sentencepiece_processor.h>
#include <sys/wait.h>
#include <algorithm>
#include <cerrno>
#include <thread>
#include "base/files.h"
#include "data/text/trained_tokenizers.h"
#include "error_of.h"
#include "temporary_folder.h"

namespace linnet {
namespace {
using Ids = std::vector<TokenId>;

// Words made of syllables, so that there is something to learn, and the characters that tend to go wrong.
std::vector<std::string> corpus() {
  const char* syllables[] = {"mäd", "chen", "hun", "de", "stra", "ße", "ber", "ge", "lau", "fen", "Stadt", "ü", "Park",
      "ein", "spring", "isst", "re", "na", "tu", "wald"};
  const char* ends[] = {".", "!", "?", " (im Schnee).", " – 3,5 km weit 👍"};
  std::vector<std::string> lines = {""};
  uint32_t state = 1;
  const auto draw = [&](uint32_t below) { return ((state = state * 1664525u + 1013904223u) >> 16) % below; };
  for (int line = 0; line < 300; ++line) {
    std::string text = "Das";
    for (uint32_t words = 2 + draw(6); words > 0; --words) {
      text += ' ';
      for (uint32_t parts = 1 + draw(3); parts > 0; --parts) text += syllables[draw(20)];
    }
    lines.push_back(text + ends[draw(5)]);
  }
  return lines;
}

TokenizerOptions small(const std::string& model_type, int64_t vocab_size = 100) {
  return {.kind = "sentencepiece", .vocab_size = vocab_size, .model_type = model_type};
}

class SentencePieceTest : public ::testing::TestWithParam<const char*> {
 protected:
  const testing::TemporaryFolder made_;
  const std::string folder_ = made_.path();
};
INSTANTIATE_TEST_SUITE_P(Models, SentencePieceTest, ::testing::Values("bpe", "unigram"),
    [](const auto& test) { return std::string(test.param); });

TEST_P(SentencePieceTest, RoundTripsTextOfItsCharacters) {
  const auto tokenizer = train_tokenizer(small(GetParam()), corpus());
  EXPECT_EQ(tokenizer->kind(), "sentencepiece");
  EXPECT_EQ(tokenizer->vocab_size(), 100);
  size_t tokens = 0, bytes = 0;
  for (const std::string& line : corpus()) {
    const Ids ids = tokenizer->encode(line);
    EXPECT_EQ(tokenizer->decode(ids), line);
    for (const TokenId id : ids) EXPECT_TRUE(id >= kSpecialTokenCount && id < 100) << id;
    tokens += ids.size();
    bytes += line.size();
  }
  EXPECT_LT(tokens * 4, bytes * 3);  // it did learn pieces; versions of the trainer differ in how many
  const std::string unseen = "Park 3 mädchen, 5 hunde 👍 (im wald)";
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(unseen)), unseen);
}

TEST_P(SentencePieceTest, SpecialTokensHaveOurIds) {
  const auto tokenizer = train_tokenizer(small(GetParam()), corpus());
  EXPECT_EQ(tokenizer->piece(0), "<pad>");
  EXPECT_EQ(tokenizer->piece(1), "<unk>");
  EXPECT_EQ(tokenizer->piece(2), "<s>");
  EXPECT_EQ(tokenizer->piece(3), "</s>");
  Ids ids = {2};
  tokenizer->encode("Das Park", ids);
  ids.insert(ids.end(), {3, 0, 0});
  EXPECT_EQ(ids[0], 2);
  EXPECT_EQ(tokenizer->decode(ids), "Das Park");
  const Ids unknown = tokenizer->encode("日");
  EXPECT_NE(std::find(unknown.begin(), unknown.end(), 1), unknown.end());
  EXPECT_THROW((void)tokenizer->decode(Ids{100}), Error);
  EXPECT_THROW((void)tokenizer->decode(Ids{-1}), Error);
  EXPECT_THROW((void)tokenizer->piece(100), Error);
  EXPECT_TRUE(tokenizer->encode("").empty());
}

TEST_P(SentencePieceTest, TheSameTextGivesTheSameModel) {
  EXPECT_EQ(train_sentencepiece(small(GetParam()), corpus()), train_sentencepiece(small(GetParam()), corpus()));
}

TEST_P(SentencePieceTest, SavedTokenizersGiveTheTokensAndTextsOfSentencePiece) {
  train_tokenizer(small(GetParam()), corpus())->save(folder_, "source");
  const auto tokenizer = load_tokenizer(folder_, "source");
  sentencepiece::SentencePieceProcessor processor;
  ASSERT_TRUE(processor.LoadFromSerializedProto(train_sentencepiece(small(GetParam()), corpus())).ok());
  ASSERT_EQ(tokenizer->vocab_size(), processor.GetPieceSize());
  for (TokenId id = 0; id < tokenizer->vocab_size(); ++id) EXPECT_EQ(tokenizer->piece(id), processor.IdToPiece(id));
  std::vector<std::string> lines = corpus();
  lines.insert(lines.end(),
      {"日 Park", "Park日本 Das", " ein  Park ", "ﬁ ① ½ ｆｕｌｌ\u00a0width", "</s> <s> <unk>", "a\u0308"});
  for (const std::string& line : lines) {
    Ids ids;
    ASSERT_TRUE(processor.Encode(line, &ids).ok());
    EXPECT_EQ(tokenizer->encode(line), ids) << line;
    for (; !ids.empty(); ids.pop_back()) {
      std::string text;
      ASSERT_TRUE(processor.Decode(ids, &text).ok());
      Ids with_special = {2, 0};
      with_special.insert(with_special.end(), ids.begin(), ids.end());
      with_special.push_back(3);
      EXPECT_EQ(tokenizer->decode(with_special), text) << line;
    }
  }
}

TEST_P(SentencePieceTest, AVocabularyIsAsLargeAsTheTextAllows) {
  const int64_t most = train_tokenizer(small(GetParam(), 8000), corpus())->vocab_size();
  EXPECT_LT(most, 8000);
  EXPECT_EQ(train_tokenizer(small(GetParam(), most), corpus())->vocab_size(), most);
  EXPECT_EQ(train_tokenizer(small(GetParam(), most + 1), corpus())->vocab_size(), most);

  const std::string few = error_of([] { train_tokenizer(small(GetParam(), 10), corpus()); });
  const std::string need =
      "vocab_size 10 is too small for the training text; its characters and the special tokens need ";
  ASSERT_TRUE(few.starts_with(need)) << few;
  const int64_t least = std::stoll(few.substr(need.size()));
  EXPECT_EQ(train_tokenizer(small(GetParam(), least), corpus())->vocab_size(), least);
}

TEST(SentencePiece, OptionsThatCannotBe) {
  EXPECT_EQ(error_of([] { train_tokenizer(small("wordpiece"), corpus()); }),
      "unknown SentencePiece model 'wordpiece' (bpe or unigram)");
  EXPECT_EQ(error_of([] { train_tokenizer(small("bpe", 4), corpus()); }),
      "vocab_size is 4; it must exceed the 4 special tokens and be at most 10000000");
  EXPECT_NE(error_of([] { train_tokenizer(small("unigram", INT32_MAX), corpus()); }), "no error");
  EXPECT_EQ(error_of([] {
    train_tokenizer(small("bpe"), {"", " "});
  }),
      "the training text has nothing to make a vocabulary of");
  TokenizerOptions options = small("bpe");
  options.character_coverage = 0.5;
  EXPECT_EQ(error_of([&] { train_tokenizer(options, corpus()); }), "character_coverage is 0.5; it must lie in 0.98..1");
}

TEST(SentencePiece, NoChildIsLeftBehind) {
  train_sentencepiece(small("bpe"), corpus());
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

TEST(SentencePiece, NormalizesWidthAccentsAndBlanks) {
  const auto tokenizer = train_tokenizer(small("bpe"), corpus());
  EXPECT_EQ(tokenizer->encode(" ma\u0308dchen  im\u00A0Park "), tokenizer->encode("mädchen im Park"));
}

TEST(SentencePiece, EncodesFromSeveralThreads) {
  const auto tokenizer = train_tokenizer(small("unigram"), corpus());
  const auto lines = corpus();
  std::vector<Ids> results(4);
  std::vector<std::thread> threads;
  for (Ids& result : results)
    threads.emplace_back([&] {
      for (const std::string& line : lines) tokenizer->encode(line, result);
    });
  for (std::thread& thread : threads) thread.join();
  for (const Ids& result : results) EXPECT_EQ(result, results[0]);
}

TEST_P(SentencePieceTest, DamagedFilesAreRefused) {
  const auto tokenizer = train_tokenizer(small(GetParam()), corpus());
  tokenizer->save(folder_, "x");
  const std::string good = read_file(folder_ + "/x.model");
  const auto refused = [&](const std::string& bytes) {
    return error_of([&] { open_sentencepiece_model(bytes, "x.model"); }) ==
           "tokenizer file 'x.model' is truncated, damaged or was not written by Linnet";
  };
  EXPECT_FALSE(refused(good));
  EXPECT_TRUE(refused(""));
  EXPECT_TRUE(refused("some text\n"));
  EXPECT_TRUE(refused(good + "\n"));
  for (size_t size = 0; size < good.size(); size += 4999) EXPECT_TRUE(refused(good.substr(0, size))) << size;
  for (size_t at = 0; at < good.size(); at += at + 100 < good.size() ? 4999 : 1) {
    std::string bytes = good;
    bytes[at] = static_cast<char>(bytes[at] ^ 4);
    EXPECT_TRUE(refused(bytes)) << at;
  }
  write_file_atomically(folder_ + "/x.model", good.substr(0, good.size() / 2));
  EXPECT_TRUE(error_of([&] { load_tokenizer(folder_, "x"); }).ends_with("was not written by Linnet"));
  write_file_atomically(folder_ + "/x.model", seal_sentencepiece_model("no protobuf at all"));
  EXPECT_TRUE(error_of([&] {
    load_tokenizer(folder_, "x");
  }).starts_with("'" + folder_ + "/x.model' is no SentencePiece model"));
}
}  // namespace
}  // namespace linnet
