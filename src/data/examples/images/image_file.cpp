#include "data/examples/images/image_file.h"
#include <fcntl.h>
#include <sys/stat.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <memory>
#include <string_view>
#include "base/error.h"
#include "base/text.h"
#include "data/examples/images/image_stb-inl.h"

namespace linnet {
namespace {

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

// A pipe would be waited for, and a device has no end.
File open_image(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  File file(descriptor < 0 ? nullptr : ::fdopen(descriptor, "rb"), std::fclose);
  if (!file) fail_user("cannot read '" + path + "': " + std::strerror(errno));
  struct stat status {};
  if (::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode))
    fail_user("cannot read '" + path + "': not a regular file");
  return file;
}

[[noreturn]] void fail_decoding(const std::string& path) {
  const char* reason = stbi_failure_reason();
  fail_user("'" + path + "' cannot be decoded as PNG, JPEG or BMP" + (reason ? ": " + std::string(reason) : ""));
}

// The bytes that an uncompressed BMP has up to the end of its last row; 0 if it is no such file.
int64_t least_bmp_bytes(std::FILE* file) {
  std::array<uint8_t, 34> head{};
  const size_t got = std::fread(head.data(), 1, head.size(), file);
  std::rewind(file);
  if (got < head.size() || head[0] != 'B' || head[1] != 'M') return 0;
  const auto number = [&](size_t at, size_t bytes) {
    uint32_t value = 0;
    for (size_t i = 0; i < bytes; ++i) value |= uint32_t{head[at + i]} << (8 * i);
    return value;
  };
  const bool is_old = number(14, 4) == 12;  // OS/2's header, of 16-bit sizes
  const auto side = [&](uint32_t value) { return std::abs(int64_t{static_cast<int32_t>(value)}); };
  const int64_t width = is_old ? number(18, 2) : side(number(18, 4)),
                height = is_old ? number(20, 2) : side(number(22, 4)), bits = is_old ? number(24, 2) : number(28, 2);
  const uint32_t compression = is_old ? 0 : number(30, 4);
  if ((compression != 0 && compression != 3) || width == 0 || height == 0 || width * height > kMostPixels) return 0;
  return number(10, 4) + (width * bits + 31) / 32 * 4 * (height - 1) + (width * bits + 7) / 8;
}

// The header's own figures, before memory is taken for them. The file is read from its beginning again.
ImageInfo checked_info(std::FILE* file, const std::string& path) {
  int width = 0, height = 0, channels = 0;
  if (!stbi_info_from_file(file, &width, &height, &channels)) fail_decoding(path);
  const int64_t rows = std::abs(int64_t{height});  // a BMP whose first row is the upper one has a negative height
  if (width < 1 || rows < 1)
    fail_user("'" + path + "' declares " + std::to_string(width) + "x" + std::to_string(rows) +
              " pixels; an image has at least one");
  if (width * rows > kMostPixels)
    fail_user("'" + path + "' declares " + std::to_string(width) + "x" + std::to_string(rows) +
              " pixels; Linnet decodes images of at most " + std::to_string(kMostPixels));
  std::rewind(file);
  struct stat status {};
  if (const int64_t least = least_bmp_bytes(file); ::fstat(::fileno(file), &status) == 0 && status.st_size < least)
    fail_user("'" + path + "' is cut short: its pixels take " + std::to_string(least) + " bytes, and it has " +
              std::to_string(status.st_size));
  return {rows, width, channels < 3 ? 1 : 3};
}

struct Decoded {
  int width = 0, height = 0;
  std::unique_ptr<uint8_t, void (*)(void*)> pixels{nullptr, stbi_image_free};
};

Decoded decode(const std::string& path, int64_t channels) {
  const File file = open_image(path);
  checked_info(file.get(), path);
  Decoded image;
  int stored_channels = 0;
  image.pixels.reset(
      stbi_load_from_file(file.get(), &image.width, &image.height, &stored_channels, static_cast<int>(channels)));
  if (!image.pixels) fail_decoding(path);
  return image;
}

std::string lower_ending(const std::string& path) {
  return lower_ascii(path.substr(std::min(path.rfind('.'), path.size())));
}

}  // namespace

bool has_image_name(const std::string& path) {
  const std::string ending = lower_ending(path);
  return ending == ".png" || ending == ".jpg" || ending == ".jpeg" || ending == ".bmp";
}

std::string foreign_image_ending(const std::string& path) {
  static constexpr const char* kEndings[] = {".webp", ".gif", ".tif", ".tiff", ".heic", ".heif", ".avif", ".jp2",
                                             ".jxl",  ".tga", ".psd", ".ppm",  ".pgm",  ".pnm",  ".svg",  ".jfif"};
  const std::string ending = lower_ending(path);
  return std::ranges::find(kEndings, ending) == std::end(kEndings) ? "" : ending;
}

ImageInfo image_info(const std::string& path) { return checked_info(open_image(path).get(), path); }

void read_image(const std::string& path, const ImageInfo& info, std::span<uint8_t> pixels) {
  const Decoded image = decode(path, info.channels);
  const auto bytes = static_cast<size_t>(info.height * info.width * info.channels);
  if (pixels.size() != bytes) fail_internal("an image is read into memory of another size");
  if (image.width != info.width || image.height != info.height)
    fail_user("'" + path + "' changed its size while it was in use: it was " + std::to_string(info.width) + "x" +
              std::to_string(info.height) + " pixels");
  std::memcpy(pixels.data(), image.pixels.get(), bytes);
}

void read_fitted_image(const std::string& path, const ImageInfo& size, ImageFit fit, std::span<uint8_t> pixels) {
  const Decoded image = decode(path, size.channels);
  resize_image(image.pixels.get(), image.height, image.width, size, fit, pixels);
}

}  // namespace linnet
