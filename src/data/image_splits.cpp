#include "data/image_splits.h"

#include <algorithm>

#include "base/error.h"
#include "base/files.h"
#include "data/idx.h"
#include "data/image_folder.h"

namespace linnet {
namespace {

// The file as `directory` spells it; empty when it is not there.
std::string find_idx(const std::string& directory, const std::string& part, const std::string& kind) {
  for (const char* separator : {"-", "."})
    for (const char* ending : {"", ".gz"}) {
      const std::string path = directory + "/" + part + separator + kind + ending;
      if (file_exists(path)) return path;
    }
  return "";
}

ImageDataset read_idx_part(const std::string& directory, const std::string& part) {
  const std::string images = find_idx(directory, part + "-images", "idx3-ubyte");
  const std::string labels = find_idx(directory, part + "-labels", "idx1-ubyte");
  if (images.empty())
    fail_user("'" + directory + "' has no " + part + "-images-idx3-ubyte[.gz] beside its other files");
  if (labels.empty()) fail_user("'" + images + "' has no labels beside it: " + part + "-labels-idx1-ubyte[.gz]");
  return read_idx_images(images, labels);
}

std::string size_text(const ImageDataset& images) {
  return std::to_string(images.width) + "x" + std::to_string(images.height) + "x" + std::to_string(images.channels);
}

// Checks that a part fits the training images and gives it their class names.
void conform(const ImageDataset& train, ImageDataset& part, const std::string& name) {
  if (part.count == 0) return;
  if (part.height != train.height || part.width != train.width || part.channels != train.channels)
    fail_user(name + ": its images are " + size_text(part) + ", the training images " + size_text(train));
  const int32_t largest = *std::ranges::max_element(part.labels);
  if (largest >= train.classes())
    fail_user(name + ": label " + std::to_string(largest) + " does not occur among the " +
              std::to_string(train.classes()) + " classes of the training images");
  part.class_names = train.class_names;
}

ImageSplits load_idx(const std::string& directory) {
  ImageSplits splits{.train = read_idx_part(directory, "train"), .test = read_idx_part(directory, "t10k")};
  conform(splits.train, splits.test, "'" + directory + "' t10k");
  return splits;
}

ImageSplits load_folders(const std::string& directory) {
  ImageSplits splits{.train = read_image_folder(directory + "/train")};
  const auto& names = splits.train.class_names;
  splits.test = read_image_folder(directory + "/test", names);
  if (file_exists(directory + "/valid")) splits.validation = read_image_folder(directory + "/valid", names);
  // A part may be grey by chance; all parts are what the most colourful one is.
  const auto parts = {&splits.train, &splits.validation, &splits.test};
  if (std::ranges::any_of(parts, [](const ImageDataset* part) { return part->channels == 3; }))
    for (ImageDataset* part : parts) make_colour(*part);
  conform(splits.train, splits.validation, "'" + directory + "/valid'");
  conform(splits.train, splits.test, "'" + directory + "/test'");
  return splits;
}

}  // namespace

ImageSplits load_image_splits(const std::string& directory) {
  if (!file_exists(directory)) fail_user("there is no image directory '" + directory + "'");
  for (const char* part : {"train", "t10k"})
    if (!find_idx(directory, std::string(part) + "-images", "idx3-ubyte").empty()) return load_idx(directory);
  if (file_exists(directory + "/train") && file_exists(directory + "/test")) return load_folders(directory);
  fail_user(
      "'" + directory +
      "' holds no images Linnet knows: neither train-images-idx3-ubyte[.gz], train-labels-idx1-ubyte[.gz] and the "
      "same two of t10k, nor the folders train/ and test/ with a folder of .png, .jpg or .bmp files for each class");
}

}  // namespace linnet
