#include "data/examples/images/image_file.h"

#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string_view>

#include "base/error.h"
#include "data/examples/images/image_stb-inl.h"

namespace linnet {
namespace {

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

File open_image(const std::string& path) {
  File file(std::fopen(path.c_str(), "rbe"), std::fclose);
  if (!file) fail_user("cannot read '" + path + "': " + std::strerror(errno));
  return file;
}

[[noreturn]] void fail_decoding(const std::string& path) {
  const char* reason = stbi_failure_reason();
  fail_user("'" + path + "' cannot be decoded as PNG, JPEG or BMP" + (reason ? ": " + std::string(reason) : ""));
}

struct Decoded {
  int width = 0, height = 0;
  std::unique_ptr<uint8_t, void (*)(void*)> pixels{nullptr, stbi_image_free};
};

Decoded decode(const std::string& path, int64_t channels) {
  const File file = open_image(path);
  Decoded image;
  int stored_channels = 0;
  image.pixels.reset(
      stbi_load_from_file(file.get(), &image.width, &image.height, &stored_channels, static_cast<int>(channels)));
  if (!image.pixels) fail_decoding(path);
  return image;
}

}  // namespace

bool has_image_name(const std::string& path) {
  std::string ending = path.substr(std::min(path.rfind('.'), path.size()));
  for (char& c : ending) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return ending == ".png" || ending == ".jpg" || ending == ".jpeg" || ending == ".bmp";
}

ImageInfo image_info(const std::string& path) {
  const File file = open_image(path);
  int width = 0, height = 0, channels = 0;
  if (!stbi_info_from_file(file.get(), &width, &height, &channels)) fail_decoding(path);
  return {height, width, channels < 3 ? 1 : 3};
}

void read_image(const std::string& path, const ImageInfo& info, std::span<uint8_t> pixels) {
  const Decoded image = decode(path, info.channels);
  const auto bytes = static_cast<size_t>(info.height * info.width * info.channels);
  if (image.width != info.width || image.height != info.height || pixels.size() != bytes)
    fail_internal("'" + path + "' changed its size while it was read");
  std::memcpy(pixels.data(), image.pixels.get(), bytes);
}

void read_fitted_image(const std::string& path, const ImageInfo& size, ImageFit fit, std::span<uint8_t> pixels) {
  const Decoded image = decode(path, size.channels);
  resize_image(image.pixels.get(), image.height, image.width, size, fit, pixels);
}

}  // namespace linnet
