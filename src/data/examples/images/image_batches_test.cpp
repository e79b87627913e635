#include "data/examples/images/image_batches.h"
#include <gtest/gtest.h>
#include <algorithm>
#include <set>
#include "base/error.h"

namespace linnet {
namespace {
// Image i holds the bytes i, i; every fifth belongs to class 1.
ImageDataset numbered(int64_t count) {
  ImageDataset dataset{.count = count, .height = 1, .width = 2, .channels = 1};
  for (int64_t i = 0; i < count; ++i) {
    dataset.pixels.insert(dataset.pixels.end(), 2, static_cast<uint8_t>(i));
    dataset.labels.push_back(i % 5 == 0);
  }
  dataset.class_names = {"rest", "fifth"};
  return dataset;
}

struct Filled {
  BatchPosition batch;
  std::vector<uint8_t> images;
  std::vector<int32_t> labels;
};
Filled take(ImageBatches& batches) {
  const Batch& batch = batches.next();
  const auto* pixels = reinterpret_cast<const uint8_t*>(batch.arrays[0].bytes.data());
  const auto labels = batch.ids("labels");
  return {batch, {pixels, pixels + batch.arrays[0].bytes.size()}, {labels.begin(), labels.end()}};
}

TEST(ImageBatches, AnEpochHasEveryImageOnceAndPadsTheLastBatch) {
  const ImageDataset dataset = numbered(23);
  ImageBatches batches(dataset, 8, 1);
  EXPECT_EQ(batches.batches_per_epoch(), 3);
  std::vector<std::vector<uint8_t>> epochs;
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    std::vector<uint8_t> seen;
    for (int64_t index = 0; index < 3; ++index) {
      const Filled filled = take(batches);
      EXPECT_EQ(filled.batch.epoch, epoch);
      EXPECT_EQ(filled.batch.index, index);
      EXPECT_EQ(filled.batch.last_of_epoch, index == 2);
      for (size_t row = 0; row < 8; ++row) {
        if (row >= (index == 2 ? 7u : 8u)) {
          EXPECT_EQ(filled.labels[row], -1);
          EXPECT_EQ(filled.images[2 * row], filled.images[2 * (row - 7)]);  // a picture, for batch norms
          continue;
        }
        EXPECT_EQ(filled.images[2 * row], filled.images[2 * row + 1]);
        EXPECT_EQ(filled.labels[row], filled.images[2 * row] % 5 == 0);
        seen.push_back(filled.images[2 * row]);
      }
    }
    epochs.push_back(seen);
    EXPECT_EQ(std::set<uint8_t>(seen.begin(), seen.end()).size(), 23u);
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_FALSE(std::ranges::is_sorted(epochs[0]));
}

TEST(ImageBatches, ABatchOfMoreRowsThanImagesRepeatsThemWithoutLabels) {
  const ImageDataset dataset = numbered(3);
  for (const bool changes : {false, true}) {  // taken as they are, or made by threads
    ImageBatchOptions options;
    options.augmentation.mirror = changes;
    ImageBatches batches(dataset, 9, 1, options);
    const Filled filled = take(batches);
    for (size_t row = 0; row < 9; ++row) {
      EXPECT_EQ(filled.images[2 * row], filled.images[2 * (row % 3)]) << row;
      EXPECT_EQ(filled.labels[row], row < 3 ? filled.images[2 * row] % 5 == 0 : -1) << row;
    }
  }
}

TEST(ImageBatches, AnyPlaceCanBeResumedExactly) {
  const ImageDataset dataset = numbered(40);
  ImageBatches whole(dataset, 16, 7);
  std::vector<Filled> all;
  for (int i = 0; i < 9; ++i) all.push_back(take(whole));
  for (size_t i : {8u, 0u, 4u, 5u}) {
    ImageBatches resumed(dataset, 16, 7);
    resumed.seek(all[i].batch.epoch, all[i].batch.index);
    for (size_t j = i; j < all.size(); ++j) EXPECT_EQ(take(resumed).images, all[j].images);
  }
  EXPECT_THROW(whole.seek(0, 3), Error);
  ImageBatches other(dataset, 16, 8);
  EXPECT_NE(take(other).images, all[0].images);
}

TEST(ImageBatches, EvaluationTakesEachImageInOrder) {
  const ImageDataset dataset = numbered(10);
  ASSERT_EQ(evaluation_batches(dataset, 4), 3);
  OwnedBatch batch(image_inputs(4, dataset.image_bytes()));
  const std::span images(batch.data<uint8_t>(0), 8);
  const std::span labels(batch.data(1), 4);
  ThreadPool pool(2);
  EXPECT_EQ(fill_evaluation_batch(dataset, 4, 1, batch, pool), 4);
  EXPECT_TRUE(std::ranges::equal(images, std::vector<uint8_t>{4, 4, 5, 5, 6, 6, 7, 7}));
  EXPECT_EQ(fill_evaluation_batch(dataset, 4, 2, batch, pool), 2);
  EXPECT_TRUE(std::ranges::equal(images, std::vector<uint8_t>{8, 8, 9, 9, 0, 0, 0, 0}));
  EXPECT_TRUE(std::ranges::equal(labels, std::vector<int32_t>{0, 0, -1, -1}));
}

TEST(ImageDataset, AValidationPartIsSpreadAndTakenOut) {
  ImageDataset train = numbered(20);
  const ImageDataset validation = split_off(train, 5);
  EXPECT_EQ(train.count, 15);
  EXPECT_EQ(validation.count, 5);
  std::set<uint8_t> seen;
  for (int64_t i = 0; i < 15; ++i) seen.insert(train.image(i)[0]);
  for (int64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(validation.image(i)[0] / 4, i);  // one of every four
    seen.insert(validation.image(i)[0]);
  }
  EXPECT_EQ(seen.size(), 20u);
  EXPECT_EQ(train.class_names, validation.class_names);
  EXPECT_EQ(train.pixels.size(), 15u * 2);
  EXPECT_EQ(train.labels.size(), 15u);
  EXPECT_EQ(split_off(train, 0).count, 0);
  EXPECT_THROW(split_off(train, 15), Error);
}

TEST(ImageDataset, MomentsOfEachChannel) {
  const ImageDataset dataset{.count = 2, .height = 1, .width = 1, .channels = 2, .pixels = {0, 51, 255, 51}};
  const ChannelMoments moments = channel_moments(dataset);
  EXPECT_DOUBLE_EQ(moments.mean[0], 0.5);
  EXPECT_DOUBLE_EQ(moments.deviation[0], 0.5);
  EXPECT_DOUBLE_EQ(moments.mean[1], 0.2);
  EXPECT_DOUBLE_EQ(moments.deviation[1], 1);  // the same everywhere
}
}  // namespace
}  // namespace linnet
