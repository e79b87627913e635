#include <algorithm>
#include <cstring>
#include <optional>
#include <tuple>
#include "base/error.h"
#include "base/json.h"
#include "base/packed_files.h"
#include "formats/data_checksum.h"
#include "formats/safetensors.h"
#include "formats/safetensors_format.h"

namespace linnet {
namespace {

// The entry of one tensor while its place in the file is still to be checked.
struct Located {
  TensorEntry entry;
  uint64_t begin, end;
};

class HeaderReader {
 public:
  HeaderReader(const std::string& path, SafetensorsTypes types) : path_(path), types_(types) {}

  [[noreturn]] void fail(const std::string& problem) const {
    fail_user("'" + path_ + "' is not a valid safetensors file: " + problem);
  }

  // The last of two equal keys would hide a tensor, so that these are refused. A header has three levels.
  Json parse_text(std::string_view text) const {
    JsonLimits limits = JsonLimits::tables();
    limits.depth = 3;
    limits.refuses_duplicates = true;
    if (!text.starts_with('{')) fail("its header is not a JSON object");
    try {
      Json header = Json::parse(text, limits);
      header.sort_keys();  // the first tensor that is wrong does not depend on their order
      return header;
    } catch (const JsonError& error) {
      fail("its header " + std::string(error.what()));
    }
  }

  std::map<std::string, std::string> metadata(const Json& object) const {
    if (!object.is_object()) fail("__metadata__ is not an object");
    std::map<std::string, std::string> result;
    for (const auto& [key, value] : object.items()) {
      if (!value.is_string()) fail("the metadata " + quoted_name(key) + " is not a string");
      result[key] = value.text();
    }
    return result;
  }

  Located tensor(const std::string& name, const Json& object, uint64_t data_bytes) const {
    const std::string who = "tensor " + quoted_name(name);
    if (!object.is_object()) fail(who + " is not an object");
    for (const char* key : {"dtype", "shape", "data_offsets"})
      if (!object.contains(key)) fail(who + " has no " + key);
    if (object.size() != 3) fail(who + " has a field that is not dtype, shape or data_offsets");

    Located result{{name, {}, nullptr, dtype(who, object["dtype"])}, 0, 0};
    result.entry.type.dtype = converted_dtype(result.entry.dtype);
    const uint64_t bytes = shape(who, object["shape"], result.entry.dtype, result.entry.type.shape);
    const Json& offsets = object["data_offsets"];
    if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_natural() || !offsets[1].is_natural())
      fail(who + " has data_offsets that are not two natural numbers");
    result.begin = offsets[0].get<uint64_t>();
    result.end = offsets[1].get<uint64_t>();
    const std::string range = "bytes " + std::to_string(result.begin) + " to " + std::to_string(result.end);
    if (result.begin > result.end) fail(who + " lies at " + range);
    if (result.end > data_bytes)
      fail(who + " lies at " + range + ", but the file holds " + std::to_string(data_bytes) +
           " bytes of data: it is cut short");
    if (result.end - result.begin != bytes)
      fail(who + " is " + result.entry.text() + ", " + std::to_string(bytes) + " bytes, but lies at " + range);
    return result;
  }

 private:
  FileDType dtype(const std::string& who, const Json& value) const {
    if (!value.is_string()) fail(who + " has a dtype that is not a string");
    const std::string& text = value.text();
    const std::optional<FileDType> dtype = file_dtype(text);
    if (dtype && (types_ == SafetensorsTypes::kAll || engine_dtype(*dtype))) return *dtype;
    fail_user("'" + path_ + "': " + who + " has dtype " + quoted_name(text) + ", which Linnet does not read" +
              (types_ == SafetensorsTypes::kAll ? "" : " here (F32, F64, I32, U8)"));
  }

