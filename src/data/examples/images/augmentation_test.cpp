#include <gtest/gtest.h>
#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <set>
#include <string>
#include "data/examples/images/image_batches.h"

namespace linnet {
namespace {
// Two channels; every byte of an image is different.
ImageDataset made_images(int64_t count) {
  ImageDataset images{.count = count, .height = 6, .width = 8, .channels = 2};
  images.pixels.resize(static_cast<size_t>(count * images.image_bytes()));
  for (size_t i = 0; i < images.pixels.size(); ++i)
    images.pixels[i] = static_cast<uint8_t>(i % static_cast<size_t>(images.image_bytes()) + 100);
  images.labels.resize(static_cast<size_t>(count));
  std::iota(images.labels.begin(), images.labels.end(), 0);
  images.class_names = {"a", "b"};
  return images;
}

std::vector<uint8_t> augmented(const Augmentation& how, int64_t epoch, int64_t image, const ImageDataset& of) {
  std::vector<uint8_t> out(static_cast<size_t>(of.image_bytes()));
  augment_image(how, 7, epoch, image, of, of.image(image), out);
  return out;
}

TEST(Augmentation, ShiftsAndMirrorsMovePixelsAndFillTheRest) {
  const ImageDataset images = made_images(40);
  const Augmentation how{.shift = 2, .mirror = true, .fill = {3, 4}};
  std::set<std::vector<uint8_t>> seen;
  for (int64_t image = 0; image < images.count; ++image) {
    const std::vector<uint8_t> out = augmented(how, 0, image, images);
    seen.insert(out);
    bool found = false;
    for (int64_t down = -2; down <= 2; ++down)
      for (int64_t right = -2; right <= 2; ++right)
        for (const bool mirror : {false, true}) {
          std::vector<uint8_t> expected;
          for (int64_t i = 0; i < 6; ++i)
            for (int64_t j = 0; j < 8; ++j)
              for (int64_t c = 0; c < 2; ++c) {
                const int64_t row = i - down, column = (mirror ? 7 - j : j) - right;
                const bool inside = row >= 0 && row < 6 && column >= 0 && column < 8;
                expected.push_back(static_cast<uint8_t>(inside ? (row * 8 + column) * 2 + c + 100 : 3 + c));
              }
          found = found || out == expected;
        }
    EXPECT_TRUE(found) << image;
  }
  EXPECT_GT(seen.size(), 15u);  // of 50 ways
}

TEST(Augmentation, ASquareIsCovered) {
  const ImageDataset images = made_images(1);
  for (int64_t epoch = 0; epoch < 20; ++epoch) {
    const std::vector<uint8_t> out = augmented({.cutout = 3}, epoch, 0, images);
    const auto covered = std::ranges::count(out, 0) / 2;
    EXPECT_GE(covered, 2 * 2);  // the center is inside the image
    EXPECT_LE(covered, 3 * 3);
    for (size_t i = 0; i < out.size(); ++i) EXPECT_TRUE(out[i] == 0 || out[i] == images.pixels[i]);
  }
}

// All arrays.
std::string contents(const Batch& batch) {
  std::string bytes;
  for (const BatchArray& array : batch.arrays)
    bytes.append(reinterpret_cast<const char*>(array.bytes.data()), array.bytes.size());
  return bytes;
}

// A run that stopped within an epoch goes on with the bytes it would have seen.
TEST(Augmentation, AResumedEpochHasTheSameBytes) {
  const ImageDataset images = made_images(10);
  const Augmentation how{.shift = 2, .mirror = true, .cutout = 2};
  ImageBatches whole(images, 4, 5, {.augmentation = how}), resumed(images, 4, 5, {.augmentation = how});
  std::vector<std::string> expected;
  for (int i = 0; i < 7; ++i) expected.push_back(contents(whole.next()));
  resumed.seek(1, 1);
  for (size_t i = 4; i < 7; ++i) EXPECT_EQ(contents(resumed.next()), expected[i]) << i;
  EXPECT_NE(expected[0], expected[3]);
}

using Pixels = std::vector<uint8_t>;

Pixels moved(const Motion& motion, const Pixels& image, int64_t height, int64_t width, int64_t channels) {
  Pixels out(image.size(), 99);
  const Pixels fill{7, 8};
  move_image(motion, image, {{height, width, channels}, fill}, out);
  return out;
}

TEST(Augmentation, AQuarterTurnMovesWholePixels) {
  const Pixels image{1, 2, 3,  //
      4, 5, 6,                 //
      7, 8, 9};
  const Pixels left{3, 6, 9,  //
      2, 5, 8,                //
      1, 4, 7};
  EXPECT_EQ(moved({.degrees = 90}, image, 3, 3, 1), left);
  EXPECT_EQ(moved({.degrees = -270}, image, 3, 3, 1), left);
  EXPECT_EQ(moved({.degrees = -90}, left, 3, 3, 1), image);
  EXPECT_EQ(moved({.degrees = 180}, image, 3, 3, 1), (Pixels{9, 8, 7, 6, 5, 4, 3, 2, 1}));
  // Even sizes, several channels, not square.
  EXPECT_EQ(moved({.degrees = 90}, {1, 11, 2, 12, 3, 13, 4, 14}, 2, 2, 2), (Pixels{2, 12, 4, 14, 1, 11, 3, 13}));
  EXPECT_EQ(moved({.degrees = 180}, {1, 2, 3, 4, 5, 6}, 2, 3, 1), (Pixels{6, 5, 4, 3, 2, 1}));
  // A mirror image of the turned one, one pixel further right.
  EXPECT_EQ(moved({.degrees = 90, .right = 1, .mirror = true}, image, 3, 3, 1), (Pixels{6, 3, 7, 5, 2, 7, 4, 1, 7}));
}

// Any angle: bilinear interpolation as computed in floating point, to a level of gray.
TEST(Augmentation, RotationInterpolates) {
  constexpr int64_t kHeight = 9, kWidth = 12;
  Pixels image;
  for (int64_t i = 0; i < kHeight * kWidth; ++i) image.push_back(static_cast<uint8_t>(20 + i * 37 % 200));
  for (const double degrees : {3.0, -17.5, 45.0, 120.0}) {
    const Pixels out = moved({.degrees = degrees}, image, kHeight, kWidth, 1);
    const double angle = degrees * std::numbers::pi / 180;
    const auto at = [&](int64_t row, int64_t column) {
      const bool inside = row >= 0 && row < kHeight && column >= 0 && column < kWidth;
      return inside ? image[static_cast<size_t>(row * kWidth + column)] : 7.0;
    };
    for (int64_t i = 0; i < kHeight; ++i)
      for (int64_t j = 0; j < kWidth; ++j) {
        const double up = static_cast<double>(i) - (kHeight - 1) / 2.0,
                     left = static_cast<double>(j) - (kWidth - 1) / 2.0;
        const double y = std::cos(angle) * up + std::sin(angle) * left + (kHeight - 1) / 2.0;
        const double x = std::cos(angle) * left - std::sin(angle) * up + (kWidth - 1) / 2.0;
        const auto row = static_cast<int64_t>(std::floor(y)), column = static_cast<int64_t>(std::floor(x));
        const double b = y - std::floor(y), a = x - std::floor(x);
        const double expected = (at(row, column) * (1 - a) + at(row, column + 1) * a) * (1 - b) +
                                (at(row + 1, column) * (1 - a) + at(row + 1, column + 1) * a) * b;
        EXPECT_NEAR(out[static_cast<size_t>(i * kWidth + j)], expected, 1.6) << degrees << " " << i << " " << j;
      }
  }
}

TEST(Augmentation, RotationsAreWithinTheLimitAndDifferByImage) {
  ImageDataset images = made_images(30);
  images.pixels.assign(images.pixels.size(), 0);
  for (int64_t i = 0; i < images.count; ++i)  // one white pixel at the right end of a row near the center
    images.pixels[static_cast<size_t>(i * images.image_bytes() + (3 * 8 + 6) * 2)] = 255;
  std::set<Pixels> seen;
  for (int64_t image = 0; image < images.count; ++image) {
    const Pixels out = augmented({.rotate = 20}, 0, image, images);
    seen.insert(out);
    int64_t brightest = 0;
    for (int64_t i = 0; i < 48; ++i)
      if (out[static_cast<size_t>(2 * i)] > out[static_cast<size_t>(2 * brightest)]) brightest = i;
    EXPECT_NEAR(static_cast<double>(brightest / 8), 3, 1);  // 3 pixels from the center: 20 degrees are one pixel
    EXPECT_NEAR(static_cast<double>(brightest % 8), 6, 1);
  }
  EXPECT_GT(seen.size(), 20u);
}

TEST(Augmentation, BlendsAreRoundedMeans) {
  Pixels image{0, 255, 100, 10};
  const auto blend = [&](int share, const Pixels& other) { mix_images({.share = share}, 4, 1, other, image); };
  blend(256, Pixels{9, 9, 9, 9});
  EXPECT_EQ(image, (Pixels{0, 255, 100, 10}));
  blend(64, Pixels{255, 255, 0, 20});
  EXPECT_EQ(image, (Pixels{191, 255, 25, 18}));
  blend(0, Pixels{1, 2, 3, 4});
  EXPECT_EQ(image, (Pixels{1, 2, 3, 4}));
}

// A part of the image, scaled: colors that lie side by side keep their order, and none is new.
TEST(Augmentation, CropsAreScaledPartsOfTheImage) {
  ImageDataset images{.count = 1, .height = 32, .width = 32, .channels = 1};
  for (int i = 0; i < 32 * 32; ++i) images.pixels.push_back(static_cast<uint8_t>(8 * (i % 32)));
  std::set<Pixels> seen;
  double least = 255, most = 0;
  for (int64_t epoch = 0; epoch < 50; ++epoch) {
    Pixels out(32 * 32);
    augment_image({.crop = 0.25}, 7, epoch, 0, images, images.image(0), out);
    seen.insert(out);
    EXPECT_TRUE(std::is_sorted(out.begin(), out.begin() + 32)) << epoch;
    const double span = out[31] - out[0];  // of 248 in the whole
    least = std::min(least, span), most = std::max(most, span);
  }
  EXPECT_GT(seen.size(), 40u);
  EXPECT_LT(least, 150);  // about half of the width
  EXPECT_GT(least, 80);   // no less than sqrt(0.25 * 3 / 4) of it
  EXPECT_GT(most, 200);
}

// What Pillow's ImageEnhance and ImageOps make of the same image; it rounds the mean brightness first.
TEST(Augmentation, ChangesAreThoseOfPillow) {
  Pixels image;
  for (int i = 0; i < 5; ++i)
    for (int j = 0; j < 6; ++j)
      for (int c = 0; c < 3; ++c) image.push_back(static_cast<uint8_t>(37 * i + 91 * j + 53 * c + 7 * i * j));
  const auto expect = [&](ImageChange change, const std::vector<int>& expected) {
    Pixels changed = image;
    change_image(change, 9, false, {{5, 6, 3}, {}}, changed);
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(changed[i], expected[i], 1) << static_cast<int>(change);
  };
  expect(ImageChange::kBrightness, {0, 67, 134, 115, 182, 250, 231, 255, 40, 21, 88, 156});
  expect(ImageChange::kColor, {0, 55, 123, 79, 146, 214, 178, 245, 0, 5, 72, 140});
  expect(ImageChange::kContrast, {0, 31, 99, 80, 147, 214, 195, 255, 5, 0, 53, 120});
  expect(ImageChange::kSharpness, {0, 53, 106, 91, 144, 197, 182, 235, 32, 17, 70, 123, 108, 161, 214, 199, 252, 49, 37,
                                      90, 143, 140, 198, 255, 254, 8, 72, 64, 128, 191});
  expect(ImageChange::kPosterize, {0, 52, 106, 90, 144, 196, 182, 234, 32, 16, 70, 122});
  expect(ImageChange::kSolarize, {0, 53, 106, 91, 144, 58, 73, 20, 32, 17, 70, 123});
  expect(ImageChange::kAutoContrast, {0, 36, 100, 93, 136, 195, 186, 236, 23, 17, 54, 118});
}

TEST(Augmentation, APastedRectangleGivesItsShareOfTheLabel) {
  ImageDataset images = made_images(7);
  int pasted = 0;
  for (int64_t epoch = 0; epoch < 200; ++epoch) {
    const Mix mix = draw_mix({.cutmix = 1, .mixup = epoch < 100 ? 0.0 : 1.0}, 3, epoch, 1, images);
    pasted += mix.pastes;
    if (!mix.pastes) continue;
    Pixels image(96, 1);
    mix_images(mix, 8, 2, Pixels(96, 2), image);
    const double share = 1 - static_cast<double>(std::ranges::count(image, 2)) / 96;
    EXPECT_NEAR(mix.label_share(6, 8), share, 1e-9) << epoch;
  }
  EXPECT_GT(pasted, 130);  // all of the first hundred, half of the others
  EXPECT_LT(pasted, 170);
}

// Beta(a, a) has mean 1/2 and variance 1 / (4 (2 a + 1)).
TEST(Augmentation, SharesOfMixupAreFromBeta) {
  for (const double a : {0.2, 1.0, 4.0}) {
    double sum = 0, squares = 0;
    std::vector<int> others(5);
    constexpr int kDraws = 4000;
    for (int i = 0; i < kDraws; ++i) {
      const Mix mix = draw_mix({.mixup = a}, 3, i / 100, i % 100, made_images(5));
      const double share = mix.share / 256.0;
      sum += share, squares += share * share;
      ++others.at(static_cast<size_t>(mix.other));
    }
    const double mean = sum / kDraws, variance = squares / kDraws - mean * mean;
    EXPECT_NEAR(mean, 0.5, 0.03) << a;
    EXPECT_NEAR(variance, 1 / (4 * (2 * a + 1)), 0.01) << a;
    for (const int count : others) EXPECT_NEAR(count, kDraws / 5, 120) << a;
  }
}

template <class T> std::span<const T> values(const Batch& batch, size_t array) {
  const std::span<const std::byte> bytes = batch.arrays[array].bytes;
  return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
}

// Each row is the blend that its labels and share tell.
TEST(Augmentation, MixedRowsHaveBothLabels) {
  ImageDataset images = made_images(11);  // image i has the label i
  for (int64_t i = 0; i < images.count; ++i)
    std::fill_n(images.pixels.begin() + i * images.image_bytes(), images.image_bytes(), static_cast<uint8_t>(20 * i));
  ImageBatches batches(images, 4, 5, {.augmentation = {.mixup = 1}});
  std::set<float> shares;
  for (int b = 0; b < 9; ++b) {
    const Batch& batch = batches.next();
    ASSERT_EQ(batch.arrays.size(), 4u);
    const auto pixels = values<uint8_t>(batch, 0);
    const auto labels = batch.ids("labels"), others = batch.ids("other_labels");
    const auto share = values<float>(batch, 3);
    for (size_t row = 0; row < 4; ++row) {
      if (labels[row] < 0) {  // past the last image
        EXPECT_EQ(batch.index, 2);
        EXPECT_EQ(others[row], -1);
        EXPECT_EQ(pixels[row * 96], pixels[(row - 3) * 96]);  // one of the batch's three
        continue;
      }
      const float expected =
          20 * (static_cast<float>(labels[row]) * share[row] + static_cast<float>(others[row]) * (1 - share[row]));
      EXPECT_NEAR(pixels[row * 96], expected, 0.5) << b << " " << row;
      EXPECT_EQ(pixels[row * 96], pixels[row * 96 + 95]);
      shares.insert(share[row]);
    }
  }
  EXPECT_GT(shares.size(), 15u);
}

TEST(Augmentation, TheNumberOfThreadsChangesNothing) {
  const ImageDataset images = made_images(23);
  const Augmentation how{.shift = 2, .mirror = true, .cutout = 2, .rotate = 30, .cutmix = 1, .mixup = 0.4};
  std::vector<std::string> expected;
  for (const auto& [threads, prefetch] : {std::pair{1, 1}, {2, 2}, {5, 4}}) {
    ImageBatches batches(images, 7, 5, {.augmentation = how, .threads = threads, .prefetch = prefetch});
    std::vector<std::string> made;
    for (int i = 0; i < 13; ++i) made.push_back(contents(batches.next()));
    if (expected.empty()) expected = made;
    EXPECT_EQ(made, expected) << threads << " threads";
    batches.seek(2, 1);
    EXPECT_EQ(contents(batches.next()), expected[9]) << threads << " threads";
  }
}
}  // namespace
}  // namespace linnet
