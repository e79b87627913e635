// Images in folders, one folder for each class: DIRECTORY/CLASS/*.png, .jpg, .jpeg, .bmp.
#pragma once
#include <cstdint>
#include <string>
#include <vector>
#include "data/examples/images/image_dataset.h"

namespace linnet {
// Names of the folders in `directory`, sorted by bytes, without hidden ones.
std::vector<std::string> list_folders(const std::string& directory);

// How images get one size.
struct ImageLoading {
  int64_t size = 0;  // pixels of either side; 0: as they are, and all must be alike
  ImageFit fit = ImageFit::kCrop;
  int threads = 0;               // that decode files; 0: all that the process may use
  uint64_t memory = UINT64_MAX;  // bytes: images that take more stay files (ImageDataset::files)
};

// Classes are the folders, sorted; images of a class are sorted by name; files of other kinds are skipped. The result
// has three channels unless every image is grey, even if stored as three equal channels. With `class_names` (of the
// training images) labels are indices into it, and another folder is an error. User errors name a folder without
// images, an unreadable file, or two files of different size.
ImageDataset read_image_folder(
    const std::string& directory, const std::vector<std::string>& class_names = {}, const ImageLoading& loading = {});

ImageDataset read_image_files(const std::vector<std::string>& paths, const ImageLoading& loading);  // without labels

bool has_class_folders(const std::string& directory);
// The images in a folder and all folders below it, sorted.
std::vector<std::string> find_images(const std::string& directory);
// Warns of images that find_images() skips because of their format, with counts; `read`: the number of the others.
void warn_of_foreign_images(const std::string& directory, size_t read);

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
