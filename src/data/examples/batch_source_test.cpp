// What every source of training batches does, whatever is in the batches.
#include <gtest/gtest.h>
#include <functional>
#include <memory>
#include <string>
#include "base/error.h"
#include "data/examples/batch.h"
#include "data/examples/batch_stream.h"
#include "data/examples/images/image_batches.h"
#include "data/examples/text/text_examples.h"
#include "data/examples/text/token_chunks.h"

namespace linnet {
namespace {
// All that a batch holds, as text that can be compared.
std::string contents(const Batch& batch) {
  std::string text = std::to_string(batch.shape_index);
  for (const BatchArray& array : batch.arrays)
    text +=
        std::string(array.name) + std::string(reinterpret_cast<const char*>(array.bytes.data()), array.bytes.size());
  return text;
}

std::vector<std::string> take(BatchSource& source, int64_t count) {
  std::vector<std::string> taken;
  for (int64_t i = 0; i < count; ++i) taken.push_back(contents(source.next()));
  return taken;
}

std::vector<int32_t> counting(int64_t count) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<int32_t>(10 + i % 150));
  return tokens;
}

ParallelText pairs() {
  ParallelText text;
  for (int i = 0; i < 57; ++i) {
    const std::string word = "w" + std::to_string(i);
    text.source.push_back(i % 3 == 0 ? word : word + " x y z");
    text.target.push_back(word);
  }
  return text;
}

ImageDataset images() {
  ImageDataset dataset{.count = 23, .height = 1, .width = 2, .channels = 1};
  for (int i = 0; i < 23; ++i) {
    dataset.pixels.insert(dataset.pixels.end(), 2, static_cast<uint8_t>(i));
    dataset.labels.push_back(i % 2);
  }
  dataset.class_names = {"even", "odd"};
  return dataset;
}

TextExamples examples() {
  TextExamples data;
  for (int32_t i = 0; i < 30; ++i) {
    const auto label = static_cast<float>(i % 3);
    data.add(std::vector<int32_t>(static_cast<size_t>(1 + i * 7 % 20), i), {&label, 1});
  }
  return data;
}

struct Kind {
  const char* name;
  std::function<std::unique_ptr<BatchSource>(uint64_t seed)> make;
};

// The data outlive the sources.
const std::vector<Kind>& kinds() {
  static const TokenStream stream(counting(700), 160);
  static const ImageDataset image_data = images();
  static const TextExamples labelled = examples();
  static const auto words = train_tokenizer({.kind = "word", .vocab_size = 100}, pairs().source);
  static const PairDataset pair_data(pairs(), *words, *words, {.max_seq_len = 16});
  static const Buckets buckets =
      Buckets::choose(pair_data.lengths(), {.batch_tokens = 0, .batch_size = 8, .num_buckets = 3, .max_seq_len = 16});
  static const MaskingOptions masking{
      .rows = 3, .lengths = {16, 40}, .begin = 1, .end = 2, .mask = 3, .special = {0}, .vocab_size = 160};
  static const std::vector<Kind> all{
      {"pairs", [](uint64_t seed) { return std::make_unique<BatchStream>(pair_data, buckets, seed); }},
      {"images", [](uint64_t seed) { return std::make_unique<ImageBatches>(image_data, 4, seed); }},
      {"changed images",
          [](uint64_t seed) {
            return std::make_unique<ImageBatches>(
                image_data, 4, seed, ImageBatchOptions{.augmentation = {.shift = 1, .mixup = 1}, .threads = 3});
          }},
      {"labelled",
          [](uint64_t seed) {
            return std::make_unique<TextBatches>(labelled, 4, std::vector<int64_t>{8, 20}, seed);
          }},
      {"tokens",
          [](uint64_t seed) {
            return std::make_unique<TrainingChunks>(stream, ChunkOptions{.rows = 3, .length = 20}, seed);
          }},
      {"packed",
          [](uint64_t seed) {
            return std::make_unique<TrainingChunks>(
                stream, ChunkOptions{.rows = 3, .length = 20, .separator = 17}, seed, true);
          }},
      {"masked",
          [](uint64_t seed) {
            return std::make_unique<MaskedChunks>(
                stream, std::vector<TokenSpan>{{0, 400}, {400, 9}, {409, 291}}, masking, seed);
          }},
  };
  return all;
}

TEST(BatchSource, TheSeedDecidesTheSequence) {
  for (const Kind& kind : kinds()) {
    SCOPED_TRACE(kind.name);
    const auto all = take(*kind.make(5), 30);
    EXPECT_EQ(take(*kind.make(5), 30), all);
    EXPECT_NE(take(*kind.make(6), 30), all);
  }
}

TEST(BatchSource, GoesOnAtAnyPosition) {
  for (const Kind& kind : kinds()) {
    SCOPED_TRACE(kind.name);
    const auto whole = kind.make(5), sought = kind.make(5);
    std::vector<BatchPosition> positions;
    std::vector<std::string> all;
    for (int i = 0; i < 40; ++i) {
      const Batch& batch = whole->next();
      positions.push_back(batch), all.push_back(contents(batch));
      EXPECT_LT(batch.shape_index, whole->shape_count());
    }
    for (size_t from : {33u, 0u, 17u, 18u, 5u}) {
      sought->seek(positions[from].epoch, positions[from].index);
      EXPECT_EQ(take(*sought, 7), std::vector<std::string>(all.begin() + static_cast<std::ptrdiff_t>(from),
                                      all.begin() + static_cast<std::ptrdiff_t>(from) + 7));
    }
    EXPECT_GT(positions.back().epoch, 0);
    for (size_t i = 0; i + 1 < positions.size(); ++i)
      EXPECT_EQ(positions[i].last_of_epoch, positions[i + 1].epoch > positions[i].epoch);
    EXPECT_THROW(
        {
          sought->seek(0, 1000);
          sought->next();
        },
        Error);
  }
}

