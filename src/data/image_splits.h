// Training, validation and test images of one directory, which holds either
//
//   train-images-idx3-ubyte, train-labels-idx1-ubyte,     MNIST's files, each with or without .gz; also spelled with a
//   t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte        dot, as in train-images.idx3-ubyte
//
// or the folders train/ and test/ and, if one likes, valid/, each with a folder of images for every class
// (data/image_folder.h).
#pragma once
#include <string>

#include "data/image_dataset.h"

namespace linnet {

struct ImageSplits {
  ImageDataset train, validation, test;  // validation: no images where the directory has none (see split_off)
};

// All three have the training images' class names, size and number of channels. User errors name the file; a directory
// that holds neither is told what was looked for.
ImageSplits load_image_splits(const std::string& directory);

}  // namespace linnet
