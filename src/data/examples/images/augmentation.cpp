#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include "base/numbers.h"
#include "data/examples/images/image_batches.h"

namespace linnet {
namespace {
uint64_t first_state(uint64_t seed, int64_t epoch, int64_t image) {
  return mix64(mix64(mix64(seed) + static_cast<uint64_t>(epoch)) + static_cast<uint64_t>(image));
}

// Uniform in [0, bound); `bound` must be small beside 2^64.
int64_t draw(uint64_t& state, int64_t bound) {
  return static_cast<int64_t>(next_splitmix64(state) % static_cast<uint64_t>(bound));
}

// Uniform in (0, 1).
double draw_uniform(uint64_t& state) { return (static_cast<double>(next_splitmix64(state) >> 11) + 0.5) * 0x1p-53; }

double draw_normal(uint64_t& state) {
  const double radius = std::sqrt(-2 * std::log(draw_uniform(state)));
  return radius * std::cos(2 * std::numbers::pi * draw_uniform(state));
}

// The logarithm of a sample of Gamma(shape, 1), by Marsaglia & Tsang 2000: samples of small shapes underflow.
double draw_log_gamma(uint64_t& state, double shape) {
  const double boost = shape < 1 ? std::log(draw_uniform(state)) / shape : 0;
  const double d = (shape < 1 ? shape + 1 : shape) - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double x = draw_normal(state), v = std::pow(1 + c * x, 3);
    if (v > 0 && std::log(draw_uniform(state)) < 0.5 * x * x + d - d * v + d * std::log(v))
      return std::log(d * v) + boost;
  }
}

// From here on only whole numbers are used, so that the last bits of a sine do not change pixels. Positions have 17
// fraction bits: sines have 16, and positions about the center are halves of pixels.
constexpr int kFraction = 17;
constexpr int64_t kOne = int64_t{1} << kFraction;

struct Pixels {
  const uint8_t* bytes;
  const ImageFrame& frame;

  uint8_t at(int64_t row, int64_t column, int64_t channel) const {
    if (row < 0 || row >= frame.height || column < 0 || column >= frame.width) return frame.beyond(channel);
    return bytes[(row * frame.width + column) * frame.channels + channel];
  }
};

// The weight of the next pixel, in 1/256.
int64_t weight(int64_t position) {
  return ((position & (kOne - 1)) + (int64_t{1} << (kFraction - 9))) >> (kFraction - 8);
}

// The pixel at (row, column) of an image rotated by an angle with this sine and cosine, in 2^-16.
void copy_rotated(const Pixels& from, int64_t sine, int64_t cosine, int64_t row, int64_t column, uint8_t* out) {
  const int64_t last_row = from.frame.height - 1, last_column = from.frame.width - 1;
  const int64_t up = 2 * row - last_row, left = 2 * column - last_column;  // from the center, in halves
  const int64_t y = cosine * up + sine * left + (last_row << 16), x = cosine * left - sine * up + (last_column << 16);
  const int64_t r = y >> kFraction, c = x >> kFraction, down = weight(y), right = weight(x);
  for (int64_t i = 0; i < from.frame.channels; ++i) {
    const int64_t above = from.at(r, c, i) * (256 - right) + from.at(r, c + 1, i) * right;
    const int64_t below = from.at(r + 1, c, i) * (256 - right) + from.at(r + 1, c + 1, i) * right;
    out[i] = static_cast<uint8_t>((above * (256 - down) + below * down + (1 << 15)) >> 16);
  }
}

// A rectangle of at least `least` of the area, with sides 3:4 to 4:3 (torchvision's RandomResizedCrop), scaled to the
// image's size: ten attempts, then the whole image.
void crop_image(
    double least, uint64_t& state, const ImageDataset& of, std::span<const uint8_t> pixels, std::span<uint8_t> out) {
  const double all = static_cast<double>(of.height * of.width);
  for (int turn = 0; turn < 10; ++turn) {
    const double area = all * (least + (1 - least) * draw_uniform(state));
    const double ratio = std::exp(std::log(4.0 / 3) * (2 * draw_uniform(state) - 1));
    const auto columns = std::max<int64_t>(std::llround(std::sqrt(area * ratio)), 1);
    const auto rows = std::max<int64_t>(std::llround(std::sqrt(area / ratio)), 1);
    if (columns > of.width || rows > of.height) continue;
    const int64_t top = draw(state, of.height - rows + 1), left = draw(state, of.width - columns + 1);
    std::vector<uint8_t> part(rows * columns * of.channels);
    for (int64_t row = 0; row < rows; ++row)
      std::copy_n(pixels.data() + ((top + row) * of.width + left) * of.channels, columns * of.channels,
          part.data() + row * columns * of.channels);
    return resize_image(part.data(), rows, columns, {of.height, of.width, of.channels}, ImageFit::kStretch, out);
  }
  std::copy(pixels.begin(), pixels.end(), out.begin());
}

// X / (X + Y) with X, Y from Gamma(a, 1) is from Beta(a, a).
double draw_beta(uint64_t& state, double a) {
  const double x = draw_log_gamma(state, a), y = draw_log_gamma(state, a);
  return 1 / (1 + std::exp(y - x));
}

uint8_t to_byte(double x) { return static_cast<uint8_t>(std::clamp(std::floor(x), 0.0, 255.0)); }

using Counts = std::array<int64_t, 256>;
using Table = std::array<uint8_t, 256>;

class Picture {
 public:
  Picture(const ImageFrame& frame, std::span<uint8_t> pixels) : frame_(frame), pixels_(pixels) {}

