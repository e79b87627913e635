#include <algorithm>
#include <cmath>
#include "base/error.h"
#include "base/files.h"
#include "data/examples/held_out.h"
#include "data/examples/images/idx.h"
#include "data/examples/images/image_folder.h"

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

ImageSplits load_folders(const std::string& directory, const ImageLoading& loading) {
  ImageSplits splits{.train = read_image_folder(directory + "/train", {}, loading)};
  const auto& names = splits.train.class_names;
  ImageLoading rest = loading;  // the parts share the memory
  rest.memory -= splits.train.pixels.size();
  for (const auto& [name, part] :
       {std::pair{"valid", &splits.validation}, {"val", &splits.validation}, {"test", &splits.test}})
    if (part->count == 0 && file_exists(directory + "/" + name)) {
      *part = read_image_folder(directory + "/" + name, names, rest);
      rest.memory -= part->pixels.size();
    }
  make_alike(splits, directory);
  return splits;
}

// Folders of classes alone: a share for the test, and as large a one for validation.
ImageSplits divide_folders(const std::string& directory, const ImageLoading& loading, const ImageDivision& division) {
  ImageSplits splits{.train = read_image_folder(directory, {}, loading)};
  const int64_t all = splits.train.count;
  splits.test = split_stratified(splits.train, division.share, division.seed);
  const double rest = division.share * static_cast<double>(all) / static_cast<double>(splits.train.count);
  if (division.held_out == 0) splits.validation = split_stratified(splits.train, rest, division.seed + 1);
  return splits;
}

ImageSplits load_parts(const std::string& directory, const ImageLoading& loading, const ImageDivision& division) {
  if (!file_exists(directory)) fail_user("there is no image directory '" + directory + "'");
  for (const char* part : {"train", "t10k"})
    if (!find_idx(directory, std::string(part) + "-images", "idx3-ubyte").empty()) return load_idx(directory);
  if (file_exists(directory + "/train")) return load_folders(directory, loading);
  if (has_class_folders(directory)) return divide_folders(directory, loading, division);
  fail_user(
      "'" + directory +
      "' holds no images Linnet knows: neither a folder of .png, .jpg or .bmp files for each class, nor train/ and "
      "test/ with such folders, nor train-images-idx3-ubyte[.gz], train-labels-idx1-ubyte[.gz] and the same two of "
      "t10k");
}

}  // namespace

// A part may be grey by chance; all parts are what the most colorful one is.
void make_alike(ImageSplits& splits, const std::string& directory) {
  const auto parts = {&splits.train, &splits.validation, &splits.test};
  if (std::ranges::any_of(parts, [](const ImageDataset* part) { return part->channels == 3; }))
    for (ImageDataset* part : parts) make_color(*part);
  conform(splits.train, splits.validation, "'" + directory + "/valid'");
  conform(splits.train, splits.test, "'" + directory + "/test'");
}

ImageDataset split_stratified(ImageDataset& dataset, double share, uint64_t seed) {
  return take_images(dataset, choose_held_out(dataset.labels, share, seed));
}

ImageSplits load_image_splits(const std::string& directory, const ImageLoading& loading,
                              const ImageDivision& division) {
  ImageSplits splits = load_parts(directory, loading, division);
  if (splits.train.height < 2 || splits.train.width < 2)
    fail_user("the images in '" + directory + "' are " + size_text(splits.train) +
              " (width x height x channels); at least 2x2 pixels are needed");
  if (splits.validation.count > 0) return splits;
  const int64_t all = splits.train.count;
  int64_t count = division.held_out;
  if (count == 0) count = std::max<int64_t>(1, std::llround(division.share * static_cast<double>(all)));
  splits.validation = split_off(splits.train, std::min(count, all / 2));
  return splits;
}

}  // namespace linnet
