#include <sys/stat.h>
#include <algorithm>
#include <filesystem>
#include "data/examples/images/image_batches.h"
#include "data/examples/images/image_dataset.h"
#include "image_testing.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
#pragma GCC diagnostic ignored "-Wunused-function"
#define STB_IMAGE_WRITE_STATIC
#define STB_IMAGE_WRITE_IMPLEMENTATION
#include <stb/stb_image_write.h>
#pragma GCC diagnostic pop

namespace linnet {
namespace {
using Pixels = std::vector<uint8_t>;

class ImageFolderTest : public ImageTest {
 protected:
  // Written as its name's ending says.
  void image(const std::string& name, int width, int height, int channels, const Pixels& pixels) {
    const std::string file = path(name);
    const bool png = name.ends_with(".png"), bmp = name.ends_with(".bmp");
    const int done = png   ? stbi_write_png(file.c_str(), width, height, channels, pixels.data(), width * channels)
                     : bmp ? stbi_write_bmp(file.c_str(), width, height, channels, pixels.data())
                           : stbi_write_jpg(file.c_str(), width, height, channels, pixels.data(), 95);
    ASSERT_NE(done, 0);
  }
  void grey(const std::string& name, uint8_t value) { image(name, 3, 2, 1, Pixels(6, value)); }
  void color(const std::string& name) {
    image(name, 3, 2, 3, Pixels{9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 1, 2, 3, 4, 5, 6, 7, 8});
  }
};

TEST_F(ImageFolderTest, ClassesAreSortedFoldersAndFilesOfOtherKindsAreLeftOut) {
  grey("b/2.png", 20);
  grey("b/1.PNG", 0);  // the writer below does not know capitals
  image("a/x.png", 3, 2, 1, {1, 2, 3, 4, 5, 6});
  write("a/notes.txt", "not an image");
  write("b/.hidden.png", "not an image");
  write("readme", "beside the folders");
  std::filesystem::rename(path("b/1.PNG"), path("b/1.jpg"));
  const ImageDataset dataset = read_image_folder(folder_);
  EXPECT_EQ(dataset.class_names, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(dataset.labels, (std::vector<int32_t>{0, 1, 1}));
  EXPECT_EQ(dataset.channels, 1);
  EXPECT_EQ(dataset.height, 2);
  EXPECT_EQ(dataset.width, 3);
  EXPECT_EQ((Pixels(dataset.image(0).begin(), dataset.image(0).end())), (Pixels{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(dataset.image(2)[0], 20);
}

TEST_F(ImageFolderTest, FoldersBelowAClassAreOfTheClass) {
  grey("a/1.png", 1);
  grey("b/2019/june/1.png", 2);
  grey("b/9.png", 3);
  const ImageDataset dataset = read_image_folder(folder_);
  EXPECT_EQ(dataset.class_names, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(dataset.labels, (std::vector<int32_t>{0, 1, 1}));
  EXPECT_EQ(find_images(folder_).size(), 3U);
}

TEST_F(ImageFolderTest, LinksAreFollowedButNotBack) {
  grey("all/a/1.png", 1);
  grey("far/below/2.png", 2);
  grey("far/3.png", 3);
  std::filesystem::create_directory_symlink(".", path("all/a/loop"));
  std::filesystem::create_directory_symlink("..", path("all/a/up"));
  std::filesystem::create_directory_symlink(".", path("all/self"));
  std::filesystem::create_directory_symlink("../far", path("all/b"));
  std::filesystem::create_directory_symlink("../../all/b", path("far/below/mutual"));
  std::filesystem::create_symlink("../../far/3.png", path("all/a/4.png"));
  std::filesystem::create_symlink("lost", path("all/a/lost"));
  const std::string folder = folder_ + "/all";
  EXPECT_EQ(read_image_folder(folder).class_names, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(read_image_folder(folder).labels, (std::vector<int32_t>{0, 0, 1, 1}));
  EXPECT_EQ(find_images(folder).size(), 4U);
  for (const char* from : {"x", "y", "z"}) grey(std::string("near/") + from + "/1.png", 1);
  for (const char* from : {"x", "y", "z"})
    for (const char* to : {"x", "y", "z"})
      std::filesystem::create_directory_symlink(
          std::string("../") + to, path(std::string("near/") + from + "/to_" + to));
  EXPECT_EQ(find_images(folder_ + "/near").size(), 3U);
}

TEST_F(ImageFolderTest, ReadsPngJpegAndBmp) {
  color("a/1.png");
  color("a/2.bmp");
  image("a/3.jpg", 3, 2, 3, Pixels(18, 100));
  grey("a/4.png", 50);
  const ImageDataset dataset = read_image_folder(folder_);
  EXPECT_EQ(dataset.channels, 3);
  EXPECT_EQ(dataset.image(0)[0], 9);
  EXPECT_EQ(dataset.image(0)[17], 8);
  EXPECT_TRUE(std::ranges::equal(dataset.image(0), dataset.image(1)));
  EXPECT_NEAR(dataset.image(2)[0], 100, 3);  // JPEG loses a little
  EXPECT_EQ(dataset.image(3)[1], 50);
}

TEST_F(ImageFolderTest, GreyStoredAsColorIsGrey) {
  image("a/1.bmp", 3, 2, 3, Pixels{1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 5, 5, 5, 6, 6, 6});
  const ImageDataset dataset = read_image_folder(folder_);
  EXPECT_EQ(dataset.channels, 1);
  EXPECT_EQ(dataset.pixels, (Pixels{1, 2, 3, 4, 5, 6}));
}

TEST_F(ImageFolderTest, WhatIsWrongIsNamed) {
  EXPECT_EQ(error_of([&] { read_image_folder(folder_ + "/none"); }),
      "cannot read the folder 'none': No such file or directory");
  EXPECT_EQ(error_of([&] { read_image_folder(path("empty/x").substr(0, folder_.size() + 6)); }),
      "'empty' holds no folders of images, one for each class");
  std::filesystem::remove(folder_ + "/empty");
  write("a/notes.txt", "");
  EXPECT_NE(error_of([&] { read_image_folder(folder_); }).find("holds no images (.png, .jpg, .jpeg, .bmp)"),
      std::string::npos);
  grey("a/1.png", 1);
  image("a/2.png", 2, 2, 1, Pixels(4, 1));
  EXPECT_EQ(error_of([&] { read_image_folder(folder_); }),
      "'a/2.png' is 2x2 pixels, but 'a/1.png' is 3x2: one size for all makes them alike (image_size=64)");
  write("a/2.png", "\x89PNG\r\n\x1a\nrubbish");
  EXPECT_NE(error_of([&] { read_image_folder(folder_); }).find("'a/2.png' cannot be decoded as PNG, JPEG or BMP"),
      std::string::npos);
}

// The header alone is read: two kilobytes that declare 400 million pixels take no memory.
TEST_F(ImageFolderTest, AFileThatDeclaresTooManyPixelsIsRefused) {
  std::string bmp(2048, '\0');
  const auto put = [&](size_t at, uint32_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) bmp[at + static_cast<size_t>(i)] = static_cast<char>(value >> (8 * i));
  };
  bmp[0] = 'B', bmp[1] = 'M';
  put(10, 54, 4), put(14, 40, 4), put(18, 20000, 4), put(22, 20000, 4), put(26, 1, 2), put(28, 24, 2);
  const std::string declared = "declares 20000x20000 pixels; Linnet decodes images of at most 100000000";
  EXPECT_EQ(error_of([&] { image_info(write("a.bmp", bmp)); }), "'a.bmp' " + declared);
  std::string png("\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x4e\x20\0\0\x4e\x20\x08\0\0\0\0", 29);  // grey
  png += std::string("\0\0\0\0\0\0\0\4IDAT1234\0\0\0\0", 20);
  EXPECT_EQ(error_of([&] { image_info(write("a.png", png)); }), "'a.png' " + declared);
  const std::string jpeg("\xff\xd8\xff\xc0\0\x0b\x08\x4e\x20\x4e\x20\1\1\x11\0\xff\xd9", 17);
  Pixels pixels(100);
  EXPECT_EQ(error_of([&] {
    read_fitted_image(write("a.jpg", jpeg), {10, 10, 1}, ImageFit::kCrop, pixels);
  }),
      "'a.jpg' " + declared);
  // Within the limit the pixels must be there.
  put(18, 100, 4), put(22, 100, 4);
  EXPECT_EQ(error_of([&] { image_info(write("b.bmp", bmp)); }),
      "'b.bmp' is cut short: its pixels take 30054 bytes, and it has 2048");
  image("c.bmp", 5, 3, 3, Pixels(45, 7));
  EXPECT_EQ(image_info(path("c.bmp")).height, 3);
}

TEST_F(ImageFolderTest, BmpThatBeginsWithItsUpperRowIsReadAsAnyOther) {
  const auto number = [](int32_t value) { return std::string(reinterpret_cast<const char*>(&value), sizeof value); };
  // One pixel wide, three high: a row is three bytes and one of padding.
  const std::string after_height = std::string("\1\0\x18\0", 4) + number(0) + number(12) + std::string(16, '\0');
  const std::string head = "BM" + number(66) + number(0) + number(54) + number(40) + number(1);
  const std::string low = std::string(3, '\x11') + '\0', middle = std::string(3, '\x22') + '\0',
                    high = std::string(3, '\x33') + '\0';
  const std::string upward = write("a/1.bmp", head + number(3) + after_height + low + middle + high);
  const std::string downward = write("a/2.bmp", head + number(-3) + after_height + high + middle + low);
  const ImageInfo info = image_info(downward);
  ASSERT_EQ(info.height, 3);
  Pixels first(9), second(9);
  read_fitted_image(upward, image_info(upward), ImageFit::kCrop, first);
  read_fitted_image(downward, info, ImageFit::kCrop, second);
  EXPECT_EQ(first, second);
  EXPECT_EQ(first[0], 0x33);
  EXPECT_EQ(read_image_folder(folder_).height, 3);

  const std::string sides = "BM" + number(66) + number(0) + number(54) + number(40);
  EXPECT_EQ(error_of([&] { image_info(write("b.bmp", sides + number(-5) + number(3) + after_height + low)); }),
      "'b.bmp' declares -5x3 pixels; an image has at least one");
  EXPECT_NE(
      error_of([&] { image_info(write("c.bmp", sides + number(1) + number(INT32_MIN) + after_height)); }), "no error");
}

// 255 codes of each of 9 to 16 bits are more than the 256 that a table may have. stb_image 2.27 crashed here, 2.30
// makes a picture of it.
TEST_F(ImageFolderTest, JpegWithTooManyHuffmanCodesDoesNoHarm) {
  std::string jpeg("\xff\xd8\xff\xc0\0\x0b\x08\0\x08\0\x08\1\1\x11\0", 15);  // 8x8 pixels, grey
  for (const int table : {0x00, 0x10}) {
    const int bytes = 2 + 1 + 16 + 8 * 255;
    jpeg += "\xff\xc4";
    jpeg += {static_cast<char>(bytes >> 8), static_cast<char>(bytes & 255), static_cast<char>(table)};
    jpeg += std::string(8, '\0') + std::string(8, '\xff') + std::string(8 * 255, '\1');
  }
  jpeg += std::string("\xff\xda\0\x08\1\1\0\0\x3f\0", 10) + std::string(100, '\x5a') + "\xff\xd9";
  Pixels pixels(64);
  const std::string error = error_of([&] {
    read_fitted_image(write("a.jpg", jpeg), {8, 8, 1}, ImageFit::kCrop, pixels);
  });
  EXPECT_TRUE(error == "no error" || error.find("'a.jpg' cannot be decoded") != error.npos) << error;
}

TEST_F(ImageFolderTest, AnImageMustBeAFile) {
  ASSERT_EQ(::mkfifo(path("pipe.png").c_str(), 0600), 0);
  EXPECT_EQ(error_of([&] { image_info(path("pipe.png")); }), "cannot read 'pipe.png': not a regular file");
  EXPECT_EQ(error_of([&] { image_info("/dev/zero"); }), "cannot read '/dev/zero': not a regular file");
  std::filesystem::create_directory(path("folder.png"));
  EXPECT_EQ(error_of([&] { image_info(path("folder.png")); }), "cannot read 'folder.png': not a regular file");
}

TEST_F(ImageFolderTest, PicturesOfOtherFormatsAreCountedAndNamed) {
  grey("a/1.png", 1);
  write("a/2.webp", ""), write("a/3.WEBP", ""), write("b/1.gif", "");
  ::testing::internal::CaptureStderr();
  EXPECT_NE(error_of([&] {
    read_image_folder(folder_);
  }).find("'b' holds no images (.png, .jpg, .jpeg, .bmp); left out are 1 .gif, 2 .webp"),
      std::string::npos);
  grey("b/1.png", 1);
  read_image_folder(folder_);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("3 of 5 pictures in '" + folder_ + "' are left out: 1 .gif, 2 .webp"), std::string::npos) << said;
}

TEST_F(ImageFolderTest, PicturesOfAnySizeAreMadeAlike) {
  // The left third black, the rest white; once wide, once high.
  Pixels wide(12 * 4, 255), high(4 * 12, 255);
  for (int row = 0; row < 4; ++row) std::fill_n(wide.begin() + 12 * row, 4, 0);
  std::fill_n(high.begin(), 16, 0);
  image("a/wide.png", 12, 4, 1, wide);
  image("a/high.png", 4, 12, 1, high);
  const auto pixel = [](const ImageDataset& images, int64_t index, int row, int column) {
    return images.image(index)[static_cast<size_t>(4 * row + column)];
  };
  const ImageDataset cropped = read_image_folder(folder_, {}, {.size = 4, .fit = ImageFit::kCrop});
  EXPECT_EQ(cropped.height, 4);
  EXPECT_EQ(cropped.width, 4);
  for (int64_t i = 0; i < 2; ++i) EXPECT_EQ(pixel(cropped, i, 0, 0), 255) << i;  // the black third is cut off
  const ImageDataset stretched = read_image_folder(folder_, {}, {.size = 4, .fit = ImageFit::kStretch});
  EXPECT_LT(pixel(stretched, 0, 0, 3), 60);  // high.png: black above
  EXPECT_GT(pixel(stretched, 0, 3, 0), 200);
  EXPECT_LT(pixel(stretched, 1, 3, 0), 60);  // wide.png: black at the left
  EXPECT_GT(pixel(stretched, 1, 0, 3), 200);
}

// Of Pillow's Image.resize((9, 1), ...). Next to the edges, which it treats in another way, pixels may differ.
TEST(ResizeImage, FiltersAreThoseOfPillow) {
  const std::vector<uint8_t> row{0, 0, 255, 255, 0, 128};
  for (const auto& [fit, wanted] : {std::pair("bilinear", std::vector<int>{0, 0, 43, 212, 255, 212, 43, 64, 128}),
           std::pair("bicubic", std::vector<int>{0, 0, 31, 224, 255, 223, 23, 53, 136})}) {
    std::vector<uint8_t> pixels(9);
    resize_image(row.data(), 1, 6, {1, 9, 1}, image_fit(fit), pixels);
    for (size_t i = 0; i < 7; ++i) EXPECT_NEAR(pixels[i], wanted[i], 1) << fit << ' ' << i;
  }
}

// What does not fit into memory is decoded when it is asked for, and is the same: pixels, channels, parts, moments,
// batches.
TEST_F(ImageFolderTest, FilesAreTheSameAsImagesInMemory) {
  for (const bool has_color : {false, true}) {
    SCOPED_TRACE(has_color);
    for (int i = 0; i < 9; ++i) {
      Pixels pixels;
      for (int p = 0; p < 5 * 6; ++p) {
        const auto value = static_cast<uint8_t>(i * 29 + p * 7);
        for (int c = 0; c < 3; ++c) pixels.push_back(static_cast<uint8_t>(has_color && i == 7 ? value + c : value));
      }
      image("all/" + std::to_string(i % 2) + "/" + std::to_string(i) + ".bmp", 6, 5, 3, pixels);
    }
    const ImageDataset memory = read_image_folder(folder_ + "/all", {}, {.size = 4});
    for (const int threads : {1, 3}) {
      ImageDataset files = read_image_folder(folder_ + "/all", {}, {.size = 4, .threads = threads, .memory = 100});
      EXPECT_TRUE(files.pixels.empty());
      EXPECT_FALSE(files.in_memory());
      EXPECT_EQ(files.channels, has_color ? 3 : 1);
      EXPECT_EQ(files.channels, memory.channels);
      EXPECT_EQ(files.labels, memory.labels);
      EXPECT_EQ(channel_moments(files, threads).mean, channel_moments(memory).mean);
      EXPECT_EQ(channel_moments(files, threads).deviation, channel_moments(memory).deviation);
      Pixels decoded(static_cast<size_t>(files.image_bytes()));
      for (int64_t i = 0; i < files.count; ++i) {
        files.read(i, decoded);
        EXPECT_TRUE(std::ranges::equal(decoded, memory.image(i))) << i;
      }
      {  // its threads read the images until it ends
        ImageBatches from_files(files, 4, 5, {.augmentation = {.mirror = true}, .threads = threads});
        ImageBatches from_memory(memory, 4, 5, {.augmentation = {.mirror = true}});
        for (int i = 0; i < 7; ++i)
          EXPECT_TRUE(std::ranges::equal(from_files.next().arrays[0].bytes, from_memory.next().arrays[0].bytes)) << i;
      }
      ImageDataset rest = memory, part = split_off(rest, 4), part_of_files = split_off(files, 4);
      EXPECT_EQ(part_of_files.labels, part.labels);
      part_of_files.read(3, decoded);
      EXPECT_TRUE(std::ranges::equal(decoded, part.image(3)));
      files.read(4, decoded);
      EXPECT_TRUE(std::ranges::equal(decoded, rest.image(4)));
      make_color(files), make_color(rest);
      decoded.resize(static_cast<size_t>(files.image_bytes()));
      files.read(0, decoded);
      EXPECT_TRUE(std::ranges::equal(decoded, rest.image(0)));
    }
  }
}

// A file that is damaged later ends the epoch at its batch, by name; the batches before it come whole.
TEST_F(ImageFolderTest, AFileThatCannotBeDecodedAnyMoreIsNamedAtItsBatch) {
  for (int i = 0; i < 12; ++i)
    grey("all/" + std::to_string(i % 2) + "/" + std::to_string(i) + ".png", static_cast<uint8_t>(10 + i));
  const ImageDataset files = read_image_folder(folder_ + "/all", {}, {.memory = 1});
  ImageBatches batches(files, 2, 5, {.threads = 2});
  std::vector<uint8_t> values;
  for (int i = 0; i < 6; ++i) values.push_back(static_cast<uint8_t>(batches.next().arrays[0].bytes[0]));
  const std::string name = std::to_string((values[4] - 10) % 2) + "/" + std::to_string(values[4] - 10) + ".png";
  write("all/" + name, "no picture");
  batches.seek(0, 0);
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(static_cast<uint8_t>(batches.next().arrays[0].bytes[0]), values[static_cast<size_t>(i)]);
  for (int i = 0; i < 2; ++i)
    EXPECT_NE(error_of([&] { batches.next(); }).find("'all/" + name + "' cannot be decoded"), std::string::npos);
  batches.seek(0, 5);
  EXPECT_EQ(static_cast<uint8_t>(batches.next().arrays[0].bytes[0]), values[5]);
}

TEST_F(ImageFolderTest, FoldersOfClassesAloneAreDividedBySeed) {
  for (int i = 0; i < 20; ++i) grey("cat/" + std::to_string(i) + ".png", static_cast<uint8_t>(i));
  for (int i = 0; i < 10; ++i) grey("dog/" + std::to_string(i) + ".png", static_cast<uint8_t>(100 + i));
  const auto first_pixels = [](const ImageDataset& images) {
    std::vector<int> pixels;
    for (int64_t i = 0; i < images.count; ++i) pixels.push_back(images.image(i)[0]);
    return pixels;
  };
  const ImageSplits splits = load_image_splits(folder_, {}, {.share = 0.1, .seed = 7});
  EXPECT_EQ(splits.train.count, 24);
  for (const ImageDataset* part : {&splits.validation, &splits.test})
    EXPECT_EQ(part->labels, (std::vector<int32_t>{0, 0, 1}));
  std::vector<int> all;
  for (const ImageDataset* part : {&splits.train, &splits.validation, &splits.test})
    for (const int pixel : first_pixels(*part)) all.push_back(pixel);
  std::ranges::sort(all);
  EXPECT_EQ(std::ranges::unique(all).begin(), all.end());  // no image is in two parts
  EXPECT_EQ(first_pixels(load_image_splits(folder_, {}, {.seed = 7}).test), first_pixels(splits.test));
  EXPECT_NE(first_pixels(load_image_splits(folder_, {}, {.seed = 8}).train), first_pixels(splits.train));
}

TEST_F(ImageFolderTest, ClassesMayHaveAllImagesInFoldersBelow) {
  for (int i = 0; i < 10; ++i)
    for (const char* folder : {"a/x/y/", "b/z/"}) grey(folder + std::to_string(i) + ".png", static_cast<uint8_t>(i));
  EXPECT_TRUE(has_class_folders(folder_));
  EXPECT_EQ(load_image_splits(folder_).train.class_names, (std::vector<std::string>{"a", "b"}));
  EXPECT_FALSE(has_class_folders(path("a/x/y")));
  grey("parts/train/a/x/1.png", 1), grey("parts/test/a/1.png", 1);
  EXPECT_FALSE(has_class_folders(path("parts")));
  EXPECT_TRUE(has_class_folders(path("parts/train")));
}

TEST_F(ImageFolderTest, AValidationFolderHasOneOfThreeNames) {
  for (const char* name : {"valid", "val", "validation"}) {
    grey("train/a/1.png", 1), grey("train/b/1.png", 2), grey("train/b/2.png", 3);
    grey(std::string(name) + "/b/1.png", 9);
    const ImageSplits splits = load_image_splits(folder_);
    EXPECT_EQ(splits.train.count, 3) << name;
    EXPECT_EQ(splits.validation.count, 1) << name;
    std::filesystem::remove_all(path(name));
  }
}

TEST_F(ImageFolderTest, SplitsOfFoldersShareClassesAndChannels) {
  grey("train/cat/1.png", 1);
  grey("train/dog/1.png", 2);
  color("test/dog/1.png");
  ImageSplits splits = load_image_splits(folder_);
  EXPECT_EQ(splits.validation.count, 1);  // taken from the training images, of which half stay
  EXPECT_EQ(splits.test.labels, (std::vector<int32_t>{1}));
  EXPECT_EQ(splits.train.channels, 3);
  grey("val/cat/1.png", 3);
  splits = load_image_splits(folder_);
  EXPECT_EQ((Pixels(splits.train.image(1).begin(), splits.train.image(1).end())), Pixels(18, 2));
  EXPECT_EQ((Pixels(splits.validation.image(0).begin(), splits.validation.image(0).end())), Pixels(18, 3));
  grey("test/bird/1.png", 1);
  EXPECT_EQ(error_of([&] { load_image_splits(folder_); }), "'test/bird': the training images have no class 'bird'");
  std::filesystem::remove_all(folder_ + "/test/bird");
  image("test/dog/1.png", 2, 2, 1, Pixels(4, 1));
  EXPECT_NE(error_of([&] { load_image_splits(folder_); }).find("its images are 2x2x"), std::string::npos);
}

TEST_F(ImageFolderTest, ADirectoryWithoutImagesIsToldWhatWasLookedFor) {
  const std::string message = error_of([&] { load_image_splits(folder_); });
  for (const char* name : {"train-images-idx3-ubyte[.gz]", "train/ and test/"})
    EXPECT_NE(message.find(name), std::string::npos) << message;
  write("train-images.idx3-ubyte", "");
  EXPECT_NE(error_of([&] { load_image_splits(folder_); }).find("has no labels beside it: train-labels-idx1-ubyte[.gz]"),
      std::string::npos);
}
}  // namespace
}  // namespace linnet
