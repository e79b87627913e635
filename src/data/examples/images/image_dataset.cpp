#include "data/examples/images/image_dataset.h"
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>
#include "base/error.h"
#include "base/thread_pool.h"

namespace linnet {
namespace {

// How often each channel has each value of a byte: exact sums, whatever their order.
using Histogram = std::vector<std::array<int64_t, 256>>;

void count_values(std::span<const uint8_t> pixels, Histogram& histogram) {
  const size_t channels = histogram.size();
  for (size_t i = 0; i < pixels.size(); i += channels)
    for (size_t c = 0; c < channels; ++c) ++histogram[c][pixels[i + c]];
}

Histogram histogram_of(const ImageDataset& dataset, int threads) {
  const auto channels = static_cast<size_t>(dataset.channels);
  Histogram sum(channels);
  if (dataset.in_memory()) return count_values(dataset.pixels, sum), sum;
  ThreadPool pool(threads > 0 ? threads : available_threads());
  const auto bytes = static_cast<size_t>(dataset.image_bytes());
  std::vector<Histogram> parts(static_cast<size_t>(pool.size()), Histogram(channels));
  std::vector<std::vector<uint8_t>> images(parts.size(), std::vector<uint8_t>(bytes));
  pool.run(dataset.count, [&](int64_t index, int worker) {
    std::vector<uint8_t>& image = images[static_cast<size_t>(worker)];
    dataset.read(index, image);
    count_values(image, parts[static_cast<size_t>(worker)]);
  });
  for (const Histogram& part : parts)
    for (size_t c = 0; c < channels; ++c)
      for (size_t value = 0; value < 256; ++value) sum[c][value] += part[c][value];
  return sum;
}

}  // namespace

void ImageDataset::read(int64_t index, std::span<uint8_t> out) const {
  if (in_memory()) return void(std::ranges::copy(image(index), out.begin()));
  const std::string& path = files.paths[static_cast<size_t>(index)];
  if (files.channels == channels) return read_fitted_image(path, {height, width, channels}, files.fit, out);
  std::vector<uint8_t> decoded(static_cast<size_t>(height * width * files.channels));
  read_fitted_image(path, {height, width, files.channels}, files.fit, decoded);
  const auto of = static_cast<size_t>(files.channels), to = static_cast<size_t>(channels);
  for (size_t i = 0; i < out.size(); ++i) out[i] = decoded[i / to * of];
}

ChannelMoments channel_moments(const ImageDataset& dataset, int threads) {
  if (dataset.count == 0) fail_user("mean and deviation of no images");
  const Histogram histogram = histogram_of(dataset, threads);
  const auto total = static_cast<double>(dataset.count * dataset.height * dataset.width);
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
  part.files.fit = dataset.files.fit, part.files.channels = dataset.files.channels;
  const bool in_memory = dataset.in_memory();
  const int64_t bytes = in_memory ? dataset.image_bytes() : 0;
  std::vector<std::string>& paths = dataset.files.paths;
  part.pixels.reserve(static_cast<size_t>(part.count * bytes));
  part.labels.reserve(static_cast<size_t>(part.count));
  const int64_t width = dataset.has_numbers() ? dataset.classes() : 0;
  int64_t kept = 0;
  for (int64_t i = 0; i < dataset.count; ++i) {
    const uint8_t* image = dataset.pixels.data() + i * bytes;
    const int32_t label = dataset.labels[static_cast<size_t>(i)];
    const float* numbers = dataset.numbers.data() + i * width;
    if (taken[static_cast<size_t>(i)]) {
      part.pixels.insert(part.pixels.end(), image, image + bytes);
      if (!in_memory) part.files.paths.push_back(std::move(paths[static_cast<size_t>(i)]));
      part.labels.push_back(label);
      part.numbers.insert(part.numbers.end(), numbers, numbers + width);
      continue;
    }
    if (kept != i) {
      std::copy_n(image, bytes, dataset.pixels.data() + kept * bytes);
      if (!in_memory) paths[static_cast<size_t>(kept)] = std::move(paths[static_cast<size_t>(i)]);
      std::copy_n(numbers, width, dataset.numbers.data() + kept * width);
    }
    dataset.labels[static_cast<size_t>(kept++)] = label;
  }
  dataset.count = kept;
  dataset.pixels.resize(static_cast<size_t>(kept * bytes));
  dataset.labels.resize(static_cast<size_t>(kept));
  dataset.numbers.resize(static_cast<size_t>(kept * width));
  if (!in_memory) paths.resize(static_cast<size_t>(kept));
  return part;
}

void gather_images(const ImageDataset& dataset, std::span<const int32_t> indices, int64_t rows, uint8_t* images) {
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
  }
  std::memset(images + filled * bytes, 0, static_cast<size_t>((rows - filled) * bytes));
}

}  // namespace linnet
