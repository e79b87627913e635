#include "data/examples/images/augmentation.h"
#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <vector>
#include "base/hash.h"

namespace linnet {
namespace {

uint64_t first_state(uint64_t seed, int64_t epoch, int64_t image) {
  return mix64(mix64(mix64(seed) + static_cast<uint64_t>(epoch)) + static_cast<uint64_t>(image));
}

// Uniform in [0, bound), of a bound that is small beside 2^64.
int64_t draw(uint64_t& state, int64_t bound) {
  return static_cast<int64_t>(next_splitmix64(state) % static_cast<uint64_t>(bound));
}

// Uniform in (0, 1).
double draw_uniform(uint64_t& state) { return (static_cast<double>(next_splitmix64(state) >> 11) + 0.5) * 0x1p-53; }

double draw_normal(uint64_t& state) {
  const double radius = std::sqrt(-2 * std::log(draw_uniform(state)));
  return radius * std::cos(2 * std::numbers::pi * draw_uniform(state));
}

// The logarithm of a number from Gamma(shape, 1), by Marsaglia & Tsang 2000. Numbers of small shapes underflow.
double draw_log_gamma(uint64_t& state, double shape) {
  const double boost = shape < 1 ? std::log(draw_uniform(state)) / shape : 0;
  const double d = (shape < 1 ? shape + 1 : shape) - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double x = draw_normal(state), v = std::pow(1 + c * x, 3);
    if (v > 0 && std::log(draw_uniform(state)) < 0.5 * x * x + d - d * v + d * std::log(v))
      return std::log(d * v) + boost;
  }
}

// The rest of this file is in whole numbers, so that the last bits of a sine do not decide about pixels. Positions have
// 17 bits after the point: sines have 16, and positions about the center are halves of pixels.
constexpr int kFraction = 17;
constexpr int64_t kOne = int64_t{1} << kFraction;

struct Rotation {
  explicit Rotation(double degrees) {
    const double angle = degrees * std::numbers::pi / 180;
    sine = std::llround(std::sin(angle) * 65536), cosine = std::llround(std::cos(angle) * 65536);
  }
  int64_t sine, cosine;
};

class Mover {
 public:
  Mover(std::span<const uint8_t> image, int64_t height, int64_t width, int64_t channels, std::span<const uint8_t> fill)
      : image_(image.data()), height_(height), width_(width), channels_(channels), fill_(fill) {}

  // The pixel at whole coordinates.
  void copy(int64_t row, int64_t column, uint8_t* out) const {
    for (int64_t c = 0; c < channels_; ++c) out[c] = at(row, column, c);
  }
  // The pixel at (row, column) of the rotated image.
  void copy_rotated(const Rotation& by, int64_t row, int64_t column, uint8_t* out) const {
    const int64_t up = 2 * row - (height_ - 1), left = 2 * column - (width_ - 1);  // from the center, in halves
    const int64_t y = by.cosine * up + by.sine * left + ((height_ - 1) << 16);
    const int64_t x = by.cosine * left - by.sine * up + ((width_ - 1) << 16);
    const int64_t r = y >> kFraction, c = x >> kFraction;
    const int64_t down = weight(y), right = weight(x);
    for (int64_t i = 0; i < channels_; ++i) {
      const int64_t above = at(r, c, i) * (256 - right) + at(r, c + 1, i) * right;
      const int64_t below = at(r + 1, c, i) * (256 - right) + at(r + 1, c + 1, i) * right;
      out[i] = static_cast<uint8_t>((above * (256 - down) + below * down + (1 << 15)) >> 16);
    }
  }

 private:
  // Of the pixel that follows, in 1/256.
  static int64_t weight(int64_t position) {
    return ((position & (kOne - 1)) + (int64_t{1} << (kFraction - 9))) >> (kFraction - 8);
  }
  uint8_t at(int64_t row, int64_t column, int64_t channel) const {
    if (row < 0 || row >= height_ || column < 0 || column >= width_)
      return fill_.empty() ? uint8_t{0} : fill_[static_cast<size_t>(channel)];
    return image_[(row * width_ + column) * channels_ + channel];
  }

