#include "data/examples/images/image_dataset.h"
#include <fcntl.h>
#include <sys/stat.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <memory>
#include "base/fail.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "data/examples/images/image_stb-inl.h"

namespace linnet {
namespace {
using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

// Refuses pipes, which would block, and devices, which have no end.
File open_image(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  File file(descriptor < 0 ? nullptr : ::fdopen(descriptor, "rb"), std::fclose);
  if (!file) fail_user("cannot read '", path, "': ", std::strerror(errno));
  struct stat status {};
  if (::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode))
    fail_user("cannot read '", path, "': not a regular file");
  return file;
}

[[noreturn]] void fail_decoding(const std::string& path) {
  const char* reason = stbi_failure_reason();
  fail_user("'", path, "' cannot be decoded as PNG, JPEG or BMP", reason ? ": " + std::string(reason) : "");
}

// The size of an uncompressed BMP up to the end of its last row; 0 for other files.
int64_t least_bmp_bytes(std::FILE* file) {
  std::array<uint8_t, 34> head{};
  const size_t got = std::fread(head.data(), 1, head.size(), file);
  std::rewind(file);
  if (got < head.size() || head[0] != 'B' || head[1] != 'M') return 0;
  const auto number = [&](size_t at, size_t bytes) {
    uint32_t value = 0;
    for (size_t i = 0; i < bytes; ++i) value |= uint32_t{head[at + i]} << (8 * i);
    return value;
  };
  const bool is_old = number(14, 4) == 12;  // OS/2's header, of 16-bit sizes
  const auto side = [&](uint32_t value) { return std::abs(int64_t{static_cast<int32_t>(value)}); };
  const int64_t width = is_old ? number(18, 2) : side(number(18, 4)),
                height = is_old ? number(20, 2) : side(number(22, 4)), bits = is_old ? number(24, 2) : number(28, 2);
  const uint32_t compression = is_old ? 0 : number(30, 4);
  if ((compression != 0 && compression != 3) || width == 0 || height == 0 || width * height > kMostPixels) return 0;
  return number(10, 4) + (width * bits + 31) / 32 * 4 * (height - 1) + (width * bits + 7) / 8;
}

// Checks the header's sizes before memory is taken for them; then rewinds the file.
ImageInfo checked_info(std::FILE* file, const std::string& path) {
  int width = 0, height = 0, channels = 0;
  if (!stbi_info_from_file(file, &width, &height, &channels)) fail_decoding(path);
  const int64_t rows = std::abs(int64_t{height});  // a BMP whose first row is the upper one has a negative height
  if (width < 1 || rows < 1)
    fail_user("'", path, "' declares ", width, "x", rows, " pixels; an image has at least one");
  if (width * rows > kMostPixels)
    fail_user("'", path, "' declares ", width, "x", rows, " pixels; Linnet decodes images of at most ", kMostPixels);
  std::rewind(file);
  struct stat status {};
  if (const int64_t least = least_bmp_bytes(file); ::fstat(::fileno(file), &status) == 0 && status.st_size < least)
    fail_user("'", path, "' is cut short: its pixels take ", least, " bytes, and it has ", status.st_size);
  return {rows, width, channels < 3 ? 1 : 3};
}

// Counts of byte values per channel: exact sums, whatever their order.
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
  ThreadPool pool(threads_or_all(threads));
  const auto bytes = static_cast<size_t>(dataset.image_bytes());
  std::vector<Histogram> parts(pool.size(), Histogram(channels));
  std::vector<std::vector<uint8_t>> images(parts.size(), std::vector<uint8_t>(bytes));
  pool.run(dataset.count, [&](int64_t index, int worker) {
    std::vector<uint8_t>& image = images[worker];
    dataset.read(index, image);
    count_values(image, parts[worker]);
  });
  for (const Histogram& part : parts)
    for (size_t c = 0; c < channels; ++c)
      for (size_t value = 0; value < 256; ++value) sum[c][value] += part[c][value];
  return sum;
}

// In ImageFit's order.
constexpr std::pair<const char*, stbir_filter> kFits[] = {{"crop", STBIR_FILTER_DEFAULT},
    {"stretch", STBIR_FILTER_DEFAULT}, {"bilinear", STBIR_FILTER_TRIANGLE}, {"bicubic", STBIR_FILTER_CATMULLROM}};
}  // namespace

ImageInfo image_info(const std::string& path) { return checked_info(open_image(path).get(), path); }

