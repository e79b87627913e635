#include <algorithm>
#include <cstring>
#include "base/error.h"
#include "base/files.h"
#include "formats/gguf_file.h"

namespace linnet {
namespace {

constexpr uint64_t kAlignment = 32;

uint64_t aligned(uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

class Header {
 public:
  template <class T>
  void number(T value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void text(std::string_view value) {
    number(static_cast<uint64_t>(value.size()));
    bytes += value;
  }
  void value(const Json& value) {
    number(type_of(value));
    content(value);
  }
  std::string bytes;

 private:
  // The types of keys: integers have 32 bits where they fit, floats always; elements of lists are signed.
  static uint32_t type_of(const Json& value, bool in_list = false) {
    if (value.is_boolean()) return 7;
    if (value.is_string()) return 8;
    if (value.is_array()) return 9;
    if (value.is_float()) return 6;
    if (in_list) return 5;
    return value.is_integer(0, UINT32_MAX) ? 4 : 11;
  }
  void content(const Json& value, bool in_list = false) {
    switch (type_of(value, in_list)) {
      case 7: return number(static_cast<uint8_t>(value.get<bool>()));
      case 8: return text(value.text());
      case 6: return number(value.get<float>());
      case 5: return number(value.get<int32_t>());
      case 4: return number(value.get<uint32_t>());
      case 11: return number(value.get<int64_t>());
      default:
        number(value.empty() ? uint32_t{8} : type_of(value[0], true));
        number(static_cast<uint64_t>(value.size()));
        for (const Json& element : value) content(element, true);
    }
  }
};

}  // namespace

void save_gguf(const std::string& path, const std::vector<std::pair<std::string, Json>>& keys,
               const std::vector<GgufSource>& tensors) {
  Header header;
  header.bytes = "GGUF";
  header.number(uint32_t{3});
  header.number(static_cast<uint64_t>(tensors.size()));
  header.number(static_cast<uint64_t>(keys.size()));
  for (const auto& [name, value] : keys) header.text(name), header.value(value);
  uint64_t offset = 0;
  const auto bytes_of = [](const GgufSource& tensor) {
    return static_cast<uint64_t>(tensor.shape.elements() / tensor.blocks->elements) * tensor.blocks->bytes;
  };
  for (const GgufSource& tensor : tensors) {
    header.text(tensor.name);
    header.number(static_cast<uint32_t>(tensor.shape.rank()));
    for (int axis = tensor.shape.rank(); axis-- > 0;) header.number(tensor.shape[axis]);
    header.number(tensor.blocks->id);
    header.number(offset);
    offset += aligned(bytes_of(tensor));
  }
  header.bytes.resize(aligned(header.bytes.size()), '\0');
  AtomicFile file(path);
  file.write(header.bytes);
  constexpr int64_t kPiece = 1 << 20;  // elements made at once, whole blocks
  std::vector<float> values;
  std::vector<std::byte> piece;
  for (const GgufSource& tensor : tensors) {
    for (int64_t first = 0, total = tensor.shape.elements(); first < total; first += kPiece) {
      const int64_t count = std::min(kPiece, total - first);
      values.resize(static_cast<size_t>(count));
      tensor.fill(first, count, values.data());
      piece.resize(static_cast<size_t>(count / tensor.blocks->elements) * tensor.blocks->bytes);
      write_gguf(*tensor.blocks, values.data(), count, piece.data());
      file.write(piece.data(), piece.size());
    }
    piece.assign(aligned(bytes_of(tensor)) - bytes_of(tensor), std::byte{});
    file.write(piece.data(), piece.size());
  }
  file.commit();
}

}  // namespace linnet
