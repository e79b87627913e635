// Image files, and labelled images of one size.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace linnet {

// PNG, JPEG and BMP files as bytes. Every problem is a user error of one line that names the file, among them a header
// that declares more than kMostPixels, which is refused before memory is taken, and a BMP that ends before its pixels
// do.

struct ImageInfo {
  int64_t height, width;
  int64_t channels;  // 1 (grey) or 3 (red, green, blue); transparency is left out
};

constexpr int64_t kMostPixels = 100'000'000;

ImageInfo image_info(const std::string& path);  // reads the header only
// How an image of another size becomes one of the wanted size.
enum class ImageFit {
  kCrop,     // scaled, the middle kept: nothing is distorted, the edges of the longer side are lost
  kStretch,  // both sides scaled by themselves: all is kept, but distorted
};
ImageFit image_fit(const std::string& name);  // "crop" or "stretch"

// An image [height, width, to.channels] into `pixels`, which has the size `to`.
void resize_image(const uint8_t* from, int64_t height, int64_t width, const ImageInfo& to, ImageFit fit,
                  std::span<uint8_t> pixels);
// The pixels of a file, resized to `size`; 3 channels of a grey file are equal. 16 bits a channel become 8.
void read_fitted_image(const std::string& path, const ImageInfo& size, ImageFit fit, std::span<uint8_t> pixels);

// Labelled images of one size: as bytes in memory, or as files that are decoded when they are asked for, so that a
// dataset may be larger than memory. The pixels are the same bytes either way.
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
  // Only of images in memory.
  std::span<const uint8_t> image(int64_t index) const {
    return std::span(pixels).subspan(index * image_bytes(), image_bytes());
  }
  // Copies or decodes one image to `out` [image_bytes()]. Several threads may read at once. User error naming the file
  // that cannot be decoded.
  void read(int64_t index, std::span<uint8_t> out) const;
};

// Mean and standard deviation of each channel over all images, for pixels from 0 to 1. A channel that is the same
// everywhere has deviation 1, so that one can divide by it. User error when there are no images. `threads`: that decode
// files; 0: all that the process may use. The result does not depend on it.
struct ChannelMoments {
  std::vector<double> mean, deviation;
};
ChannelMoments channel_moments(const ImageDataset& dataset, int threads = 0);

// Takes `count` images out of `dataset`, evenly spread over it, which is evenly over the classes where images lie class
// by class: the validation part of a training set. The order of both parts is that of the dataset. User error unless
// 0 <= count < dataset.count.
ImageDataset split_off(ImageDataset& dataset, int64_t count);
// Takes the images with taken[i] out. The order of both parts is that of the dataset.
ImageDataset take_images(ImageDataset& dataset, const std::vector<bool>& taken);

}  // namespace linnet
