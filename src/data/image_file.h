// PNG, JPEG and BMP files as bytes. Every problem is a user error of one line that names the file.
#pragma once
#include <cstdint>
#include <span>
#include <string>

namespace linnet {

struct ImageInfo {
  int64_t height, width;
  int64_t channels;  // 1 (grey) or 3 (red, green, blue); transparency is left out
};

// By the name's ending, in either case: .png, .jpg, .jpeg, .bmp.
bool has_image_name(const std::string& path);
ImageInfo image_info(const std::string& path);  // reads the header only
// pixels [height, width, channels] of the size image_info() told; 3 channels of a grey file are equal. 16 bits a
// channel become 8.
void read_image(const std::string& path, const ImageInfo& info, std::span<uint8_t> pixels);

}  // namespace linnet
