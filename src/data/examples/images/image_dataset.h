// Image files, and labelled images of one size.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace linnet {
// Reads PNG, JPEG and BMP files. Every problem is a user error of one line that names the file, including a header with
// more than kMostPixels, which is refused before memory is taken, and a truncated BMP.

struct ImageInfo {
  int64_t height, width;
  int64_t channels;  // 1 (grey) or 3 (red, green, blue); transparency is left out
};

constexpr int64_t kMostPixels = 100'000'000;

ImageInfo image_info(const std::string& path);  // reads the header only
// How an image is fitted to another size.
enum class ImageFit {
  kCrop,      // scaled, the middle kept: nothing is distorted, the edges of the longer side are lost
  kStretch,   // both sides scaled by themselves: all is kept, but distorted
  kBilinear,  // as kStretch, by Pillow's filter of this name
  kBicubic,   // the same
};
ImageFit image_fit(const std::string& name);  // "crop", "stretch", "bilinear" or "bicubic"

// Resizes an image [height, width, to.channels] to `to`.
void resize_image(
    const uint8_t* from, int64_t height, int64_t width, const ImageInfo& to, ImageFit fit, std::span<uint8_t> pixels);
// The pixels of a file, resized to `size`; a grey file gives equal channels. 16 bits a channel become 8.
void read_fitted_image(const std::string& path, const ImageInfo& size, ImageFit fit, std::span<uint8_t> pixels);

struct ImageFiles {
  std::vector<std::string> paths = {};  // [count]; empty: the pixels are in memory
  ImageFit fit = ImageFit::kCrop;
  int64_t channels = 0;  // that files are decoded to: 3 where grey images are stored as color, too
};

// Labelled images of one size: bytes in memory, or files decoded on request, so that a dataset may exceed memory. The
// pixels are the same either way.
struct ImageDataset {
  int64_t count = 0, height = 0, width = 0, channels = 0;
  std::vector<uint8_t> pixels;  // [count, height, width, channels]; empty where there are files
  ImageFiles files = {};
  std::vector<int32_t> labels;           // [count], indices into class_names; zeros where there are numbers
  std::vector<float> numbers = {};       // [count, classes()] of several labels, 0 or 1 each, or of numbers to learn
  std::vector<std::string> class_names;  // what the folders were called, or "0", "1", ...; of numbers: the outputs

  int64_t image_bytes() const { return height * width * channels; }
  int64_t classes() const { return std::ssize(class_names); }
  bool in_memory() const { return files.paths.empty(); }
  bool has_numbers() const { return !numbers.empty(); }
  std::span<const float> numbers_of(int64_t index) const {
    return std::span(numbers).subspan(index * classes(), classes());
  }
  std::span<const uint8_t> image(int64_t index) const {  // only for images in memory
    return std::span(pixels).subspan(index * image_bytes(), image_bytes());
  }
  // Copies or decodes one image to `out` [image_bytes()]. Thread-safe. User error naming a file that cannot be decoded.
  void read(int64_t index, std::span<uint8_t> out) const;
};

// Mean and standard deviation of each channel over all images, for pixels from 0 to 1. A constant channel has deviation
// 1, so that one can divide by it. User error without images. `threads`: decode files; 0: all CPUs of the process. The
// result does not depend on it.
struct ChannelMoments {
  std::vector<double> mean, deviation;
};
ChannelMoments channel_moments(const ImageDataset& dataset, int threads = 0);

// Splits a validation part of `count` images off `dataset`, evenly spread over it, and so over the classes if images
// are sorted by class. Both parts keep the order. User error unless 0 <= count < dataset.count.
ImageDataset split_off(ImageDataset& dataset, int64_t count);
// Moves the images with taken[i] out. Both parts keep the order.
ImageDataset take_images(ImageDataset& dataset, const std::vector<bool>& taken);

// Names of the folders in `directory`, sorted by bytes, without hidden ones. Here and below it, links to folders are
// followed, but no folder is searched twice, and none above the one that the search began in.
std::vector<std::string> list_folders(const std::string& directory);

// How images get one size.
struct ImageLoading {
  int64_t size = 0;  // pixels of either side; 0: as they are, and all must be alike
  ImageFit fit = ImageFit::kCrop;
  int threads = 0;               // that decode files; 0: all that the process may use
  uint64_t memory = UINT64_MAX;  // bytes: images that take more stay files (ImageDataset::files)
};

// Images DIRECTORY/CLASS/*.png, .jpg, .jpeg and .bmp. Classes are the folders, sorted; images of a class are sorted by
// name; files of other kinds are skipped. The result has three channels unless every image is grey, even if stored as
// three equal channels. With `class_names` (of the training images) labels are indices into it, and another folder is
// an error. User errors name a folder without images, an unreadable file, or two files of different size.
ImageDataset read_image_folder(
    const std::string& directory, const std::vector<std::string>& class_names = {}, const ImageLoading& loading = {});

ImageDataset read_image_files(const std::vector<std::string>& paths, const ImageLoading& loading);  // without labels

// Whether folders in it hold images, directly or in folders below. Not so where they are parts: train/, test/, ...
bool has_class_folders(const std::string& directory);
// The images in a folder and all folders below it, sorted. `warn`: of images that are skipped because of their format.
std::vector<std::string> find_images(const std::string& directory, bool warn = false);

void make_color(ImageDataset& dataset);  // turns one channel into three equal ones; 3 stay 3

// Training, validation and test images of a directory, which holds one of
//
//   train-images-idx3-ubyte, train-labels-idx1-ubyte,     MNIST's files, each with or without .gz; also spelled with a
//   t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte        dot, as in train-images.idx3-ubyte
//
//   train/, optionally valid/ (or val/) and test/,        each with a folder of images for every class
//   a folder of images for every class                    which are divided here

struct ImageSplits {
  ImageDataset train, validation, test;  // the latter two: no images where the directory has none
};

// How images are divided if the directory does not do it.
struct ImageDivision {
  double share = 0.1;    // of the images for validation, and as much for the test
  int64_t held_out = 0;  // above 0: so many images for validation instead
  uint64_t seed = 1;
};

// All three have the training images' class names, size and channels. Without validation images, a part of the training
// images becomes them, at most half. User errors name the file; without images they say what was looked for.
ImageSplits load_image_splits(
    const std::string& directory, const ImageLoading& loading = {}, const ImageDivision& division = {});

// Gives all parts the channels of the part with most. User error if a part does not fit the training images.
void make_alike(ImageSplits& splits, const std::string& directory);

// The IDX format of the MNIST files (yann.lecun.com/exdb/mnist), plain or gzip: two zero bytes, the element type, the
// number of axes; each axis' size in four bytes, most significant first; the elements. Every problem is a user error of
// one line that names the file: missing, not IDX, elements other than bytes or too few or many, damaged gzip.
struct IdxArray {
  std::vector<int64_t> sizes;
  std::vector<uint8_t> values;
};
IdxArray read_idx(const std::string& path);

// images [count, height, width] or [count, height, width, channels], labels [count]. Classes are "0", "1", ... up to
// the largest label. User error if the counts differ.
ImageDataset read_idx_images(const std::string& images_path, const std::string& labels_path);
}  // namespace linnet
