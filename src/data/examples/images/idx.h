// The IDX format of the MNIST files (yann.lecun.com/exdb/mnist), plain or gzip: two zero bytes, the element type, the
// number of axes; each axis' size in four bytes, most significant first; the elements.
//
// Every problem is a user error of one line that names the file: missing, not IDX, elements that are not bytes, fewer
// or more of them than the sizes say, a damaged gzip stream.
#pragma once
#include <cstdint>
#include <string>
#include <vector>
#include "data/examples/images/image_dataset.h"

namespace linnet {

struct IdxArray {
  std::vector<int64_t> sizes;
  std::vector<uint8_t> values;
};
IdxArray read_idx(const std::string& path);

// images [count, height, width] or [count, height, width, channels], labels [count]. The classes are named "0", "1",
// ... up to the largest label. User error when the counts differ.
ImageDataset read_idx_images(const std::string& images_path, const std::string& labels_path);

}  // namespace linnet
