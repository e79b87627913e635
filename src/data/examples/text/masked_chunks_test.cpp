#include <gtest/gtest.h>
#include <algorithm>
#include <map>
#include "base/error.h"
#include "batch_testing.h"
#include "data/examples/text/token_chunks.h"

namespace linnet {
namespace {
constexpr int32_t kBegin = 1, kEnd = 2, kMask = 3, kVocabulary = 200;

struct Buffers {
  explicit Buffers(const MaskingOptions& options)
      : tokens(static_cast<size_t>(options.rows * options.lengths.back())), lengths(static_cast<size_t>(options.rows)),
        positions(static_cast<size_t>(options.rows * masked_places(options, options.lengths.back()))),
        targets(positions.size()) {}
  // Copies what a source made.
  const Batch& take(const Batch& batch) {
    tokens = testing::copy_ids(batch, "tokens");
    lengths = testing::copy_ids(batch, "lengths");
    positions = testing::copy_ids(batch, "positions");
    targets = testing::copy_ids(batch, "targets");
    return batch;
  }
  bool operator==(const Buffers&) const = default;
  std::vector<int32_t> tokens, lengths, positions, targets;
};

MaskingOptions options(std::vector<int64_t> lengths, int64_t rows) {
  return {.rows = rows,
      .lengths = std::move(lengths),
      .begin = kBegin,
      .end = kEnd,
      .mask = kMask,
      .special = {0},
      .vocab_size = kVocabulary};
}

std::vector<int32_t> counting(int64_t count) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<int32_t>(10 + i % (kVocabulary - 10)));
  return tokens;
}

TEST(MaskedChunks, EveryTokenIsInOneRowAndTheTargetsAreWhatStoodThere) {
  const std::vector<int32_t> text = counting(1000);
  const TokenStream stream(text, kVocabulary);
  const MaskingOptions masking = options({8, 32}, 3);
  MaskedChunks chunks(stream, {{0, 600}, {600, 5}, {605, 395}}, masking, 7);
  Buffers buffers(masking);
  for (int epoch = 0; epoch < 2; ++epoch) {
    std::map<int32_t, int> seen, expected;
    for (int32_t token : text) ++expected[token];
    for (bool last = false; !last;) {
      const Batch& location = buffers.take(chunks.next());
      EXPECT_EQ(location.epoch, epoch);
      last = location.last_of_epoch;
      const int64_t length = masking.lengths[static_cast<size_t>(location.shape_index)],
                    room = masked_places(masking, length);
      std::vector<int32_t> restored = buffers.tokens;
      for (int64_t i = 0; i < masking.rows * room; ++i) {
        const auto at = static_cast<size_t>(buffers.positions[static_cast<size_t>(i)]);
        EXPECT_EQ(static_cast<int64_t>(at) / length, i / room);  // a position of its own row
        if (buffers.targets[static_cast<size_t>(i)] >= 0) restored[at] = buffers.targets[static_cast<size_t>(i)];
      }
      for (int64_t row = 0; row < masking.rows; ++row) {
        const int64_t size = buffers.lengths[static_cast<size_t>(row)];
        if (size == 1) continue;
        const int32_t* tokens = restored.data() + row * length;
        EXPECT_EQ(tokens[0], kBegin);
        EXPECT_EQ(tokens[size - 1], kEnd);
        for (int64_t i = 1; i + 1 < size; ++i) ++seen[tokens[i]];
        for (int64_t i = 2; i + 1 < size; ++i)  // neighbors in the text: no row holds two documents
          EXPECT_EQ(tokens[i], tokens[i - 1] + 1 == kVocabulary ? 10 : tokens[i - 1] + 1);
      }
    }
    EXPECT_EQ(seen, expected);
  }
}

TEST(MaskedChunks, FifteenPercentOfWhichEightyTenTen) {
  const std::vector<int32_t> text = counting(60'000);
  const TokenStream stream(text, kVocabulary);
  const MaskingOptions masking = options({102}, 10);
  MaskedChunks chunks(stream, find_documents(stream, -1), masking, 7);
  Buffers buffers(masking);
  int64_t chosen = 0, masked = 0, kept = 0;
  for (bool last = false; !last;) {
    last = buffers.take(chunks.next()).last_of_epoch;
    for (size_t i = 0; i < buffers.targets.size(); ++i) {
      if (buffers.targets[i] < 0) continue;
      const int32_t now = buffers.tokens[static_cast<size_t>(buffers.positions[i])];
      ++chosen, masked += now == kMask, kept += now == buffers.targets[i];
    }
  }
  const auto share = [](int64_t part, int64_t whole) { return static_cast<double>(part) / static_cast<double>(whole); };
  EXPECT_NEAR(share(chosen, 60'000), 0.15, 0.001);
  EXPECT_NEAR(share(masked, chosen), 0.8, 0.02);
  EXPECT_NEAR(share(kept, chosen), 0.1 + 0.1 / kVocabulary, 0.015);
}

TEST(MaskedChunks, SeekingGivesWhatGoingThereGives) {
  const TokenStream stream(counting(3000), kVocabulary);
  const MaskingOptions masking = options({16, 64}, 4);
  const std::vector<TokenSpan> documents{{0, 1000}, {1000, 9}, {1009, 1991}};
  MaskedChunks straight(stream, documents, masking, 3), other_seed(stream, documents, masking, 4);
  Buffers buffers(masking), sought(masking), other(masking);
  bool differs = false;
  for (int i = 0; i < 40; ++i) {
    const Batch& location = buffers.take(straight.next());
    MaskedChunks fresh(stream, documents, masking, 3);
    fresh.seek(location.epoch, location.index);
    const Batch& again = sought.take(fresh.next());
    EXPECT_EQ(again.shape_index, location.shape_index);
    const auto used = static_cast<size_t>(masking.rows * masking.lengths[static_cast<size_t>(location.shape_index)]);
    EXPECT_TRUE(std::equal(
        sought.tokens.begin(), sought.tokens.begin() + static_cast<std::ptrdiff_t>(used), buffers.tokens.begin()));
    EXPECT_EQ(sought.lengths, buffers.lengths);
    other.take(other_seed.next());
    differs = differs || other.tokens != buffers.tokens;
  }
  EXPECT_TRUE(differs);
  EXPECT_THROW(straight.seek(0, 10'000), Error);
}

TEST(MaskedChunks, ScoringIsTheSameEveryTime) {
  const TokenStream stream(counting(500), kVocabulary);
  const MaskingOptions masking = options({20}, 2);
  MaskedChunks chunks(stream, {{0, 500}}, masking, 3), another(stream, {{0, 500}}, masking, 99);
  Buffers a(masking), b(masking);
  ASSERT_EQ(chunks.scoring_batches(), 14);
  for (int64_t i = 0; i < chunks.scoring_batches(); ++i) {
    a.take(chunks.scoring_batch(i));
    b.take(another.scoring_batch(i));
    EXPECT_EQ(a, b);
  }
}

TEST(MaskedChunks, DocumentsAreFoundBetweenSeparators) {
  const TokenStream stream({2, 5, 6, 2, 2, 7, 8, 9, 2, 10}, kVocabulary);
  EXPECT_EQ(find_documents(stream, 2), (std::vector<TokenSpan>{{1, 2}, {5, 3}, {9, 1}}));
  EXPECT_EQ(find_documents(stream, -1), (std::vector<TokenSpan>{{0, 10}}));
  const TokenStream empty({2, 2}, kVocabulary);
  EXPECT_THROW(MaskedChunks(empty, find_documents(empty, 2), options({8}, 1), 1), Error);
}
}  // namespace
}  // namespace linnet
