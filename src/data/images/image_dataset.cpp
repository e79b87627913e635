#include "data/images/image_dataset.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/error.h"

namespace linnet {

ChannelMoments channel_moments(const ImageDataset& dataset) {
  if (dataset.count == 0) fail_user("mean and deviation of no images");
  const auto channels = static_cast<size_t>(dataset.channels);
  // A byte has few values: their counts give exact sums.
  std::vector<std::array<int64_t, 256>> histogram(channels);
  for (size_t i = 0; i < dataset.pixels.size(); i += channels)
    for (size_t c = 0; c < channels; ++c) ++histogram[c][dataset.pixels[i + c]];
  const auto total = static_cast<double>(dataset.pixels.size() / channels);
  ChannelMoments moments;
  for (const auto& counts : histogram) {
    double sum = 0, squares = 0;
    for (int value = 0; value < 256; ++value) {
      const double x = value / 255.0, n = static_cast<double>(counts[static_cast<size_t>(value)]);
      sum += n * x;
      squares += n * x * x;
    }
    const double mean = sum / total, variance = squares / total - mean * mean;
    moments.mean.push_back(mean);
    moments.deviation.push_back(variance > 1e-12 ? std::sqrt(variance) : 1.0);
  }
  return moments;
}

ImageDataset split_off(ImageDataset& dataset, int64_t count) {
  if (count < 0 || count >= dataset.count)
    fail_user("cannot take " + std::to_string(count) + " of " + std::to_string(dataset.count) +
              " images for validation: some must remain");
  std::vector<bool> taken(static_cast<size_t>(dataset.count));
  for (int64_t i = 0; i < dataset.count; ++i)
    taken[static_cast<size_t>(i)] = (i + 1) * count / dataset.count > i * count / dataset.count;
  return take_images(dataset, taken);
}

ImageDataset take_images(ImageDataset& dataset, const std::vector<bool>& taken) {
  ImageDataset part{.height = dataset.height, .width = dataset.width, .channels = dataset.channels};
  part.class_names = dataset.class_names;
  part.count = std::ranges::count(taken, true);
  const int64_t bytes = dataset.image_bytes();
  part.pixels.reserve(static_cast<size_t>(part.count * bytes));
  part.labels.reserve(static_cast<size_t>(part.count));
  int64_t kept = 0;
  for (int64_t i = 0; i < dataset.count; ++i) {
    const uint8_t* image = dataset.pixels.data() + i * bytes;
    const int32_t label = dataset.labels[static_cast<size_t>(i)];
    if (taken[static_cast<size_t>(i)]) {
      part.pixels.insert(part.pixels.end(), image, image + bytes);
      part.labels.push_back(label);
      continue;
    }
    if (kept != i) std::memcpy(dataset.pixels.data() + kept * bytes, image, static_cast<size_t>(bytes));
    dataset.labels[static_cast<size_t>(kept++)] = label;
  }
  dataset.count = kept;
  dataset.pixels.resize(static_cast<size_t>(kept * bytes));
  dataset.labels.resize(static_cast<size_t>(kept));
  return part;
}

void gather_images(const ImageDataset& dataset, std::span<const int32_t> indices, int64_t rows, uint8_t* images,
                   int32_t* labels) {
  const int64_t bytes = dataset.image_bytes();
  const auto filled = static_cast<int64_t>(indices.size());
  if (filled > rows) fail_internal("a batch of " + std::to_string(rows) + " rows was given more images than that");
  constexpr int64_t kAhead = 4, kLine = 64;  // the images lie anywhere in memory: ask for the next ones in time
  for (int64_t row = 0; row < filled; ++row) {
    if (row + kAhead < filled) {
      const uint8_t* next = dataset.image(indices[static_cast<size_t>(row + kAhead)]).data();
      for (int64_t offset = 0; offset < bytes; offset += kLine) __builtin_prefetch(next + offset);
    }
    const auto index = indices[static_cast<size_t>(row)];
    std::memcpy(images + row * bytes, dataset.image(index).data(), static_cast<size_t>(bytes));
    labels[row] = dataset.labels[static_cast<size_t>(index)];
  }
  std::memset(images + filled * bytes, 0, static_cast<size_t>((rows - filled) * bytes));
  std::fill(labels + filled, labels + rows, -1);
}

}  // namespace linnet
