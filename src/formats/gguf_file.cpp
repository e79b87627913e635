#include "formats/gguf_file.h"
#include <algorithm>
#include <cmath>
#include <cstring>
#include "base/functions.h"
#include "base/numbers.h"

namespace linnet {
namespace {
constexpr size_t kMostGgufValues = 10'000'000;  // of all keys; each takes 40 bytes of memory
constexpr int kMostNested = 4;                  // lists in lists
constexpr uint64_t kMostAlignment = 1 << 20;

constexpr uint64_t kAlignment = 32;  // of what is written

enum Type : uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64 };

class Reader {
 public:
  Reader(std::span<const std::byte> bytes, const GgufFile& file) : bytes_(bytes), file_(file) {}

  template <class T> T number() { return number_at<T>(take(sizeof(T)).data()); }
  std::string text() { return std::string(take(number<uint64_t>())); }
  // A count of things of at least `least` bytes each.
  uint64_t count(const char* what, uint64_t least) {
    const uint64_t value = number<uint64_t>();
    if (value > (bytes_.size() - at_) / least)
      file_.fail("it would have ", value, " ", what, ", more than its ", bytes_.size(), " bytes hold");
    return value;
  }
  Json value(uint32_t type, int depth = 0) {
    if (++values_ > kMostGgufValues) file_.fail("its keys have more than 10 million values");
    switch (type) {
      case kU8: return number<uint8_t>();
      case kI8: return number<int8_t>();
      case kU16: return number<uint16_t>();
      case kI16: return number<int16_t>();
      case kU32: return number<uint32_t>();
      case kI32: return number<int32_t>();
      case kF32: return real(number<float>());
      case kBool: return number<uint8_t>() != 0;
      case kString: return text();
      case kArray: return list(depth);
      case kU64: return number<uint64_t>();
      case kI64: return number<int64_t>();
      case kF64: return number<double>();
      default: file_.fail("a key has a value of the unknown type ", type);
    }
  }
  uint64_t at() const { return at_; }

 private:
  std::string_view take(uint64_t size) {
    if (size > bytes_.size() - at_) file_.fail("it is cut short");
    const auto* from = reinterpret_cast<const char*>(bytes_.data()) + at_;
    at_ += size;
    return {from, size};
  }
  // The shortest double for this float: 1e-5, not 9.99999974737875e-06.
  static double real(float value) {
    return std::isfinite(value) ? parse_number<double>(shortest(value)).value_or(value) : value;
  }
  Json list(int depth) {
    if (depth >= kMostNested) file_.fail("a key has lists within lists within lists");
    const auto type = number<uint32_t>();
    const uint64_t size = count("elements in a list", type == kString ? 8 : type == kArray ? 12 : 1);
    Json list = Json::array();
    for (uint64_t i = 0; i < size; ++i) list.push_back(value(type, depth + 1));
    return list;
  }

  const std::span<const std::byte> bytes_;
  const GgufFile& file_;
  uint64_t at_ = 0;
  size_t values_ = 0;
};

class Header {
 public:
  template <class T> void number(T value) { bytes.append(reinterpret_cast<const char*>(&value), sizeof value); }
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
  // Integers have 32 bits if they fit, floats always; elements of lists are signed.
  static uint32_t type_of(const Json& value, bool in_list = false) {
    if (value.is_boolean()) return kBool;
    if (value.is_string()) return kString;
    if (value.is_array()) return kArray;
    if (value.is_float()) return kF32;
    if (in_list) return kI32;
    return value.is_integer(0, UINT32_MAX) ? kU32 : kI64;
  }
  void content(const Json& value, bool in_list = false) {
    switch (type_of(value, in_list)) {
      case kBool: return number(static_cast<uint8_t>(value.get<bool>()));
      case kString: return text(value.text());
      case kF32: return number(value.get<float>());
      case kI32: return number(value.get<int32_t>());
      case kU32: return number(value.get<uint32_t>());
      case kI64: return number(value.get<int64_t>());
      default:
        number(value.empty() ? uint32_t{kString} : type_of(value[0], true));
        number(static_cast<uint64_t>(value.size()));
        for (const Json& element : value) content(element, true);
    }
  }
};
}  // namespace

const Json* GgufFile::key(const std::string& name) const { return find_value(keys_, name); }

