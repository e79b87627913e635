#include "data/text/tokenizer.h"
#include <gtest/gtest.h>
#include <filesystem>
#include "base/files.h"
#include "data/text/trained_tokenizers.h"
#include "data/text/unicode/utf8.h"
#include "error_of.h"
#include "temporary_folder.h"

namespace linnet {
namespace {
namespace fs = std::filesystem;
using Ids = std::vector<TokenId>;

class TokenizerTest : public ::testing::Test {
 protected:
  const testing::TemporaryFolder made_;
  const std::string folder_ = made_.path();
};

TEST_F(TokenizerTest, CharactersByFrequencyThenBytes) {
  const auto tokenizer = train_tokenizer({.kind = "char"}, {"bbb aa", "ccü"});
  EXPECT_EQ(tokenizer->kind(), "char");
  EXPECT_EQ(tokenizer->vocab_size(), 4 + 5);
  EXPECT_EQ(tokenizer->encode("bac ü"), (Ids{4, 5, 6, 7, 8}));
  EXPECT_EQ(tokenizer->encode("bx"), (Ids{4, 1}));
  EXPECT_EQ(tokenizer->decode(Ids{2, 4, 8, 1, 3, 0, 0}), "bü\uFFFD");
  EXPECT_EQ(tokenizer->piece(0), "<pad>");
  EXPECT_EQ(tokenizer->piece(8), "ü");
}

TEST_F(TokenizerTest, CharactersRoundTripAnyCoveredText) {
  const std::vector<std::string> lines = {
      "Ein Hund – „wau“!", "日本語 👩‍🚀\t\\s", "  two  spaces  ", "e\u0301 é"};
  const auto tokenizer = train_tokenizer({.kind = "char"}, lines);
  for (const std::string& line : lines) {
    const Ids ids = tokenizer->encode(line);
    EXPECT_EQ(ids.size(), count_code_points(line));
    EXPECT_EQ(tokenizer->decode(ids), line);
  }
}

TEST_F(TokenizerTest, WordsKeepTheMostFrequent) {
  const auto tokenizer = train_tokenizer({.kind = "word", .vocab_size = 7}, {"the cat the dog", "the  cat\tzebra"});
  EXPECT_EQ(tokenizer->kind(), "word");
  EXPECT_EQ(tokenizer->vocab_size(), 7);
  EXPECT_EQ(tokenizer->encode(" the cat  dog zebra "), (Ids{4, 5, 6, 1}));
  EXPECT_EQ(tokenizer->decode(Ids{2, 4, 6, 1, 3}), "the dog <unk>");
}

TEST_F(TokenizerTest, EncodeAppendsAndAddsNoMarks) {
  const auto tokenizer = train_tokenizer({.kind = "char"}, {"ab"});
  Ids ids{9};
  tokenizer->encode("ab", ids);
  tokenizer->encode("", ids);
  EXPECT_EQ(ids, (Ids{9, 4, 5}));
}

TEST_F(TokenizerTest, SavedTokenizersComeBackTheSame) {
  const std::vector<std::string> lines = {"a\\b \t\r x\u3000y", "\\n \\ <unk> 👍 naïve"};
  for (const char* kind : {"char", "word"}) {
    const auto tokenizer = train_tokenizer({.kind = kind}, lines);
    tokenizer->save(folder_, kind);
    const auto again = load_tokenizer(folder_, kind);
    EXPECT_EQ(again->kind(), kind);
    ASSERT_EQ(again->vocab_size(), tokenizer->vocab_size());
    for (TokenId id = 0; id < tokenizer->vocab_size(); ++id) EXPECT_EQ(again->piece(id), tokenizer->piece(id));
    for (const std::string& line : lines) EXPECT_EQ(again->encode(line), tokenizer->encode(line));
    EXPECT_FALSE(fs::exists(folder_ + "/" + kind + "." + kind + ".tmp"));
  }
}

TEST_F(TokenizerTest, WordsThatLookLikeSpecialTokensStayWords) {
  const auto tokenizer = train_tokenizer({.kind = "word"}, {"<pad> </s>"});
  const Ids ids = tokenizer->encode("<pad> </s>");
  EXPECT_GE(ids[0], kSpecialTokenCount);
  EXPECT_EQ(tokenizer->decode(ids), "<pad> </s>");
}

TEST_F(TokenizerTest, IdsOutsideTheVocabularyAreAnError) {
  const auto tokenizer = train_tokenizer({.kind = "char"}, {"ab"});
  for (const TokenId id : {-1, 6, INT32_MAX})
    EXPECT_EQ(error_of([&] { (void)tokenizer->decode(Ids{id}); }, ErrorKind::kInternal),
        "token " + std::to_string(id) + " is outside the vocabulary of 6");
}

TEST_F(TokenizerTest, OptionsThatCannotBe) {
  EXPECT_EQ(error_of([] { train_tokenizer({.kind = "letters"}, {"a"}); }),
      "unknown tokenizer 'letters' (char, word or sentencepiece)");
  EXPECT_EQ(error_of([] { train_tokenizer({.kind = "char", .vocab_size = 4}, {"a"}); }),
      "vocab_size is 4; it must exceed the 4 special tokens");
  EXPECT_EQ(error_of([] {
    train_tokenizer({.kind = "word"}, {" ", ""});
  }),
      "the training text has no words to make a vocabulary of");
}

TEST_F(TokenizerTest, MissingOrAmbiguousFiles) {
  EXPECT_EQ(error_of([&] { load_tokenizer(folder_, "source"); }),
      "no tokenizer 'source' in '" + folder_ + "' (neither .char, .word nor .model)");
  train_tokenizer({.kind = "char"}, {"ab"})->save(folder_, "source");
  train_tokenizer({.kind = "word"}, {"ab"})->save(folder_, "source");
  EXPECT_EQ(error_of([&] { load_tokenizer(folder_, "source"); }),
      "'" + folder_ + "' holds two tokenizers for 'source': .char and .word");
  EXPECT_NE(
      error_of([&] { train_tokenizer({.kind = "char"}, {"ab"})->save(folder_ + "/none", "x"); }, ErrorKind::kSystem),
      "no error");
}

TEST(VocabularyFile, EveryDamageIsNamed) {
  const auto parse = [](const std::string& bytes) {
    return error_of([&] { parse_vocabulary(TextUnit::kWord, bytes, "f"); });
  };
  const std::string damaged = "tokenizer file 'f' is damaged: ";
  const std::string not_ours = damaged + "it does not start with 'linnet-tokenizer 1 word COUNT' ";
  EXPECT_EQ(parse(""), not_ours + "(line 0)");
  EXPECT_EQ(parse("linnet-tokenizer 1 char 1\na\n"), not_ours + "(line 1)");
  EXPECT_EQ(parse("linnet-tokenizer 1 word 2\na\n"), damaged + "it promises 2 tokens and has 1 (line 2)");
  EXPECT_EQ(parse("linnet-tokenizer 1 word 1\na"), damaged + "it promises 1 tokens and has 0 (line 1)");
  EXPECT_EQ(parse("linnet-tokenizer 1 word 2\na\na\n"), damaged + "the same token twice (line 3)");
  EXPECT_EQ(parse("linnet-tokenizer 1 word 1\na b\n"), damaged + "not a single word (line 2)");
  EXPECT_EQ(parse("linnet-tokenizer 1 word 1\n\n"), damaged + "not a single word (line 2)");
  EXPECT_EQ(parse("linnet-tokenizer 1 word 1\na\\x\n"), damaged + "a backslash that escapes nothing (line 2)");
  EXPECT_EQ(parse("linnet-tokenizer 1 word 1\n\xFF\n"), damaged + "invalid UTF-8 (line 2)");
}

// Any change of any byte either still is a vocabulary or is a user error; nothing else may happen.
TEST(VocabularyFile, NoDamageCrashes) {
  const std::vector<std::string> tokens = {"a", "\\", " ", "ü", "\n", "👍"};
  const std::string good = format_vocabulary(TextUnit::kCharacter, tokens);
  EXPECT_EQ(parse_vocabulary(TextUnit::kCharacter, good, "f")->vocab_size(), 10);
  const auto survive = [](const std::string& bytes) {
    error_of([&] { parse_vocabulary(TextUnit::kCharacter, bytes, "f"); });
  };
  for (size_t i = 0; i < good.size(); ++i) {
    survive(good.substr(0, i));
    for (int value = 0; value < 256; ++value) {
      std::string bytes = good;
      bytes[i] = static_cast<char>(value);
      survive(bytes);
    }
  }
}
}  // namespace
}  // namespace linnet