  // The pixel at (x, y) from the center comes from (a x + b y + c, d x + e y + f).
  void move(double a, double b, double c, double d, double e, double f) {
    const std::vector<uint8_t> copy(pixels_.begin(), pixels_.end());
    const Pixels from{copy.data(), frame_};
    const double middle_x = 0.5 * static_cast<double>(frame_.width - 1),
                 middle_y = 0.5 * static_cast<double>(frame_.height - 1);
    uint8_t* out = pixels_.data();
    for (int64_t i = 0; i < frame_.height; ++i)
      for (int64_t j = 0; j < frame_.width; ++j) {
        const double x = static_cast<double>(j) - middle_x, y = static_cast<double>(i) - middle_y;
        const double column = a * x + b * y + c + middle_x, row = d * x + e * y + f + middle_y;
        const double left = std::floor(column), top = std::floor(row), right = column - left, down = row - top;
        const auto at_row = static_cast<int64_t>(top), at_column = static_cast<int64_t>(left);
        for (int64_t channel = 0; channel < frame_.channels; ++channel) {
          const double above =
              from.at(at_row, at_column, channel) * (1 - right) + from.at(at_row, at_column + 1, channel) * right;
          const double below = from.at(at_row + 1, at_column, channel) * (1 - right) +
                               from.at(at_row + 1, at_column + 1, channel) * right;
          *out++ = to_byte(above * (1 - down) + below * down + 0.5);
        }
      }
  }

  template <class Other> void blend(double factor, const Other& other) {
    for (int64_t i = 0; i < std::ssize(pixels_); ++i) {
      const double beside = other(i);
      pixels_[i] = to_byte(beside + factor * (pixels_[i] - beside));
    }
  }
  std::vector<uint8_t> grey() const {  // brightness (ITU-R 601)
    if (frame_.channels == 1) return {pixels_.begin(), pixels_.end()};
    std::vector<uint8_t> found;
    for (size_t i = 0; i < pixels_.size(); i += 3)
      found.push_back(to_byte(0.2989 * pixels_[i] + 0.587 * pixels_[i + 1] + 0.114 * pixels_[i + 2]));
    return found;
  }
  void change_contrast(double factor) {
    double sum = 0;
    const std::vector<uint8_t> brightness = grey();
    for (const uint8_t value : brightness) sum += value;
    const double mean = sum / static_cast<double>(brightness.size());
    blend(factor, [&](int64_t) { return mean; });
  }
  void change_color(double factor) {
    if (frame_.channels == 1) return;
    const std::vector<uint8_t> brightness = grey();
    blend(factor, [&](int64_t i) { return brightness[i / frame_.channels]; });
  }
  // Blends with the image smoothed by 1 1 1 / 1 5 1 / 1 1 1; its edge stays.
  void change_sharpness(double factor) {
    if (frame_.height < 3 || frame_.width < 3) return;
    const std::vector<uint8_t> from(pixels_.begin(), pixels_.end());
    const int64_t step = frame_.channels, stride = frame_.width * step;
    blend(factor, [&](int64_t i) -> double {
      const int64_t row = i / stride, column = i % stride / step;
      if (row == 0 || row + 1 == frame_.height || column == 0 || column + 1 == frame_.width) return from[i];
      int sum = 4 * from[i];
      for (const int64_t line : {i - stride, i, i + stride}) sum += from[line - step] + from[line] + from[line + step];
      return std::round(sum / 13.0);
    });
  }

