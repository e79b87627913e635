#include <gtest/gtest.h>
#include <unistd.h>
#include <filesystem>
#include "base/error.h"
#include "base/files.h"
#include "data/text/pipeline/tokenizer_json.h"
#include "data/text/trained_tokenizers.h"
#include "error_of.h"

namespace linnet {
namespace {
std::vector<std::string> pieces_of(const PretrainedTokenizer& tokenizer, const std::string& text) {
  std::vector<std::string> pieces;
  for (const TokenId id : tokenizer.encode(text, EncodeOptions{}).ids) pieces.push_back(tokenizer.piece(id));
  return pieces;
}

using Pieces = std::vector<std::string>;

TEST(WordPieceTrainer, FrequentWordsBecomePiecesAndOthersAreCut) {
  const std::vector<std::string> texts{"Lower, lower and lower", "newer newer: newest", "lower newer", "x"};
  const auto tokenizer = train_wordpiece(texts, {.vocab_size = 100});
  EXPECT_EQ(pieces_of(*tokenizer, "LOWER newer"), (Pieces{"[CLS]", "lower", "newer", "[SEP]"}));
  EXPECT_GT(pieces_of(*tokenizer, "newest").size(), 3u);
  EXPECT_EQ(pieces_of(*tokenizer, "q"), (Pieces{"[CLS]", "[UNK]", "[SEP]"}));
  EXPECT_EQ(tokenizer->roles().pad, 0);
  EXPECT_NE(tokenizer->roles().mask, kNoToken);
  EXPECT_LT(tokenizer->vocab_size(), 100);
  const auto cased = train_wordpiece(texts, {.vocab_size = 100, .lowercase = false});
  EXPECT_NE(pieces_of(*cased, "Lower"), pieces_of(*cased, "lower"));
}

// What a run folder keeps gives the same tokens, also for accents, which stay.
TEST(WordPieceTrainer, IsSavedAsItIs) {
  const std::vector<std::string> texts{"Größere Häuser, größere Häuser", "漢字 größer 漢字"};
  const auto tokenizer = train_wordpiece(texts, {.vocab_size = 60});
  const std::string folder =
      (std::filesystem::temp_directory_path() / ("linnet_wordpiece_" + std::to_string(::getpid()))).string();
  tokenizer->save_pretrained(folder);
  const auto loaded = load_pretrained_tokenizer(folder);
  std::filesystem::remove_all(folder);
  for (const std::string text : {"Größere Häuser", "grosse Hauser 漢字", "groß"})
    EXPECT_EQ(pieces_of(*loaded, text), pieces_of(*tokenizer, text));
  EXPECT_EQ(pieces_of(*loaded, "GRÖSSERE"), pieces_of(*loaded, "grössere"));
  EXPECT_NE(pieces_of(*loaded, "größere"), pieces_of(*loaded, "grossere"));
}

TEST(WordPieceTrainer, RareCharactersGoFirstWhereTheVocabularyIsSmall) {
  const auto tokenizer = train_wordpiece({"aaaa aaaa bb a a z"}, {.vocab_size = 9});
  EXPECT_LE(tokenizer->vocab_size(), 9);
  EXPECT_EQ(pieces_of(*tokenizer, "z"), (Pieces{"[CLS]", "[UNK]", "[SEP]"}));
  EXPECT_NE(pieces_of(*tokenizer, "a"), (Pieces{"[CLS]", "[UNK]", "[SEP]"}));
  EXPECT_THROW(train_wordpiece({" ", ""}, {}), Error);
}

TEST(BpeTrainer, LearnsTheMostFrequentPairsFirst) {
  BpeTrainer trainer({.vocab_size = 260});
  trainer.add("abab abab abc abc\n");
  const auto tokenizer = trainer.train();
  EXPECT_EQ(tokenizer->vocab_size(), 260);
  EXPECT_EQ(tokenizer->piece(256), "ab");  // 6 times
  EXPECT_EQ(tokenizer->roles().end, 259);
  const std::string text = "abab abc \xFF 世界\r\n";
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
}

TEST(BpeTrainer, TheSameTextGivesTheSameTokenizer) {
  const std::string text = read_file("README.md");
  const auto train = [&] {
    BpeTrainer trainer({.vocab_size = 700});
    trainer.add(text);
    const auto tokenizer = trainer.train();
    return dynamic_cast<PipelineTokenizer&>(*tokenizer).to_json();
  };
  EXPECT_EQ(train(), train());
  EXPECT_NE(error_of([] { BpeTrainer({.vocab_size = 200}); }), "no error");
  EXPECT_EQ(error_of([] { BpeTrainer({}).train(); }), "the training text is empty");
}
}  // namespace
}  // namespace linnet
