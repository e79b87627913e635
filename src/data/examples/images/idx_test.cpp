#include <zlib.h>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include "data/examples/images/image_dataset.h"
#include "image_testing.h"

namespace linnet {
namespace {
std::string number(uint32_t n) {
  return {static_cast<char>(n >> 24), static_cast<char>(n >> 16), static_cast<char>(n >> 8), static_cast<char>(n)};
}
std::string header(const std::vector<uint32_t>& sizes, char type = 8) {
  std::string bytes{0, 0, type, static_cast<char>(sizes.size())};
  for (uint32_t size : sizes) bytes += number(size);
  return bytes;
}

class IdxTest : public ImageTest {
 protected:
  std::string write_gzip(const std::string& name, const std::string& bytes) {
    gzFile file = ::gzopen(path(name).c_str(), "wb");
    ::gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
    ::gzclose(file);
    return path(name);
  }
  std::string error_reading(const std::string& file) {
    return error_of([&] { read_idx(file); });
  }
};

TEST_F(IdxTest, ReadsPlainAndGzip) {
  const std::string bytes = header({2, 3}) + std::string("\x01\x02\x03\xff\x00\x05", 6);
  for (const std::string& file : {write("a", bytes), write_gzip("b.gz", bytes), write_gzip("c", bytes)}) {
    const IdxArray array = read_idx(file);
    EXPECT_EQ(array.sizes, (std::vector<int64_t>{2, 3}));
    EXPECT_EQ(array.values, (std::vector<uint8_t>{1, 2, 3, 255, 0, 5}));
  }
}

// 200 MB of zeros in 200 KB.
TEST_F(IdxTest, AFileThatExpandsTooFarIsRefusedBeforeItTakesMemory) {
  const std::string file = write_gzip("bomb.gz", header({200, 1000, 1000}) + std::string(100'000, '\0'));
  std::filesystem::resize_file(file, 200'000);
  EXPECT_NE(
      error_reading(file).find("'bomb.gz' expands to more than 64 MiB and 200 times its size"), std::string::npos);
}

TEST_F(IdxTest, EveryDamageIsNamed) {
  EXPECT_EQ(error_reading(folder_ + "/none"), "cannot read 'none': No such file or directory");
  EXPECT_EQ(error_reading(path("folder/x").substr(0, folder_.size() + 7)), "cannot read 'folder': it is a directory");
  EXPECT_EQ(error_reading(write("text", "hello")), "'text' is not an IDX file: it does not begin with 0 0 TYPE AXES");
  EXPECT_EQ(error_reading(write("empty", "")), "'empty' is not an IDX file: it does not begin with 0 0 TYPE AXES");
  EXPECT_EQ(error_reading(write("floats", header({1}, 0x0d) + "1234")),
      "'floats' holds elements of IDX type 13; Linnet reads bytes (8)");
  EXPECT_EQ(error_reading(write("sizes", header({1, 2, 3}).substr(0, 10))),
      "'sizes' is truncated: it ends within its header");
  EXPECT_EQ(error_reading(write("short", header({2, 3}) + "12345")),
      "'short' is truncated: its header promises 6 bytes, 5 follow");
  EXPECT_EQ(error_reading(write("long", header({2}) + "123")), "'long' goes on after the 2 bytes its header promises");
  // Sizes no file of this length can hold take no memory.
  const uint32_t huge = 0xffffffff;
  EXPECT_EQ(error_reading(write("huge", header({huge, huge, huge, huge}) + "1")),
      "'huge' is truncated: its header promises more than the file can hold");
  const std::string whole = write_gzip("whole.gz", header({1000}) + std::string(1000, 'x') + "y");
  std::string bytes;
  std::getline(std::ifstream(whole, std::ios::binary), bytes, '\xff');
  EXPECT_NE(error_reading(write("cut.gz", bytes.substr(0, 20))).find("truncated"), std::string::npos);
}

TEST_F(IdxTest, ImagesAndLabelsMustFit) {
  const std::string images = write("images", header({2, 1, 2}) + "abcd");
  const std::string labels = write("labels", header({2}) + std::string("\x03\x00", 2));
  const ImageDataset dataset = read_idx_images(images, labels);
  EXPECT_EQ(dataset.count, 2);
  EXPECT_EQ(dataset.channels, 1);
  EXPECT_EQ(dataset.labels, (std::vector<int32_t>{3, 0}));
  EXPECT_EQ(dataset.class_names, (std::vector<std::string>{"0", "1", "2", "3"}));
  EXPECT_EQ(dataset.image(1)[0], 'c');
  const std::string three = write("three", header({3}) + "123");
  EXPECT_EQ(error_of([&] { read_idx_images(images, three); }), "'images' has 2 images, but 'three' has 3 labels");
  EXPECT_EQ(error_of([&] { read_idx_images(labels, labels); }),
      "'labels' has 1 axes; images have 3 or 4. Are these the labels?");
  EXPECT_EQ(error_of([&] { read_idx_images(images, images); }), "'images' has 3 axes; labels have 1");
}

TEST(Mnist, TheRealFiles) {
  const char* data = std::getenv("LINNET_DATA");
  const std::string directory = std::string(data ? data : "") + "/images/mnist";
  if (!data || !std::filesystem::exists(directory))
    GTEST_SKIP() << "LINNET_DATA does not name a folder with images/mnist";
  const ImageSplits splits = load_image_splits(directory);
  EXPECT_EQ(splits.train.count, 54000);
  EXPECT_EQ(splits.validation.count, 6000);
  EXPECT_EQ(splits.test.count, 10000);
  EXPECT_EQ(splits.train.classes(), 10);
  EXPECT_EQ(splits.train.height, 28);
  EXPECT_EQ((std::vector<int32_t>(splits.train.labels.begin(), splits.train.labels.begin() + 5)),
      (std::vector<int32_t>{5, 0, 4, 1, 9}));
  const ChannelMoments moments = channel_moments(splits.train);
  EXPECT_NEAR(moments.mean[0], 0.1307, 2e-3);  // of all 60,000, as every tutorial has it
  EXPECT_NEAR(moments.deviation[0], 0.3081, 2e-3);
}
}  // namespace
}  // namespace linnet