// Also where a group of batches lies across the end of an epoch.
TEST(BatchSource, TheSharesOfAllRanksAreTheSequence) {
  for (const Kind& kind : kinds()) {
    SCOPED_TRACE(kind.name);
    const auto all = take(*kind.make(5), 36);
    for (const int64_t ranks : {2, 3, 4}) {
      std::vector<std::string> together(all.size());
      for (int64_t rank = 0; rank < ranks; ++rank) {
        const auto source = kind.make(5);
        source->take_share({rank, ranks});
        const auto own = take(*source, 36 / ranks);
        for (size_t i = 0; i < own.size(); ++i)
          together[i * static_cast<size_t>(ranks) + static_cast<size_t>(rank)] = own[i];
      }
      EXPECT_EQ(together, all) << ranks << " ranks";
    }
    EXPECT_THROW(kind.make(5)->take_share({2, 2}), Error);
  }
}

// A rank that takes several of each group gets them one after the other, and knows where the next group begins.
TEST(BatchSource, ARankMayTakeSeveralBatchesOfAGroup) {
  for (const Kind& kind : kinds()) {
    SCOPED_TRACE(kind.name);
    const auto all = take(*kind.make(5), 36);
    const auto source = kind.make(5), sought = kind.make(5);
    source->take_share({1, 6, 2}), sought->take_share({1, 6, 2});
    for (size_t group = 0; group < 6; ++group) {
      EXPECT_EQ(contents(source->next()), all[6 * group + 1]);
      const Batch& second = source->next();
      EXPECT_EQ(contents(second), all[6 * group + 2]);
      if (group == 5) break;
      sought->seek(second.next_epoch, second.next_index);
      EXPECT_EQ(take(*sought, 2), (std::vector<std::string>{all[6 * group + 7], all[6 * group + 8]}));
    }
    EXPECT_THROW(source->take_share({5, 6, 2}), Error);
  }
}

// Runs of two batches, one in each half of a group of eight.
TEST(BatchSource, ARankMayTakeRunsOfBatches) {
  for (const Kind& kind : kinds()) {
    SCOPED_TRACE(kind.name);
    const auto all = take(*kind.make(5), 32);
    const auto source = kind.make(5);
    source->take_share({.first = 2, .group = 8, .count = 4, .run = 2, .stride = 4});
    const auto own = take(*source, 16);
    for (size_t i = 0; i < own.size(); ++i) EXPECT_EQ(own[i], all[i / 4 * 8 + i % 4 / 2 * 4 + 2 + i % 2]) << i;
    EXPECT_THROW(kind.make(5)->take_share({.first = 3, .group = 8, .count = 4, .run = 2, .stride = 4}), Error);
  }
}

// All ranks say the same of where they are, so that each can save it and go on from there.
TEST(BatchSource, RanksGoOnTogether) {
  for (const Kind& kind : kinds()) {
    SCOPED_TRACE(kind.name);
    for (int64_t rank = 0; rank < 3; ++rank) {
      const auto source = kind.make(5), first = kind.make(5), sought = kind.make(5);
      source->take_share({rank, 3}), first->take_share({0, 3}), sought->take_share({rank, 3});
      take(*source, 4), take(*first, 4);
      const BatchPosition of_first = first->next();
      const Batch& batch = source->next();
      EXPECT_EQ(batch.epoch, of_first.epoch);
      EXPECT_EQ(batch.index, of_first.index);
      EXPECT_EQ(batch.last_of_epoch, of_first.last_of_epoch);
      sought->seek(batch.epoch, batch.index);
      EXPECT_EQ(contents(sought->next()), contents(batch));
    }
  }
}

TEST(BatchSource, RowsOfDeviceDataAreTheBatch) {
  const auto source = kinds()[1].make(5), rows_only = kinds()[1].make(5);
  const std::vector<BatchArray> data = source->device_data();
  ASSERT_EQ(data.size(), 2u);
  std::vector<int32_t> rows(4);
  for (int i = 0; i < 14; ++i) {
    const Batch& batch = source->next();
    const BatchPosition position = rows_only->next_rows(rows);
    EXPECT_EQ(position.index, batch.index);
    EXPECT_EQ(position.last_of_epoch, batch.last_of_epoch);
    for (size_t row = 0; row < 4; ++row) {
      const auto image = static_cast<size_t>(rows[row] < 0 ? ~rows[row] : rows[row]);
      for (size_t byte = 0; byte < 2; ++byte)
        EXPECT_EQ(batch.arrays[0].bytes[2 * row + byte], data[0].bytes[image * 2 + byte]);
      EXPECT_EQ(rows[row] < 0, *reinterpret_cast<const int32_t*>(batch.arrays[1].bytes.data() + 4 * row) == -1);
    }
  }
  EXPECT_THROW(kinds()[0].make(5)->next_rows(rows), Error);
}
}  // namespace
}  // namespace linnet
