#include "data/examples/images/random_augment.h"
#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <vector>

namespace linnet {
namespace {

uint8_t to_byte(double x) { return static_cast<uint8_t>(std::clamp(std::floor(x), 0.0, 255.0)); }

class Picture {
 public:
  Picture(int64_t height, int64_t width, int64_t channels, std::span<const uint8_t> fill, std::span<uint8_t> pixels)
      : height_(height), width_(width), channels_(channels), fill_(fill), pixels_(pixels) {}

  // The pixel at (x, y) from the center becomes that at (a x + b y + c, d x + e y + f).
  void move(double a, double b, double c, double d, double e, double f) {
    const std::vector<uint8_t> from(pixels_.begin(), pixels_.end());
    const double middle_x = 0.5 * static_cast<double>(width_ - 1), middle_y = 0.5 * static_cast<double>(height_ - 1);
    uint8_t* out = pixels_.data();
    for (int64_t i = 0; i < height_; ++i)
      for (int64_t j = 0; j < width_; ++j) {
        const double x = static_cast<double>(j) - middle_x, y = static_cast<double>(i) - middle_y;
        const double column = a * x + b * y + c + middle_x, row = d * x + e * y + f + middle_y;
        const double left = std::floor(column), top = std::floor(row), right = column - left, down = row - top;
        const auto at_row = static_cast<int64_t>(top), at_column = static_cast<int64_t>(left);
        for (int64_t channel = 0; channel < channels_; ++channel) {
          const double above =
              at(from, at_row, at_column, channel) * (1 - right) + at(from, at_row, at_column + 1, channel) * right;
          const double below = at(from, at_row + 1, at_column, channel) * (1 - right) +
                               at(from, at_row + 1, at_column + 1, channel) * right;
          *out++ = to_byte(above * (1 - down) + below * down + 0.5);
        }
      }
  }

  // pixels = other + factor (pixels - other)
  template <class Other>
  void blend(double factor, const Other& other) {
    for (size_t i = 0; i < pixels_.size(); ++i) {
      const double beside = other(i);
      pixels_[i] = to_byte(beside + factor * (pixels_[i] - beside));
    }
  }
  // The brightness of each pixel (ITU-R 601).
  std::vector<uint8_t> grey() const {
    std::vector<uint8_t> found;
    for (size_t i = 0; i < pixels_.size(); i += static_cast<size_t>(channels_))
      found.push_back(channels_ == 1 ? pixels_[i]
                                     : to_byte(0.2989 * pixels_[i] + 0.587 * pixels_[i + 1] + 0.114 * pixels_[i + 2]));
    return found;
  }
  void change_contrast(double factor) {
    double sum = 0;
    const std::vector<uint8_t> brightness = grey();
    for (const uint8_t value : brightness) sum += value;
    const double mean = sum / static_cast<double>(brightness.size());
    blend(factor, [&](size_t) { return mean; });
  }
  void change_color(double factor) {
    if (channels_ == 1) return;
    const std::vector<uint8_t> brightness = grey();
    blend(factor, [&](size_t i) { return brightness[i / static_cast<size_t>(channels_)]; });
  }
  // Beside the image smoothed by 1 1 1 / 1 5 1 / 1 1 1; its edge stays.
  void change_sharpness(double factor) {
    if (height_ < 3 || width_ < 3) return;
    const std::vector<uint8_t> from(pixels_.begin(), pixels_.end());
    const auto stride = static_cast<size_t>(width_ * channels_), step = static_cast<size_t>(channels_);
    blend(factor, [&](size_t i) -> double {
      const size_t row = i / stride, column = i % stride / step;
      if (row == 0 || row + 1 == static_cast<size_t>(height_) || column == 0 ||
          column + 1 == static_cast<size_t>(width_))
        return from[i];
      int sum = 4 * from[i];
      for (const size_t line : {i - stride, i, i + stride}) sum += from[line - step] + from[line] + from[line + step];
      return std::round(sum / 13.0);
    });
  }

