// PNG, JPEG and BMP files as bytes. Every problem is a user error of one line that names the file, among them a header
// that declares more than kMostPixels, which is refused before memory is taken, and a BMP that ends before its pixels
// do.
#pragma once
#include <cstdint>
#include <span>
#include <string>

namespace linnet {

struct ImageInfo {
  int64_t height, width;
  int64_t channels;  // 1 (grey) or 3 (red, green, blue); transparency is left out
};

constexpr int64_t kMostPixels = 100'000'000;

// By the name's ending, in either case: .png, .jpg, .jpeg, .bmp.
bool has_image_name(const std::string& path);
// Whether the ending is that of pictures in a format that is not read: .webp, .gif, .tif, .heic and others. Returns it
// in lower case, or "".
std::string foreign_image_ending(const std::string& path);
ImageInfo image_info(const std::string& path);  // reads the header only
// pixels [height, width, channels] of the size image_info() told, which the file must still have; 3 channels of a grey
// file are equal. 16 bits a channel become 8.
void read_image(const std::string& path, const ImageInfo& info, std::span<uint8_t> pixels);

// How an image of another size becomes one of the wanted size.
enum class ImageFit {
  kCrop,     // scaled, the middle kept: nothing is distorted, the edges of the longer side are lost
  kStretch,  // both sides scaled by themselves: all is kept, but distorted
};
ImageFit image_fit(const std::string& name);  // "crop" or "stretch"

// An image [height, width, to.channels] into `pixels`, which has the size `to`.
void resize_image(const uint8_t* from, int64_t height, int64_t width, const ImageInfo& to, ImageFit fit,
                  std::span<uint8_t> pixels);
// read_image() of a file of any size, resized to `size` and with its number of channels.
void read_fitted_image(const std::string& path, const ImageInfo& size, ImageFit fit, std::span<uint8_t> pixels);

}  // namespace linnet