  template <class F> void map(const F& f) {
    for (uint8_t& pixel : pixels_) pixel = f(pixel);
  }
  // Maps each channel by table(its histogram).
  void map_channels(Table (*table)(const Counts&)) {
    for (int64_t channel = 0; channel < frame_.channels; ++channel) {
      Counts counts{};
      for (int64_t i = channel; i < std::ssize(pixels_); i += frame_.channels) ++counts[pixels_[i]];
      const Table becomes = table(counts);
      for (int64_t i = channel; i < std::ssize(pixels_); i += frame_.channels) pixels_[i] = becomes[pixels_[i]];
    }
  }

 private:
  const ImageFrame& frame_;
  const std::span<uint8_t> pixels_;
};

Table stretched(const Counts& counts) {
  int low = 0, high = 255;
  while (low < 255 && counts[low] == 0) ++low;
  while (high > 0 && counts[high] == 0) --high;
  Table table;
  for (int i = 0; i < 256; ++i)
    table[i] = low >= high ? static_cast<uint8_t>(i) : to_byte((i - low) * 255.0 / (high - low));
  return table;
}

// Makes all values about equally frequent.
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

void move_image(const Motion& motion, std::span<const uint8_t> image, const ImageFrame& frame, std::span<uint8_t> out) {
  const Pixels from{image.data(), frame};
  const double angle = motion.degrees * std::numbers::pi / 180;
  const int64_t sine = std::llround(std::sin(angle) * 65536), cosine = std::llround(std::cos(angle) * 65536);
  uint8_t* to = out.data();
  for (int64_t i = 0; i < frame.height; ++i)
    for (int64_t j = 0; j < frame.width; ++j, to += frame.channels) {
      const int64_t row = i - motion.down, column = (motion.mirror ? frame.width - 1 - j : j) - motion.right;
      if (motion.degrees != 0) copy_rotated(from, sine, cosine, row, column, to);
      else
        for (int64_t c = 0; c < frame.channels; ++c) to[c] = from.at(row, column, c);
    }
}

void augment_image(const Augmentation& how, uint64_t seed, int64_t epoch, int64_t image, const ImageDataset& of,
    std::span<const uint8_t> pixels, std::span<uint8_t> out) {
  const ImageFrame frame{{of.height, of.width, of.channels}, how.fill};
  uint64_t state = first_state(seed + 0x6a09e667f3bcc909u, epoch, image);
  // All numbers are always drawn, so that enabling one change does not affect the others.
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
  move_image(motion, pixels, frame, out);
  uint64_t change_state = first_state(seed + 0xa54ff53a5f1d36f1u, epoch, image);
  for (int64_t i = 0; i < how.random; ++i) {
    const auto change = static_cast<ImageChange>(draw(change_state, kImageChanges));
    change_image(change, how.strength, draw(change_state, 2) == 1, frame, out);
  }
  const int64_t last_row = std::min(of.height, hole_row + how.cutout);
  const int64_t last_column = std::min(of.width, hole_column + how.cutout);
  for (int64_t i = std::max<int64_t>(0, hole_row); i < last_row; ++i)
    for (int64_t j = std::max<int64_t>(0, hole_column); j < last_column; ++j)
      for (int64_t c = 0; c < of.channels; ++c) out[(i * of.width + j) * of.channels + c] = frame.beyond(c);
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

void mix_images(
    const Mix& mix, int64_t width, int64_t channels, std::span<const uint8_t> other, std::span<uint8_t> image) {
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

void change_image(ImageChange change, int strength, bool negative, const ImageFrame& frame, std::span<uint8_t> pixels) {
  Picture picture(frame, pixels);
  const double share = static_cast<double>(strength) / kMostStrength;
  const auto either_way = [&](double most) { return negative ? -most * share : most * share; };
  switch (change) {
    case ImageChange::kNone: return;
    case ImageChange::kShearAcross: return picture.move(1, either_way(0.3), 0, 0, 1, 0);
    case ImageChange::kShearDown: return picture.move(1, 0, 0, either_way(0.3), 1, 0);
    case ImageChange::kShiftAcross:
      return picture.move(1, 0, std::trunc(either_way(150.0 / 331 * static_cast<double>(frame.width))), 0, 1, 0);
    case ImageChange::kShiftDown:
      return picture.move(1, 0, 0, 0, 1, std::trunc(either_way(150.0 / 331 * static_cast<double>(frame.height))));
    case ImageChange::kRotate: {
      const double angle = either_way(30) * std::numbers::pi / 180;
      return picture.move(std::cos(angle), -std::sin(angle), 0, std::sin(angle), std::cos(angle), 0);
    }
    case ImageChange::kBrightness: return picture.blend(1 + either_way(0.9), [](int64_t) { return 0.0; });
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