  template <class F>
  void map(const F& f) {
    for (uint8_t& pixel : pixels_) pixel = f(pixel);
  }
  // Each channel's table is table(its histogram).
  template <class Table>
  void map_channels(const Table& table) {
    for (int64_t channel = 0; channel < channels_; ++channel) {
      std::array<int64_t, 256> counts{};
      for (size_t i = static_cast<size_t>(channel); i < pixels_.size(); i += static_cast<size_t>(channels_))
        ++counts[pixels_[i]];
      const std::array<uint8_t, 256> becomes = table(counts);
      for (size_t i = static_cast<size_t>(channel); i < pixels_.size(); i += static_cast<size_t>(channels_))
        pixels_[i] = becomes[pixels_[i]];
    }
  }

 private:
  double at(const std::vector<uint8_t>& from, int64_t row, int64_t column, int64_t channel) const {
    if (row < 0 || row >= height_ || column < 0 || column >= width_)
      return fill_.empty() ? 0 : fill_[static_cast<size_t>(channel)];
    return from[static_cast<size_t>((row * width_ + column) * channels_ + channel)];
  }

  const int64_t height_, width_, channels_;
  const std::span<const uint8_t> fill_;
  const std::span<uint8_t> pixels_;
};

using Counts = std::array<int64_t, 256>;
using Table = std::array<uint8_t, 256>;

// The darkest value becomes 0 and the brightest 255.
Table stretched(const Counts& counts) {
  int low = 0, high = 255;
  while (low < 255 && counts[static_cast<size_t>(low)] == 0) ++low;
  while (high > 0 && counts[static_cast<size_t>(high)] == 0) --high;
  Table table;
  for (int i = 0; i < 256; ++i)
    table[static_cast<size_t>(i)] = low >= high ? static_cast<uint8_t>(i) : to_byte((i - low) * 255.0 / (high - low));
  return table;
}

// Every value becomes about as frequent.
Table equalized(const Counts& counts) {
  int64_t all = 0, last = 0;
  for (const int64_t count : counts)
    if (count > 0) all += count, last = count;
  const int64_t step = (all - last) / 255;
  Table table;
  int64_t before = step / 2;
  for (size_t i = 0; i < 256; ++i) {
    table[i] = step == 0 ? static_cast<uint8_t>(i) : static_cast<uint8_t>(std::min<int64_t>(before / step, 255));
    before += counts[i];
  }
  return table;
}

}  // namespace

void change_image(ImageChange change, int strength, bool negative, int64_t height, int64_t width, int64_t channels,
                  std::span<const uint8_t> fill, std::span<uint8_t> pixels) {
  Picture picture(height, width, channels, fill, pixels);
  const double share = static_cast<double>(strength) / kMostStrength;
  const auto either_way = [&](double most) { return negative ? -most * share : most * share; };
  switch (change) {
    case ImageChange::kNone: return;
    case ImageChange::kShearAcross: return picture.move(1, either_way(0.3), 0, 0, 1, 0);
    case ImageChange::kShearDown: return picture.move(1, 0, 0, either_way(0.3), 1, 0);
    case ImageChange::kShiftAcross:
      return picture.move(1, 0, std::trunc(either_way(150.0 / 331 * static_cast<double>(width))), 0, 1, 0);
    case ImageChange::kShiftDown:
      return picture.move(1, 0, 0, 0, 1, std::trunc(either_way(150.0 / 331 * static_cast<double>(height))));
    case ImageChange::kRotate: {
      const double angle = either_way(30) * std::numbers::pi / 180;
      return picture.move(std::cos(angle), -std::sin(angle), 0, std::sin(angle), std::cos(angle), 0);
    }
    case ImageChange::kBrightness: return picture.blend(1 + either_way(0.9), [](size_t) { return 0.0; });
    case ImageChange::kColor: return picture.change_color(1 + either_way(0.9));
    case ImageChange::kContrast: return picture.change_contrast(1 + either_way(0.9));
    case ImageChange::kSharpness: return picture.change_sharpness(1 + either_way(0.9));
    case ImageChange::kPosterize: {
      const int bits = 8 - static_cast<int>(std::lround(4 * share));
      return picture.map([&](uint8_t x) { return static_cast<uint8_t>(x >> (8 - bits) << (8 - bits)); });
    }
    case ImageChange::kSolarize: {
      const double threshold = 255 * (1 - share);
      return picture.map([&](uint8_t x) { return x >= threshold ? static_cast<uint8_t>(255 - x) : x; });
    }
    case ImageChange::kAutoContrast: return picture.map_channels(stretched);
    case ImageChange::kEqualize: return picture.map_channels(equalized);
  }
}

}  // namespace linnet
