// Training, validation and test images of one directory, which holds one of
//
//   train-images-idx3-ubyte, train-labels-idx1-ubyte,     MNIST's files, each with or without .gz; also spelled with a
//   t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte        dot, as in train-images.idx3-ubyte
//
//   train/, and if one likes valid/ (or val/) and test/,  each with a folder of images for every class
//                                                         (data/examples/images/image_folder.h)
//   a folder of images for every class                    which are then divided here
#pragma once
#include <string>

#include "data/examples/images/image_folder.h"

namespace linnet {

struct ImageSplits {
  ImageDataset train, validation, test;  // the latter two: no images where the directory has none
};

// How images that the directory does not divide are divided.
struct ImageDivision {
  double share = 0.1;    // of the images for validation, and as much for the test
  int64_t held_out = 0;  // above 0: so many images for validation instead
  uint64_t seed = 1;
};

// All three have the training images' class names, size and number of channels. Where the directory names no validation
// images, a part of the training images becomes them: never more than half. User errors name the file; a directory that
// holds nothing of the kind is told what was looked for.
ImageSplits load_image_splits(const std::string& directory, const ImageLoading& loading = {},
                              const ImageDivision& division = {});

// Takes a share out of each class (data/examples/held_out.h). The order of both parts is that of the dataset.
ImageDataset split_stratified(ImageDataset& dataset, double share, uint64_t seed);

}  // namespace linnet
