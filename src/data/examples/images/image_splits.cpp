#include <algorithm>
#include <array>
#include <cmath>
#include "base/fail.h"
#include "base/files.h"
#include "data/examples/held_out.h"
#include "data/examples/images/image_folder.h"
#include "data/examples/text/record_reader.h"

namespace linnet {

IdxArray read_idx(const std::string& path) {
  GzipFile reader(path);
  std::array<uint8_t, 4> magic{};
  if (reader.read(magic.data(), 4) < 4 || magic[0] != 0 || magic[1] != 0 || magic[3] < 1 || magic[3] > 4)
    fail_user("'", path, "' is not an IDX file: it does not begin with 0 0 TYPE AXES");
  if (magic[2] != 8) fail_user("'", path, "' holds elements of IDX type ", magic[2], "; Linnet reads bytes (8)");
  IdxArray array;
  uint64_t count = 1;
  for (int axis = 0; axis < magic[3]; ++axis) {
    std::array<uint8_t, 4> size{};
    if (reader.read(size.data(), 4) < 4) fail_user("'", path, "' is truncated: it ends within its header");
    const uint64_t value = uint64_t{size[0]} << 24 | uint64_t{size[1]} << 16 | uint64_t{size[2]} << 8 | size[3];
    array.sizes.push_back(static_cast<int64_t>(value));
    // The product of four sizes may not fit 64 bits; past this bound it only has to stay past it.
    count = value != 0 && count > reader.most_bytes() / value ? reader.most_bytes() + 1 : count * value;
  }
  const std::string truncated = "'" + path + "' is truncated: its header promises ";
  if (count > reader.most_bytes()) fail_user(truncated, "more than the file can hold");
  reader.check_size(count);
  array.values.resize(count);
  const size_t got = reader.read(array.values.data(), count);
  if (got < count) fail_user(truncated, count, " bytes, ", got, " follow");
  uint8_t more = 0;
  if (reader.read(&more, 1) > 0) fail_user("'", path, "' goes on after the ", count, " bytes its header promises");
  return array;
}

ImageDataset read_idx_images(const std::string& images_path, const std::string& labels_path) {
  IdxArray images = read_idx(images_path), labels = read_idx(labels_path);
  const size_t axes = images.sizes.size();
  if (axes < 3) fail_user("'", images_path, "' has ", axes, " axes; images have 3 or 4. Are these the labels?");
  if (labels.sizes.size() != 1) fail_user("'", labels_path, "' has ", labels.sizes.size(), " axes; labels have 1");
  if (images.sizes[0] != labels.sizes[0])
    fail_user("'", images_path, "' has ", images.sizes[0], " images, but '", labels_path, "' has ", labels.sizes[0],
              " labels");
  if (images.values.empty()) fail_user("'", images_path, "' holds no images");
  ImageDataset dataset{.count = images.sizes[0],
                       .height = images.sizes[1],
                       .width = images.sizes[2],
                       .channels = axes > 3 ? images.sizes[3] : 1,
                       .pixels = std::move(images.values)};
  dataset.labels.assign(labels.values.begin(), labels.values.end());
  const int32_t largest = *std::max_element(dataset.labels.begin(), dataset.labels.end());
  for (int32_t label = 0; label <= largest; ++label) dataset.class_names.push_back(std::to_string(label));
  return dataset;
}

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
  if (images.empty()) fail_user("'", directory, "' has no ", part, "-images-idx3-ubyte[.gz] beside its other files");
  if (labels.empty()) fail_user("'", images, "' has no labels beside it: ", part, "-labels-idx1-ubyte[.gz]");
  return read_idx_images(images, labels);
}

std::string size_text(const ImageDataset& images) {
  return std::to_string(images.width) + "x" + std::to_string(images.height) + "x" + std::to_string(images.channels);
}

// Checks that a part fits the training images and gives it their class names.
void conform(const ImageDataset& train, ImageDataset& part, const std::string& name) {
  if (part.count == 0) return;
  if (part.height != train.height || part.width != train.width || part.channels != train.channels)
    fail_user(name, ": its images are ", size_text(part), ", the training images ", size_text(train));
  const int32_t largest = *std::ranges::max_element(part.labels);
  if (largest >= train.classes())
    fail_user(name, ": label ", largest, " does not occur among the ", train.classes(),
              " classes of the training images");
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
  if (!file_exists(directory)) fail_user("there is no image directory '", directory, "'");
  for (const char* part : {"train", "t10k"})
    if (!find_idx(directory, std::string(part) + "-images", "idx3-ubyte").empty()) return load_idx(directory);
  if (file_exists(directory + "/train")) return load_folders(directory, loading);
  if (has_class_folders(directory)) return divide_folders(directory, loading, division);
  fail_user(
      "'", directory,
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
    fail_user("the images in '", directory, "' are ", size_text(splits.train),
              " (width x height x channels); at least 2x2 pixels are needed");
  if (splits.validation.count > 0) return splits;
  const int64_t all = splits.train.count;
  int64_t count = division.held_out;
  if (count == 0) count = std::max<int64_t>(1, std::llround(division.share * static_cast<double>(all)));
  splits.validation = split_off(splits.train, std::min(count, all / 2));
  return splits;
}

}  // namespace linnet
