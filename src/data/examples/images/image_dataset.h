// Labelled images of one size: as bytes in memory, or as files that are decoded when they are asked for, so that a
// dataset may be larger than memory. The pixels are the same bytes either way.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>
#include "data/examples/images/image_file.h"

namespace linnet {

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
  int64_t classes() const { return static_cast<int64_t>(class_names.size()); }
  bool in_memory() const { return files.paths.empty(); }
  bool has_numbers() const { return !numbers.empty(); }
  std::span<const float> numbers_of(int64_t index) const {
    return std::span(numbers).subspan(static_cast<size_t>(index * classes()), static_cast<size_t>(classes()));
  }
  // Only of images in memory.
  std::span<const uint8_t> image(int64_t index) const {
    return std::span(pixels).subspan(static_cast<size_t>(index * image_bytes()), static_cast<size_t>(image_bytes()));
  }
  // Copies or decodes one image to `out` [image_bytes()]. Several threads may read at once. User error naming the file
  // that cannot be decoded.
  void read(int64_t index, std::span<uint8_t> out) const;
  size_t bytes() const { return pixels.size() + labels.size() * sizeof(int32_t); }
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

// Images `indices`, which are in memory, into images [rows, height, width, channels]. Rows past the last index become
// zeros.
void gather_images(const ImageDataset& dataset, std::span<const int32_t> indices, int64_t rows, uint8_t* images);

}  // namespace linnet
