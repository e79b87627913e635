// Image files, and labelled images of one size.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace linnet {
// Reads PNG, JPEG and BMP files. Every problem is a user error of one line that names the file, including a header with
// more than kMostPixels, which is refused before memory is taken, and a truncated BMP.

struct ImageInfo {
  int64_t height, width;
  int64_t channels;  // 1 (grey) or 3 (red, green, blue); transparency is left out
};

constexpr int64_t kMostPixels = 100'000'000;

ImageInfo image_info(const std::string& path);  // reads the header only
// How an image is fitted to another size.
enum class ImageFit {
  kCrop,     // scaled, the middle kept: nothing is distorted, the edges of the longer side are lost
  kStretch,  // both sides scaled by themselves: all is kept, but distorted
};
ImageFit image_fit(const std::string& name);  // "crop" or "stretch"

// Resizes an image [height, width, to.channels] to `to`.
void resize_image(
    const uint8_t* from, int64_t height, int64_t width, const ImageInfo& to, ImageFit fit, std::span<uint8_t> pixels);
// The pixels of a file, resized to `size`; a grey file gives equal channels. 16 bits a channel become 8.
void read_fitted_image(const std::string& path, const ImageInfo& size, ImageFit fit, std::span<uint8_t> pixels);

// Labelled images of one size: bytes in memory, or files decoded on request, so that a dataset may exceed memory. The
// pixels are the same either way.
struct ImageFiles {
  std::vector<std::string> paths = {};  // [count]; empty: the pixels are in memory
  ImageFit fit = ImageFit::kCrop;
  int64_t channels = 0;  // that files are decoded to: 3 where grey images are stored as color, too
};

struct ImageDataset {
  int64_t count = 0, height = 0, width = 0, channels = 0;
  std::vector<uint8_t> pixels;  // [count, height, width, channels]; empty where there are files
  ImageFiles files = {};
  std::vector<int32_t> labels;           // [count], indices into class_names; zeros where there are numbers
  std::vector<float> numbers = {};       // [count, classes()] of several labels, 0 or 1 each, or of numbers to learn
  std::vector<std::string> class_names;  // what the folders were called, or "0", "1", ...; of numbers: the outputs

  int64_t image_bytes() const { return height * width * channels; }
  int64_t classes() const { return std::ssize(class_names); }
  bool in_memory() const { return files.paths.empty(); }
  bool has_numbers() const { return !numbers.empty(); }
  std::span<const float> numbers_of(int64_t index) const {
    return std::span(numbers).subspan(index * classes(), classes());
  }
  std::span<const uint8_t> image(int64_t index) const {  // only for images in memory
    return std::span(pixels).subspan(index * image_bytes(), image_bytes());
  }
  // Copies or decodes one image to `out` [image_bytes()]. Thread-safe. User error naming a file that cannot be decoded.
  void read(int64_t index, std::span<uint8_t> out) const;
};

// Mean and standard deviation of each channel over all images, for pixels from 0 to 1. A constant channel has deviation
// 1, so that one can divide by it. User error without images. `threads`: decode files; 0: all CPUs of the process. The
// result does not depend on it.
struct ChannelMoments {
  std::vector<double> mean, deviation;
};
ChannelMoments channel_moments(const ImageDataset& dataset, int threads = 0);

// Splits a validation part of `count` images off `dataset`, evenly spread over it, and so over the classes if images
// are sorted by class. Both parts keep the order. User error unless 0 <= count < dataset.count.
ImageDataset split_off(ImageDataset& dataset, int64_t count);
// Moves the images with taken[i] out. Both parts keep the order.
ImageDataset take_images(ImageDataset& dataset, const std::vector<bool>& taken);
}  // namespace linnet