  const uint8_t* image_;
  const int64_t height_, width_, channels_;
  const std::span<const uint8_t> fill_;
};

// A rectangle of at least `least` of the area, whose sides are 3:4 to 4:3 (torchvision's RandomResizedCrop): ten
// draws, then the whole. Scaled to the image's size.
void crop_image(double least, uint64_t& state, const ImageDataset& of, std::span<const uint8_t> pixels,
                std::span<uint8_t> out) {
  const double all = static_cast<double>(of.height * of.width);
  for (int turn = 0; turn < 10; ++turn) {
    const double area = all * (least + (1 - least) * draw_uniform(state));
    const double ratio = std::exp(std::log(4.0 / 3) * (2 * draw_uniform(state) - 1));
    const auto columns = std::max<int64_t>(std::llround(std::sqrt(area * ratio)), 1);
    const auto rows = std::max<int64_t>(std::llround(std::sqrt(area / ratio)), 1);
    if (columns > of.width || rows > of.height) continue;
    const int64_t top = draw(state, of.height - rows + 1), left = draw(state, of.width - columns + 1);
    std::vector<uint8_t> part(static_cast<size_t>(rows * columns * of.channels));
    for (int64_t row = 0; row < rows; ++row)
      std::copy_n(pixels.data() + ((top + row) * of.width + left) * of.channels, columns * of.channels,
                  part.data() + row * columns * of.channels);
    return resize_image(part.data(), rows, columns, {of.height, of.width, of.channels}, ImageFit::kStretch, out);
  }
  std::ranges::copy(pixels, out.begin());
}

void change_at_random(const Augmentation& how, uint64_t& state, const ImageDataset& of, std::span<uint8_t> pixels) {
  for (int64_t i = 0; i < how.random; ++i) {
    const auto change = static_cast<ImageChange>(draw(state, kImageChanges));
    change_image(change, how.strength, draw(state, 2) == 1, of.height, of.width, of.channels, how.fill, pixels);
  }
}

// The share of one of two numbers from Gamma(a, 1) in their sum is from Beta(a, a).
double draw_beta(uint64_t& state, double a) {
  const double x = draw_log_gamma(state, a), y = draw_log_gamma(state, a);
  return 1 / (1 + std::exp(y - x));
}

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

void move_image(const Motion& motion, std::span<const uint8_t> image, int64_t height, int64_t width, int64_t channels,
                std::span<const uint8_t> fill, std::span<uint8_t> out) {
  const Mover mover(image, height, width, channels, fill);
  const Rotation rotation(motion.degrees);
  uint8_t* to = out.data();
  for (int64_t i = 0; i < height; ++i)
    for (int64_t j = 0; j < width; ++j, to += channels) {
      const int64_t row = i - motion.down, column = (motion.mirror ? width - 1 - j : j) - motion.right;
      if (motion.degrees == 0) mover.copy(row, column, to);
      else mover.copy_rotated(rotation, row, column, to);
    }
}

void augment_image(const Augmentation& how, uint64_t seed, int64_t epoch, int64_t image, const ImageDataset& of,
                   std::span<const uint8_t> pixels, std::span<uint8_t> out) {
  uint64_t state = first_state(seed + 0x6a09e667f3bcc909u, epoch, image);
  // All numbers are drawn in any case: switching one change on leaves the others as they are.
  Motion motion;
  motion.down = draw(state, 2 * how.shift + 1) - how.shift;
  motion.right = draw(state, 2 * how.shift + 1) - how.shift;
  motion.mirror = draw(state, 2) == 1 && how.mirror;
  const int64_t hole_row = draw(state, of.height) - how.cutout / 2,
                hole_column = draw(state, of.width) - how.cutout / 2;
  motion.degrees = how.rotate * (2 * draw_uniform(state) - 1);
  std::vector<uint8_t> cropped;
  if (how.crop > 0) {
    uint64_t crop_state = first_state(seed + 0x3c6ef372fe94f82bu, epoch, image);
    cropped.resize(pixels.size());
    crop_image(how.crop, crop_state, of, pixels, cropped);
    pixels = cropped;
  }
  move_image(motion, pixels, of.height, of.width, of.channels, how.fill, out);
  uint64_t change_state = first_state(seed + 0xa54ff53a5f1d36f1u, epoch, image);
  change_at_random(how, change_state, of, out);

  const int64_t last_row = std::min(of.height, hole_row + how.cutout);
  const int64_t last_column = std::min(of.width, hole_column + how.cutout);
  for (int64_t i = std::max<int64_t>(0, hole_row); i < last_row; ++i)
    for (int64_t j = std::max<int64_t>(0, hole_column); j < last_column; ++j)
      for (int64_t c = 0; c < of.channels; ++c)
        out[static_cast<size_t>((i * of.width + j) * of.channels + c)] =
            how.fill.empty() ? uint8_t{0} : how.fill[static_cast<size_t>(c)];
}

Mix draw_mix(const Augmentation& how, uint64_t seed, int64_t epoch, int64_t image, const ImageDataset& of) {
  uint64_t state = first_state(seed + 0xbb67ae8584caa73bu, epoch, image);
  Mix mix{.other = draw(state, of.count)};
  if (how.mixup > 0) mix.share = static_cast<int>(std::lround(256 * draw_beta(state, how.mixup)));
  mix.pastes = how.cutmix > 0 && (how.mixup == 0 || draw(state, 2) == 1);
  if (!mix.pastes) return mix;
  const double side = std::sqrt(1 - draw_beta(state, how.cutmix));
  const auto place = [&](int64_t length, int64_t& first, int64_t& count) {
    const auto half = static_cast<int64_t>(0.5 * side * static_cast<double>(length));
    const int64_t middle = draw(state, length);
    first = std::max<int64_t>(middle - half, 0);
    count = std::min(middle + half, length) - first;
  };
  place(of.height, mix.top, mix.rows);
  place(of.width, mix.left, mix.columns);
  return mix;
}

void mix_images(const Mix& mix, int64_t width, int64_t channels, std::span<const uint8_t> other,
                std::span<uint8_t> image) {
  if (mix.pastes) {
    for (int64_t row = mix.top; row < mix.top + mix.rows; ++row) {
      const int64_t at = (row * width + mix.left) * channels;
      std::copy_n(other.data() + at, mix.columns * channels, image.data() + at);
    }
    return;
  }
  for (size_t i = 0; i < image.size(); ++i)
    image[i] = static_cast<uint8_t>((image[i] * mix.share + other[i] * (256 - mix.share) + 128) >> 8);
}

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