  // Fills `shape` and returns the bytes of the tensor.
  uint64_t shape(const std::string& who, const Json& value, FileDType dtype, Shape& shape) const {
    if (!value.is_array()) fail(who + " has a shape that is not a list");
    if (value.size() > size_t{kMaxRank})
      fail_user("'" + path_ + "': " + who + " has " + std::to_string(value.size()) + " axes; Linnet reads up to " +
                std::to_string(kMaxRank));
    for (const Json& size : value) {
      if (!size.is_natural()) fail(who + " has a shape with " + size.dump() + " in it");
      shape.push_back(static_cast<int64_t>(size.get<uint64_t>()));
    }
    uint64_t bytes = 0;
    if (!tensor_bytes(shape.sizes(), dtype, bytes)) fail(who + " has a shape beyond any memory");
    return bytes;
  }

  const std::string& path_;
  SafetensorsTypes types_;
};

}  // namespace

// The weights of a packed model are the packed file itself.
SafetensorsFile::SafetensorsFile(const std::string& path, SafetensorsTypes types) : TensorFile(path) {
  const PackedPath inside = split_packed_path(path);
  const bool packed = inside.inside == "model.safetensors";
  if (packed) open_packed(inside.packed)->check();
  mapped_ = MappedFile(packed ? inside.packed : path);
  parse({mapped_.data(), mapped_.size()}, types);
  if (packed) keep_weights_alone();
}

void SafetensorsFile::keep_weights_alone() {
  std::erase_if(entries_, [](const TensorEntry& entry) { return entry.name.starts_with(kPackedFilePrefix); });
  index();
  metadata_.erase(kPackedVersionKey);
  metadata_.erase(kPackedChecksumKey);
  metadata_.erase(kPackedSumsKey);
}

SafetensorsFile::SafetensorsFile(std::span<const std::byte> bytes, const std::string& name, SafetensorsTypes types)
    : TensorFile(name) {
  parse(bytes, types);
}

void SafetensorsFile::parse(std::span<const std::byte> bytes, SafetensorsTypes types) {
  const HeaderReader reader(path_, types);
  check_is_there(bytes);
  uint64_t header_bytes = 0;
  if (bytes.size() < sizeof header_bytes) reader.fail("it has only " + std::to_string(bytes.size()) + " bytes");
  std::memcpy(&header_bytes, bytes.data(), sizeof header_bytes);  // little endian, as every machine Linnet runs on
  if (header_bytes > kMaxSafetensorsHeader || header_bytes > bytes.size() - sizeof header_bytes)
    reader.fail("its header would have " + std::to_string(header_bytes) + " bytes, the file has " +
                std::to_string(bytes.size()));
  const char* text = reinterpret_cast<const char*>(bytes.data()) + sizeof header_bytes;
  const std::byte* data = bytes.data() + sizeof header_bytes + header_bytes;
  const uint64_t data_bytes = bytes.size() - sizeof header_bytes - header_bytes;

  std::vector<Located> tensors;
  const Json header = reader.parse_text({text, header_bytes});
  for (const auto& [name, value] : header.items()) {
    if (name == kSafetensorsMetadataKey) metadata_ = reader.metadata(value);
    else tensors.push_back(reader.tensor(name, value, data_bytes));
  }
  std::ranges::sort(tensors, [](const Located& a, const Located& b) {
    return std::tie(a.begin, a.end, a.entry.name) < std::tie(b.begin, b.end, b.entry.name);
  });
  uint64_t end = 0;
  for (Located& tensor : tensors) {
    if (tensor.begin != end)
      reader.fail("tensor " + quoted_name(tensor.entry.name) +
                  (tensor.begin < end ? " overlaps" : " leaves a hole behind") + " the one before it");
    end = tensor.end;
    tensor.entry.data = data + tensor.begin;
    entries_.push_back(std::move(tensor.entry));
  }
  index();
  if (end != data_bytes)
    reader.fail("its tensors end at byte " + std::to_string(end) + " of " + std::to_string(data_bytes));
}

void SafetensorsFile::check_data() const {
  const auto expected = metadata_.find(kSafetensorsChecksumKey);
  if (expected == metadata_.end()) return;
  uint64_t state = 0;
  for (const TensorEntry& entry : entries_) {
    state = data_checksum(state, entry.data, entry.bytes());
    drop_pages();
  }
  if (checksum_text(state) != expected->second)
    fail_user("'" + path_ + "' is damaged: its data does not have the checksum it was saved with");
}

}  // namespace linnet
