#include "data/examples/images/augmentation.h"
#include <algorithm>
#include <cmath>
#include <numbers>
#include "base/hash.h"
#include "data/examples/images/random_augment.h"

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

namespace {

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

}  // namespace

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

namespace {

// The share of one of two numbers from Gamma(a, 1) in their sum is from Beta(a, a).
double draw_beta(uint64_t& state, double a) {
  const double x = draw_log_gamma(state, a), y = draw_log_gamma(state, a);
  return 1 / (1 + std::exp(y - x));
}

}  // namespace

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

}  // namespace linnet