void read_fitted_image(const std::string& path, const ImageInfo& size, ImageFit fit, std::span<uint8_t> pixels) {
  const File file = open_image(path);
  checked_info(file.get(), path);
  int width = 0, height = 0, stored_channels = 0;
  const std::unique_ptr<uint8_t, void (*)(void*)> decoded(
      stbi_load_from_file(file.get(), &width, &height, &stored_channels, static_cast<int>(size.channels)),
      stbi_image_free);
  if (!decoded) fail_decoding(path);
  resize_image(decoded.get(), height, width, size, fit, pixels);
}

ImageFit image_fit(const std::string& name) {
  for (size_t i = 0; i < std::size(kFits); ++i)
    if (name == kFits[i].first) return static_cast<ImageFit>(i);
  fail_internal("no way to fit images is called ", name);
}

void resize_image(
    const uint8_t* from, int64_t height, int64_t width, const ImageInfo& to, ImageFit fit, std::span<uint8_t> pixels) {
  const int64_t channels = to.channels, stride = width * channels;
  int64_t rows = height, columns = width;
  if (fit == ImageFit::kCrop) {  // the largest part of the wanted shape
    columns = std::clamp<int64_t>(height * to.width / to.height, 1, width);
    rows = std::clamp<int64_t>(width * to.height / to.width, 1, height);
  }
  const uint8_t* begin = from + (height - rows) / 2 * stride + (width - columns) / 2 * channels;
  if (rows == to.height && columns == to.width) {
    for (int64_t row = 0; row < rows; ++row)
      std::copy_n(begin + row * stride, columns * channels, pixels.data() + row * columns * channels);
    return;
  }
  const bool done = stbir_resize_uint8_generic(begin, static_cast<int>(columns), static_cast<int>(rows),
      static_cast<int>(stride), pixels.data(), static_cast<int>(to.width), static_cast<int>(to.height), 0,
      static_cast<int>(channels), STBIR_ALPHA_CHANNEL_NONE, 0, STBIR_EDGE_CLAMP, kFits[static_cast<size_t>(fit)].second,
      STBIR_COLORSPACE_LINEAR, nullptr);
  if (!done)
    fail_system("not enough memory to resize an image of " + std::to_string(width) + "x" + std::to_string(height));
}

void ImageDataset::read(int64_t index, std::span<uint8_t> out) const {
  if (in_memory()) return void(std::copy_n(image(index).data(), image(index).size(), out.data()));
  const std::string& path = files.paths[index];
  if (files.channels == channels) return read_fitted_image(path, {height, width, channels}, files.fit, out);
  std::vector<uint8_t> decoded(height * width * files.channels);
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
      const double x = value / 255.0, n = static_cast<double>(counts[value]);
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
    fail_user("cannot take ", count, " of ", dataset.count, " images for validation: some must remain");
  std::vector<bool> taken(dataset.count);
  for (int64_t i = 0; i < dataset.count; ++i) taken[i] = (i + 1) * count / dataset.count > i * count / dataset.count;
  return take_images(dataset, taken);
}

ImageDataset take_images(ImageDataset& dataset, const std::vector<bool>& taken) {
  // Moves the taken rows, of `width` values each, into another list.
  const auto take = [&](auto& values, int64_t width) {
    const int64_t count = values.empty() ? 0 : std::ssize(taken);
    std::remove_reference_t<decltype(values)> part;
    if (count > 0) part.reserve(std::ranges::count(taken, true) * width);
    auto kept = values.begin();
    for (int64_t i = 0; i < count; ++i) {
      const auto row = values.begin() + i * width;
      if (taken[i]) std::move(row, row + width, std::back_inserter(part));
      else kept = row == kept ? row + width : std::move(row, row + width, kept);
    }
    values.erase(kept, values.end());
    return part;
  };
  ImageDataset part = {.height = dataset.height, .width = dataset.width, .channels = dataset.channels};
  part.class_names = dataset.class_names;
  part.files = {.fit = dataset.files.fit, .channels = dataset.files.channels};
  part.pixels = take(dataset.pixels, dataset.image_bytes());
  part.numbers = take(dataset.numbers, dataset.classes());
  part.files.paths = take(dataset.files.paths, 1);
  part.labels = take(dataset.labels, 1);
  part.count = std::ssize(part.labels), dataset.count = std::ssize(dataset.labels);
  return part;
}
}  // namespace linnet
