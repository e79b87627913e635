// Pictures of any size as pixels of one size.
#include <algorithm>
#include "base/error.h"
#include "data/examples/images/image_file.h"
#include "data/examples/images/image_stb_resize-inl.h"

namespace linnet {

ImageFit image_fit(const std::string& name) {
  if (name == "stretch") return ImageFit::kStretch;
  if (name == "crop") return ImageFit::kCrop;
  fail_internal("no way to fit images is called " + name);
}

void resize_image(const uint8_t* from, int64_t height, int64_t width, const ImageInfo& to, ImageFit fit,
                  std::span<uint8_t> pixels) {
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
  const bool done = stbir_resize_uint8(begin, static_cast<int>(columns), static_cast<int>(rows),
                                       static_cast<int>(stride), pixels.data(), static_cast<int>(to.width),
                                       static_cast<int>(to.height), 0, static_cast<int>(channels));
  if (!done)
    fail_system("not enough memory to resize an image of " + std::to_string(width) + "x" + std::to_string(height));
}

}  // namespace linnet
