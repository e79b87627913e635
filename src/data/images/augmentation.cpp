#include "data/images/augmentation.h"

#include <algorithm>

#include "base/hash.h"

namespace linnet {
namespace {

// Uniform in [0, bound), of a bound that is small beside 2^64.
int64_t draw(uint64_t& state, int64_t bound) {
  return static_cast<int64_t>(next_splitmix64(state) % static_cast<uint64_t>(bound));
}

void fill_pixel(const Augmentation& how, int64_t channels, uint8_t* out) {
  for (int64_t c = 0; c < channels; ++c) out[c] = how.fill.empty() ? uint8_t{0} : how.fill[static_cast<size_t>(c)];
}

}  // namespace

void augment_image(const Augmentation& how, uint64_t seed, int64_t epoch, int64_t image, const ImageDataset& of,
                   std::span<uint8_t> out) {
  const int64_t height = of.height, width = of.width, channels = of.channels;
  uint64_t state =
      mix64(mix64(mix64(seed + 0x6a09e667f3bcc909u) + static_cast<uint64_t>(epoch)) + static_cast<uint64_t>(image));
  // All numbers are drawn in any case: switching one change on leaves the others as they are.
  const int64_t down = draw(state, 2 * how.shift + 1) - how.shift, right = draw(state, 2 * how.shift + 1) - how.shift;
  const bool mirror = draw(state, 2) == 1 && how.mirror;
  const int64_t hole_row = draw(state, height) - how.cutout / 2, hole_column = draw(state, width) - how.cutout / 2;

  const uint8_t* from = of.image(image).data();
  const auto in_hole = [&](int64_t at, int64_t begin) { return at >= begin && at < begin + how.cutout; };
  uint8_t* to = out.data();
  for (int64_t i = 0; i < height; ++i)
    for (int64_t j = 0; j < width; ++j, to += channels) {
      const int64_t row = i - down, column = (mirror ? width - 1 - j : j) - right;
      const bool covered = in_hole(i, hole_row) && in_hole(j, hole_column);
      if (covered || row < 0 || row >= height || column < 0 || column >= width) {
        fill_pixel(how, channels, to);
      } else {
        std::copy_n(from + (row * width + column) * channels, channels, to);
      }
    }
}

}  // namespace linnet
