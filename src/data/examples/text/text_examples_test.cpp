#include "data/examples/text/text_examples.h"
#include <gtest/gtest.h>
#include <set>
#include "base/error.h"
#include "batch_testing.h"

namespace linnet {
namespace {
TextExamples sequences(int32_t count) {
  TextExamples data;
  for (int32_t i = 0; i < count; ++i) {
    const auto label = static_cast<float>(i % 3);
    data.add(std::vector<int32_t>(static_cast<size_t>(1 + i * 7 % 20), i), {&label, 1});
  }
  return data;
}

struct Rows {
  std::vector<int32_t> tokens = std::vector<int32_t>(4 * 20), lengths = std::vector<int32_t>(4), labels = lengths;
  // Copies what a source made.
  const Batch& take(const Batch& batch) {
    tokens = testing::copy_ids(batch, "tokens");
    lengths = testing::copy_ids(batch, "lengths");
    labels = testing::copy_ids(batch, "labels");
    return batch;
  }
};

const std::vector<int64_t> kLengths{8, 20};

TEST(TextBatches, AnEpochHoldsEveryExampleOnceInAnotherOrder) {
  const TextExamples data = sequences(50);
  TextBatches batches(data, 4, kLengths, 1);
  Rows rows;
  std::vector<std::vector<int32_t>> epochs;
  for (int epoch = 0; epoch < 2; ++epoch) {
    std::vector<int32_t> seen;
    for (int64_t i = 0; i < 13; ++i) {
      const Batch& location = rows.take(batches.next());
      EXPECT_EQ(location.last_of_epoch, i == 12);
      const int64_t length = kLengths[static_cast<size_t>(location.shape_index)];
      for (int64_t row = 0; row < 4; ++row) {
        if (rows.labels[static_cast<size_t>(row)] < 0) continue;
        const int32_t id = rows.tokens[static_cast<size_t>(row * length)];
        EXPECT_EQ(rows.labels[static_cast<size_t>(row)], id % 3);
        EXPECT_EQ(rows.lengths[static_cast<size_t>(row)], 1 + id * 7 % 20);
        seen.push_back(id);
      }
    }
    EXPECT_EQ(std::set<int32_t>(seen.begin(), seen.end()).size(), 50u);
    EXPECT_EQ(seen.size(), 50u);
    epochs.push_back(seen);
  }
  EXPECT_NE(epochs[0], epochs[1]);
}

TEST(TextBatches, GoOnFromAnyBatch) {
  const TextExamples data = sequences(50);
  TextBatches straight(data, 4, kLengths, 1), resumed(data, 4, kLengths, 1);
  Rows a, b;
  for (int i = 0; i < 20; ++i) a.take(straight.next());
  const Batch& location = a.take(straight.next());
  resumed.seek(location.epoch, location.index);
  EXPECT_EQ(b.take(resumed.next()).shape_index, location.shape_index);
  EXPECT_EQ(a.labels, b.labels);
  EXPECT_EQ(a.lengths, b.lengths);
  EXPECT_THROW(resumed.seek(0, 13), Error);
}

std::vector<float> numbers_of(const Batch& batch, const char* name) {
  for (const BatchArray& array : batch.arrays)
    if (std::string(array.name) == name) {
      const auto* values = reinterpret_cast<const float*>(array.bytes.data());
      return {values, values + array.bytes.size() / sizeof(float)};
    }
  return {};
}

TEST(TextBatches, NumbersOfRowsWithoutAnExampleWeighNothing) {
  TextExamples data({LabelForm::Kind::kNumbers, 2});
  data.add({7, 8}, std::vector<float>{-1.5f, 2});
  data.add({9}, std::vector<float>{3, 4});
  TextBatches batches(data, 3, {4}, 1);
  const Batch& batch = batches.sorted_batch(0);
  EXPECT_EQ(numbers_of(batch, "labels"), (std::vector<float>{3, 4, -1.5f, 2, 0, 0}));
  EXPECT_EQ(numbers_of(batch, "weights"), (std::vector<float>{1, 1, 0}));
}

TEST(TextBatches, TokensHaveClassesAndTypes) {
  TextExamples data({LabelForm::Kind::kTokenClasses});
  data.add({5, 6, 7}, std::vector<float>{-1, 2, 0});
  data.types = {{0, 0, 1}};
  TextBatches batches(data, 2, {4}, 1);
  const Batch& batch = batches.sorted_batch(0);
  EXPECT_EQ(testing::copy_ids(batch, "labels"), (std::vector<int32_t>{-1, 2, 0, -1, -1, -1, -1, -1}));
  EXPECT_EQ(testing::copy_ids(batch, "types"), (std::vector<int32_t>{0, 0, 1, 0, 0, 0, 0, 0}));
}
}  // namespace
}  // namespace linnet
