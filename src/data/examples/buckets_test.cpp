#include <gtest/gtest.h>
#include <algorithm>
#include <cmath>
#include <random>
#include "base/error.h"
#include "data/examples/batch_stream.h"

namespace linnet {
namespace {
using Lengths = std::vector<std::pair<int, int>>;

// Like Multi30k in 8000 pieces: means of about 15, a few of 40 and more, the two sides of a pair alike.
Lengths caption_lengths(int count) {
  std::mt19937_64 random(7);
  const auto normal = [&] {
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += static_cast<double>(random() >> 11) * 0x1p-53;
    return sum;
  };
  Lengths lengths;
  for (int i = 0; i < count; ++i) {
    const double source = std::exp(2.65 + 0.33 * normal()), target = source * std::exp(0.03 + 0.2 * normal());
    const auto rounded = [](double length) { return std::clamp(static_cast<int>(length) + 1, 2, 64); };
    lengths.emplace_back(rounded(source), rounded(target));
  }
  return lengths;
}

std::vector<int64_t> pairs_by_bucket(const Buckets& buckets, const Lengths& lengths) {
  std::vector<int64_t> counts(buckets.size(), 0);
  for (const auto& [source, target] : lengths) {
    const int bucket = buckets.find(source, target);
    EXPECT_GE(bucket, 0) << source << " " << target;
    if (bucket >= 0) ++counts[bucket];
  }
  return counts;
}

TEST(Buckets, SixteenWasteLittlePadding) {
  const Lengths lengths = caption_lengths(20'000);
  const Buckets buckets = Buckets::choose(lengths, {.batch_tokens = 2048, .num_buckets = 16, .max_seq_len = 64});
  EXPECT_LE(buckets.size(), 16);
  const std::vector<int64_t> counts = pairs_by_bucket(buckets, lengths);
  double source = 0, target = 0, padded_source = 0, padded_target = 0;
  for (const auto& [s, t] : lengths) source += s, target += t;
  for (int64_t i = 0; i < buckets.size(); ++i) {  // with the padded rows of the last batch
    const BatchShape shape = buckets.shapes()[i];
    const int64_t rows = (counts[i] + shape.batch - 1) / shape.batch * shape.batch;
    padded_source += static_cast<double>(rows * shape.source_length);
    padded_target += static_cast<double>(rows * shape.target_length);
  }
  EXPECT_LT(1 - source / padded_source, 0.15);
  EXPECT_LT(1 - target / padded_target, 0.15);
}

TEST(Buckets, KeepTheBudgetTheLimitsAndTheMultiple) {
  const Lengths lengths = caption_lengths(5'000);
  for (int64_t max_seq_len : {64, 70}) {
    const Buckets buckets =
        Buckets::choose(lengths, {.batch_tokens = 500, .num_buckets = 6, .max_seq_len = max_seq_len});
    EXPECT_LE(buckets.size(), 6);
    const std::vector<int64_t> counts = pairs_by_bucket(buckets, lengths);
    for (int64_t i = 0; i < buckets.size(); ++i) {
      const BatchShape shape = buckets.shapes()[i];
      EXPECT_LE(shape.batch * std::max(shape.source_length, shape.target_length), 500);
      EXPECT_GT(counts[i], 0);
      for (int64_t length : {shape.source_length, shape.target_length})
        EXPECT_TRUE(length <= max_seq_len && (length % 2 == 0 || length == max_seq_len)) << length;
    }
  }
}

TEST(Buckets, OneBucketHoldsEverything) {
  const Lengths lengths{{3, 9}, {15, 2}, {5, 5}};
  const Buckets buckets = Buckets::choose(lengths, {.batch_tokens = 16, .num_buckets = 1, .max_seq_len = 15});
  EXPECT_EQ(buckets.shapes(), (std::vector<BatchShape>{{1, 15, 10}}));
}

TEST(Buckets, BatchSizeAloneGivesEveryBucketThatManyRows) {
  const Lengths lengths = caption_lengths(5'000);
  const Buckets buckets =
      Buckets::choose(lengths, {.batch_tokens = 0, .batch_size = 32, .num_buckets = 4, .max_seq_len = 64});
  EXPECT_GT(buckets.size(), 1);
  for (const BatchShape& shape : buckets.shapes()) EXPECT_EQ(shape.batch, 32);
  const Buckets both =
      Buckets::choose(lengths, {.batch_tokens = 1000, .batch_size = 32, .num_buckets = 4, .max_seq_len = 64});
  for (const BatchShape& shape : both.shapes()) EXPECT_LE(shape.batch, 32);
}

TEST(Buckets, TinyDatasetsGetTinyBatches) {
  const Lengths lengths{{4, 4}, {5, 8}, {7, 6}};
  const Buckets buckets =
      Buckets::choose(lengths, {.batch_tokens = 4096, .batch_size = 64, .num_buckets = 8, .max_seq_len = 64});
  // One batch of three costs less than three of one.
  EXPECT_EQ(buckets.shapes(), (std::vector<BatchShape>{{3, 8, 8}}));
  // A sentence longer than the budget still gets a row.
  const Buckets narrow = Buckets::choose(Lengths{{40, 40}, {40, 40}}, {.batch_tokens = 10, .max_seq_len = 64});
  EXPECT_EQ(narrow.shapes(), (std::vector<BatchShape>{{1, 40, 40}}));
}

TEST(Buckets, DependOnTheLengthsOnlyAndNotOnTheirOrder) {
  Lengths lengths = caption_lengths(3'000);
  const BucketOptions options{.batch_tokens = 1024, .num_buckets = 8, .max_seq_len = 64};
  const Buckets first = Buckets::choose(lengths, options);
  std::reverse(lengths.begin(), lengths.end());
  EXPECT_EQ(Buckets::choose(lengths, options).shapes(), first.shapes());
}

TEST(Buckets, LongDocumentsOfEveryLengthAreStillCovered) {
  Lengths lengths;
  for (int i = 0; i < 20'000; ++i) lengths.emplace_back(1 + i * 7919 % 1000, 1 + i * 104'729 % 1000);
  const Buckets buckets = Buckets::choose(lengths, {.batch_tokens = 8192, .num_buckets = 32, .max_seq_len = 1024});
  EXPECT_EQ(buckets.size(), 32);
  pairs_by_bucket(buckets, lengths);
}

TEST(Buckets, FindGivesTheCheapestThatFits) {
  const Buckets buckets({{1, 16, 16}, {1, 8, 16}, {1, 16, 8}, {1, 8, 8}});
  EXPECT_EQ(buckets.shapes()[buckets.find(8, 8)], (BatchShape{1, 8, 8}));
  EXPECT_EQ(buckets.shapes()[buckets.find(9, 8)], (BatchShape{1, 16, 8}));
  EXPECT_EQ(buckets.shapes()[buckets.find(1, 9)], (BatchShape{1, 8, 16}));
  EXPECT_EQ(buckets.shapes()[buckets.find(9, 9)], (BatchShape{1, 16, 16}));
  EXPECT_EQ(buckets.find(17, 1), -1);
}

TEST(Buckets, NeedARowLimit) {
  EXPECT_THROW(Buckets::choose(Lengths{{1, 1}}, {.batch_tokens = 0, .batch_size = 0}), Error);
}
}  // namespace
}  // namespace linnet
