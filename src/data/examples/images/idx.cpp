#include "data/examples/images/idx.h"
#include <algorithm>
#include <array>
#include "base/error.h"
#include "data/examples/gzip_file.h"

namespace linnet {
namespace {

constexpr uint8_t kUnsignedByte = 0x08;

}  // namespace

IdxArray read_idx(const std::string& path) {
  GzipFile reader(path);
  std::array<uint8_t, 4> magic{};
  if (reader.read(magic.data(), 4) < 4 || magic[0] != 0 || magic[1] != 0 || magic[3] < 1 || magic[3] > 4)
    fail_user("'" + path + "' is not an IDX file: it does not begin with 0 0 TYPE AXES");
  if (magic[2] != kUnsignedByte)
    fail_user("'" + path + "' holds elements of IDX type " + std::to_string(magic[2]) + "; Linnet reads bytes (8)");
  IdxArray array;
  uint64_t count = 1;
  for (int axis = 0; axis < magic[3]; ++axis) {
    std::array<uint8_t, 4> size{};
    if (reader.read(size.data(), 4) < 4) fail_user("'" + path + "' is truncated: it ends within its header");
    const uint64_t value = uint64_t{size[0]} << 24 | uint64_t{size[1]} << 16 | uint64_t{size[2]} << 8 | size[3];
    array.sizes.push_back(static_cast<int64_t>(value));
    // The product of four sizes may not fit 64 bits; past this bound it only has to stay past it.
    count = value != 0 && count > reader.most_bytes() / value ? reader.most_bytes() + 1 : count * value;
  }
  const std::string truncated = "'" + path + "' is truncated: its header promises ";
  if (count > reader.most_bytes()) fail_user(truncated + "more than the file can hold");
  reader.check_size(count);
  array.values.resize(count);
  const size_t got = reader.read(array.values.data(), count);
  if (got < count) fail_user(truncated + std::to_string(count) + " bytes, " + std::to_string(got) + " follow");
  uint8_t more = 0;
  if (reader.read(&more, 1) > 0)
    fail_user("'" + path + "' goes on after the " + std::to_string(count) + " bytes its header promises");
  return array;
}

ImageDataset read_idx_images(const std::string& images_path, const std::string& labels_path) {
  IdxArray images = read_idx(images_path), labels = read_idx(labels_path);
  const size_t axes = images.sizes.size();
  if (axes < 3)
    fail_user("'" + images_path + "' has " + std::to_string(axes) + " axes; images have 3 or 4. Are these the labels?");
  if (labels.sizes.size() != 1)
    fail_user("'" + labels_path + "' has " + std::to_string(labels.sizes.size()) + " axes; labels have 1");
  if (images.sizes[0] != labels.sizes[0])
    fail_user("'" + images_path + "' has " + std::to_string(images.sizes[0]) + " images, but '" + labels_path +
              "' has " + std::to_string(labels.sizes[0]) + " labels");
  if (images.values.empty()) fail_user("'" + images_path + "' holds no images");
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

}  // namespace linnet