void GgufFile::parse(std::span<const std::byte> bytes) {
  check_is_there(bytes);
  Reader reader(bytes, *this);
  if (bytes.size() < 4 || std::memcmp(bytes.data(), "GGUF", 4) != 0) fail("it is no GGUF file: it does not begin so");
  reader.number<uint32_t>();
  const auto version = reader.number<uint32_t>();
  if (version == 0x02000000 || version == 0x03000000)
    fail("its numbers are big-endian, Linnet reads little-endian files");
  if (version != 2 && version != 3)
    fail("it is GGUF of version ", version, ", Linnet reads 2 and 3; llama.cpp's converter writes it anew");
  const uint64_t tensors = reader.count("tensors", 24), keys = reader.count("keys", 13);
  for (uint64_t i = 0; i < keys; ++i) {
    const std::string name = reader.text();
    const auto type = reader.number<uint32_t>();
    if (!keys_.emplace(name, reader.value(type)).second) fail("the key ", quoted_name(name), " is in it twice");
  }
  std::vector<uint64_t> offsets;  // of the tensors
  for (uint64_t i = 0; i < tensors; ++i) {
    TensorEntry entry{reader.text(), {}, nullptr, FileDType::kF32};
    const std::string who = "tensor " + quoted_name(entry.name);
    const auto axes = reader.number<uint32_t>();
    if (axes > static_cast<uint32_t>(kMaxRank)) fail(who, " has ", axes, " axes; Linnet reads up to ", kMaxRank);
    std::vector<int64_t> sizes(axes);
    for (size_t axis = sizes.size(); axis-- > 0;) sizes[axis] = reader.number<int64_t>();
    const auto type = reader.number<uint32_t>();
    const GgufBlocks* blocks = find_gguf_blocks(type);
    if (!blocks)
      fail(who, " is ", gguf_type_name(type), ", Linnet reads ", gguf_type_names(),
          "; take a file that llama.cpp quantized to one of these, such as Q4_K_M");
    tensor_bytes(path_, who, sizes, FileDType::kF64);
    entry.type = {converted_dtype(blocks->dtype), Shape(sizes)};
    entry.dtype = blocks->dtype;
    const int64_t row = axes > 0 ? sizes.back() : 1;
    if (row % blocks->elements != 0)
      fail(who, " is ", blocks->name, " with rows of ", row, " elements, which are no whole blocks of ",
          blocks->elements);
    entry.form_bytes = static_cast<size_t>(entry.type.shape.elements() / blocks->elements) * blocks->bytes;
    if (blocks->format) entry.form = blocks->name;
    offsets.push_back(reader.number<uint64_t>());
    entries_.push_back(std::move(entry));
  }
  uint64_t alignment = 32;
  if (const Json* given = key("general.alignment")) {
    if (!given->is_integer(1, kMostAlignment)) fail("\"general.alignment\" is ", shown(*given));
    alignment = given->get<uint64_t>();
  }
  const uint64_t begin = round_up(reader.at(), alignment);
  const uint64_t data_bytes = begin < bytes.size() ? bytes.size() - begin : 0;
  for (size_t i = 0; i < entries_.size(); ++i) {
    TensorEntry& entry = entries_[i];
    const uint64_t offset = offsets[i], size = entry.form_bytes;
    if (offset > data_bytes || size > data_bytes - offset)
      fail("tensor ", quoted_name(entry.name), " ends behind the end of the file: it is cut short");
    entry.data = bytes.data() + (size > 0 ? begin + offset : 0);
  }
  index();
  if (by_name_.size() != entries_.size()) fail("it has two tensors of one name");
}

const GgufBlocks& GgufFile::blocks(const TensorEntry& entry) const {
  return *find_gguf_blocks(entry.form ? entry.form : file_dtype_name(entry.dtype));
}

const std::byte* GgufFile::elements(const TensorEntry& entry, std::vector<std::byte>& room) const {
  if (!entry.form) return entry.data;
  const int64_t count = entry.type.shape.elements();
  room.resize(static_cast<size_t>(count) * file_dtype_size(entry.dtype));
  read_gguf(blocks(entry), entry.data, count, room.data());
  return room.data();
}

void GgufFile::read(const TensorEntry& entry, float* out) const {
  if (!entry.form) return TensorFile::read(entry, out);
  read_gguf(blocks(entry), entry.data, entry.type.shape.elements(), reinterpret_cast<std::byte*>(out));
}

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
    offset += round_up(bytes_of(tensor), kAlignment);
  }
  header.bytes.resize(round_up(header.bytes.size(), kAlignment), '\0');
  AtomicFile file(path);
  file.write(header.bytes);
  constexpr int64_t kPiece = 1 << 20;  // elements made at once, whole blocks
  std::vector<float> values;
  std::vector<std::byte> piece;
  for (const GgufSource& tensor : tensors) {
    for (int64_t first = 0, total = tensor.shape.elements(); first < total; first += kPiece) {
      const int64_t count = std::min(kPiece, total - first);
      values.resize(count);
      tensor.fill(first, count, values.data());
      if (!std::ranges::all_of(values, [](float value) { return std::isfinite(value); }))
        fail_user("'", path, "' cannot be written: tensor ", tensor.name, " holds values that are not finite");
      piece.resize(static_cast<size_t>(count / tensor.blocks->elements) * tensor.blocks->bytes);
      write_gguf(*tensor.blocks, values.data(), count, piece.data());
      file.write(piece.data(), piece.size());
    }
    piece.assign(round_up(bytes_of(tensor), kAlignment) - bytes_of(tensor), std::byte{});
    file.write(piece.data(), piece.size());
  }
  file.commit();
}
}  // namespace linnet
