#include <gtest/gtest.h>
#include <memory>
#include "data/examples/text/parallel_text.h"
#include "error_of.h"

namespace linnet {
namespace {
using Ids = std::vector<TokenId>;

std::unique_ptr<Tokenizer> words(const std::vector<std::string>& lines) {
  TokenizerOptions options;
  options.kind = "word";
  options.vocab_size = 100;
  return train_tokenizer(options, lines);
}

Ids copy(std::span<const TokenId> ids) { return {ids.begin(), ids.end()}; }

class PairDatasetTest : public ::testing::Test {
 protected:
  PairDataset dataset(const ParallelText& text, int64_t max_seq_len, bool drop_long) {
    return PairDataset(text, *source_, *target_, {.max_seq_len = max_seq_len, .drop_long = drop_long});
  }
  Ids source(const std::string& line) { return source_->encode(line); }
  Ids target(const std::string& line) { return target_->encode(line); }
  static Ids joined(Ids a, const Ids& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  }

  const std::unique_ptr<Tokenizer> source_ = words({"a man a plan a canal", "panama"});
  const std::unique_ptr<Tokenizer> target_ = words({"ein mann ein plan", "ein kanal"});
  const Ids begin_{SpecialTokens{}.begin}, end_{SpecialTokens{}.end};
};

TEST_F(PairDatasetTest, RowsCarryBeginAndEnd) {
  const PairDataset data = dataset({{"a man", "panama"}, {"ein mann", "kanal ein plan"}}, 8, true);
  ASSERT_EQ(data.size(), 2);
  EXPECT_EQ(copy(data.source(0)), joined(source("a man"), end_));
  EXPECT_EQ(copy(data.target_in(1)), joined(begin_, target("kanal ein plan")));
  EXPECT_EQ(copy(data.target_out(1)), joined(target("kanal ein plan"), end_));
  EXPECT_EQ(data.lengths(), (std::vector<std::pair<int, int>>{{3, 3}, {2, 4}}));
}

// As of models of many languages: what decoding begins with is read alone, the language after it is found, too.
TEST_F(PairDatasetTest, AFrameIsPartOfTheLength) {
  const SentenceFrame frame{.source_begin = {70}, .source_end = {71}, .target_begin = {71, 72}, .target_end = {71}};
  const ParallelText text{{"a man", "a plan a"}, {"ein mann", "ein"}};
  const PairDataset data(text, *source_, *target_, {.max_seq_len = 4, .drop_long = false, .frame = frame});
  EXPECT_EQ(copy(data.source(0)), joined(joined({70}, source("a man")), {71}));
  EXPECT_EQ(copy(data.target_in(0)), joined({71, 72}, target("ein mann")));
  EXPECT_EQ(copy(data.target_out(0)), joined(joined({72}, target("ein mann")), {71}));
  EXPECT_EQ(copy(data.source(1)), joined(joined({70}, source("a plan")), {71}));  // cut
  EXPECT_EQ(data.report().truncated, 1);
}

TEST_F(PairDatasetTest, TrainingDropsEmptyAndLongPairsAndCountsThem) {
  // Of 4 tokens with the end token at most; the second pair has an empty side, the third and fifth are too long.
  const PairDataset data = dataset(
      {{"a man a", "", "a man a plan", "a dog", "a"}, {"ein mann", "ein", "ein", "ein hund hund", "ein ein ein ein"}},
      4, true);
  const DatasetReport& report = data.report();
  EXPECT_EQ(data.size(), 2);
  EXPECT_EQ(copy(data.source(1)), joined(source("a dog"), end_));
  EXPECT_EQ(report.dropped_empty, 1);
  EXPECT_EQ(report.dropped_long, 2);
  EXPECT_EQ(report.truncated, 0);
  EXPECT_EQ(report.unknown_source_tokens, 1);
  EXPECT_EQ(report.unknown_target_tokens, 2);
  EXPECT_EQ(report.source_tokens, 4 + 3);
  EXPECT_EQ(report.target_tokens, 3 + 4);
  EXPECT_EQ(report.text(),
      "2 pairs, 7 source and 7 target tokens (14.29% and 28.57% unknown), 1 dropped as empty, "
      "2 dropped as too long");
}

TEST_F(PairDatasetTest, EvaluationKeepsEveryLineAndCutsLongOnes) {
  const PairDataset data = dataset({{"a man a plan", "", "a"}, {"ein", "ein plan", "ein mann ein plan"}}, 3, false);
  ASSERT_EQ(data.size(), 3);
  EXPECT_EQ(copy(data.source(0)), joined(source("a man"), end_));
  EXPECT_EQ(copy(data.target_out(0)), joined(target("ein"), end_));
  EXPECT_EQ(copy(data.source(1)), end_);
  EXPECT_EQ(copy(data.target_in(2)), joined(begin_, target("ein mann")));
  EXPECT_EQ(data.report().truncated, 2);
  EXPECT_EQ(data.report().dropped_long + data.report().dropped_empty, 0);
}

TEST_F(PairDatasetTest, NothingLeftIsAUserError) {
  const std::string message = error_of([&] { dataset({{"", "a man a plan"}, {"ein", "ein"}}, 4, true); });
  EXPECT_EQ(message, "no sentence pair is left of 2: 1 have an empty side, 1 have more than max_seq_len = 4 tokens");
}

TEST_F(PairDatasetTest, MemoryIsFourBytesATokenAndSixteenAPair) {
  const int64_t count = 100'000;  // more than one block of tokens
  const ParallelText text{
      std::vector<std::string>(count, "a man a plan a canal"), std::vector<std::string>(count, "ein mann ein plan")};
  const PairDataset data = dataset(text, 16, true);
  EXPECT_EQ(data.bytes(), 4u * count * (7 + 6) + 8u * (2 * count + 1));
  EXPECT_EQ(copy(data.source(count - 1)), copy(data.source(0)));
  EXPECT_EQ(copy(data.target_out(count - 1)), copy(data.target_out(0)));
}
}  // namespace
}  // namespace linnet
