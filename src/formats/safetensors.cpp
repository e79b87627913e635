#include "formats/safetensors.h"
#include <algorithm>
#include <tuple>
#include "base/fail.h"
#include "base/files.h"
#include "base/json.h"
#include "base/text.h"

namespace linnet {
namespace {
constexpr uint64_t kMaxHeader = 100'000'000;  // bytes; the limit of the reference implementation
constexpr const char* kMetadataKey = "__metadata__";

// A tensor whose location in the file is not checked yet.
struct Located {
  TensorEntry entry;
  uint64_t begin = 0, end = 0;
};

class HeaderReader {
 public:
  HeaderReader(const std::string& path, SafetensorsTypes types) : path_(path), types_(types) {}

  template <class... Parts> [[noreturn]] void fail(const Parts&... problem) const {
    fail_user("'", path_, "' is not a valid safetensors file: ", problem...);
  }

  // Refuses equal keys, of which the last would hide a tensor. A header has three levels.
  Json parse_text(std::string_view text) const {
    JsonLimits limits = JsonLimits::tables().with_unique_keys();
    limits.depth = 3;
    if (!text.starts_with('{')) fail("its header is not a JSON object");
    try {
      Json header = Json::parse(text, limits);
      header.sort_keys();  // the first tensor that is wrong does not depend on their order
      return header;
    } catch (const JsonError& error) {
      fail("its header ", error.what());
    }
  }

  SafetensorsMetadata metadata(const Json& object) const {
    if (!object.is_object()) fail("__metadata__ is not an object");
    SafetensorsMetadata result;
    for (const auto& [key, value] : object.items()) {
      if (!value.is_string()) fail("the metadata ", quoted_name(key), " is not a string");
      result[key] = value.text();
    }
    return result;
  }

  Located tensor(const std::string& name, const Json& object, uint64_t data_bytes) const {
    const std::string who = "tensor " + quoted_name(name);
    if (!object.is_object()) fail(who, " is not an object");
    for (const char* key : {"dtype", "shape", "data_offsets"})
      if (!object.contains(key)) fail(who, " has no ", key);
    if (object.size() != 3) fail(who, " has a field that is not dtype, shape or data_offsets");
    Located result{{name, {}, nullptr, dtype(who, object["dtype"])}};
    result.entry.type.dtype = converted_dtype(result.entry.dtype);
    const uint64_t bytes = shape(who, object["shape"], result.entry.dtype, result.entry.type.shape);
    const Json& offsets = object["data_offsets"];
    if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_natural() || !offsets[1].is_natural())
      fail(who, " has data_offsets that are not two natural numbers");
    result.begin = offsets[0].get<uint64_t>(), result.end = offsets[1].get<uint64_t>();
    const std::string range = "bytes " + std::to_string(result.begin) + " to " + std::to_string(result.end);
    if (result.begin > result.end) fail(who, " lies at ", range);
    if (result.end > data_bytes)
      fail(who, " lies at ", range, ", but the file holds ", data_bytes, " bytes of data: it is cut short");
    if (result.end - result.begin != bytes)
      fail(who, " is ", result.entry.text(), ", ", bytes, " bytes, but lies at ", range);
    return result;
  }

 private:
  FileDType dtype(const std::string& who, const Json& value) const {
    if (!value.is_string()) fail(who, " has a dtype that is not a string");
    const bool all = types_ == SafetensorsTypes::kAll;
    const std::optional<FileDType> dtype = file_dtype(value.text());
    if (dtype && (all || engine_dtype(*dtype))) return *dtype;
    fail_user("'", path_, "': ", who, " has dtype ", quoted_name(value.text()), ", which Linnet does not read",
        all ? "" : " here (F32, F64, I32, U8)");
  }

  // Sets `shape`; returns the tensor's bytes.
  uint64_t shape(const std::string& who, const Json& value, FileDType dtype, Shape& shape) const {
    if (!value.is_array()) fail(who, " has a shape that is not a list");
    const std::vector<int64_t> sizes = mapped(value, [&](const Json& size) {
      if (!size.is_natural()) fail(who, " has a shape with ", size.dump(), " in it");
      return static_cast<int64_t>(size.get<uint64_t>());
    });
    const uint64_t bytes = tensor_bytes(path_, who, sizes, dtype);
    shape = Shape(sizes);
    return bytes;
  }

  const std::string& path_;
  SafetensorsTypes types_;
};

std::vector<const SafetensorsTensor*> in_file_order(std::span<const SafetensorsTensor> tensors) {
  auto order = mapped(tensors, [](const SafetensorsTensor& tensor) { return &tensor; });
  std::ranges::stable_sort(
      order, std::ranges::greater{}, [](const SafetensorsTensor* tensor) { return dtype_size(tensor->type.dtype); });
  return order;
}

std::string header_of(
    const std::vector<const SafetensorsTensor*>& order, SafetensorsMetadata metadata, uint64_t checksum) {
  metadata[kSafetensorsChecksumKey] = checksum_text(checksum);
  std::vector<SafetensorsSize> sizes;
  for (const SafetensorsTensor* tensor : order)
    sizes.push_back({tensor->name, file_dtype(tensor->type.dtype), tensor->type.shape});
  return safetensors_header(sizes, metadata);
}
}  // namespace

std::string checksum_text(uint64_t checksum) { return printed("%016zx", checksum); }

// A packed model's weights are the packed file itself.
SafetensorsFile::SafetensorsFile(const std::string& path, SafetensorsTypes types) : TensorFile(path) {
  const PackedPath inside = split_packed_path(path);
  const bool packed = inside.inside == "model.safetensors";
  if (packed) open_packed(inside.packed)->check();
  mapped_ = MappedFile(packed ? inside.packed : path);
  parse(mapped_.bytes(), types);
  if (!packed) return;
  std::erase_if(entries_, [](const TensorEntry& entry) { return entry.name.starts_with(kPackedFilePrefix); });
  index();
  for (const char* key : {kPackedVersionKey, kPackedChecksumKey, kPackedSumsKey}) metadata_.erase(key);
}

SafetensorsFile::SafetensorsFile(std::span<const std::byte> bytes, const std::string& name, SafetensorsTypes types)
    : TensorFile(name) {
  parse(bytes, types);
}

void SafetensorsFile::parse(std::span<const std::byte> bytes, SafetensorsTypes types) {
  const HeaderReader reader(path_, types);
  check_is_there(bytes);
  if (bytes.size() < sizeof(uint64_t)) reader.fail("it has only ", bytes.size(), " bytes");
  const auto header_bytes = number_at<uint64_t>(bytes.data());  // little endian, as every machine Linnet runs on
  const std::span<const std::byte> rest = bytes.subspan(sizeof header_bytes);
  if (header_bytes > kMaxHeader || header_bytes > rest.size())
    reader.fail("its header would have ", header_bytes, " bytes, the file has ", bytes.size());
  const std::span<const std::byte> data = rest.subspan(header_bytes);
  std::vector<Located> tensors;
  const Json header = reader.parse_text({reinterpret_cast<const char*>(rest.data()), header_bytes});
  for (const auto& [name, value] : header.items()) {
    if (name == kMetadataKey) metadata_ = reader.metadata(value);
    else tensors.push_back(reader.tensor(name, value, data.size()));
  }
  std::ranges::sort(tensors, {},
      [](const Located& tensor) { return std::tuple(tensor.begin, tensor.end, std::string_view(tensor.entry.name)); });
  uint64_t end = 0;
  for (Located& tensor : tensors) {
    if (tensor.begin != end)
      reader.fail("tensor ", quoted_name(tensor.entry.name), tensor.begin < end ? " overlaps" : " leaves a hole behind",
          " the one before it");
    end = tensor.end;
    tensor.entry.data = data.data() + tensor.begin;
    entries_.push_back(std::move(tensor.entry));
  }
  index();
  if (end != data.size()) reader.fail("its tensors end at byte ", end, " of ", data.size());
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
    fail_user("'", path_, "' is damaged: its data does not have the checksum it was saved with");
}

std::string safetensors_header(
    std::span<const SafetensorsSize> tensors, const SafetensorsMetadata& metadata, size_t unit) {
  Json header;
  header[kMetadataKey] = metadata;
  uint64_t offset = 0;
  for (const auto& [name, dtype, shape] : tensors) {
    if (header.contains(name)) fail_internal("safetensors: two tensors '", name, "'");
    const uint64_t begin = offset;
    offset += static_cast<uint64_t>(shape.elements()) * file_dtype_size(dtype);
    header[name] = {{"dtype", file_dtype_name(dtype)},
        {"shape", std::vector<int64_t>(shape.sizes().begin(), shape.sizes().end())}, {"data_offsets", {begin, offset}}};
  }
  std::string text;
  try {
    text = header.dump_if_utf8();
  } catch (const JsonError&) {
    fail_user("a name or value for a safetensors file is not valid UTF-8");
  }
  text.resize(round_up(sizeof(uint64_t) + text.size(), unit) - sizeof(uint64_t), ' ');
  if (text.size() > kMaxHeader) fail_internal("safetensors: the header is too large");
  const uint64_t size = text.size();
  return std::string(reinterpret_cast<const char*>(&size), sizeof size) + text;
}

uint64_t safetensors_size(std::span<const SafetensorsTensor> tensors, const SafetensorsMetadata& metadata) {
  return header_of(in_file_order(tensors), metadata, 0).size() +
         sum_of<uint64_t>(tensors, [](const SafetensorsTensor& tensor) { return tensor.type.bytes(); });
}

void save_safetensors(const std::string& path, std::span<const SafetensorsTensor> tensors,
    const SafetensorsMetadata& metadata, const FetchTensor& fetch) {
  const auto order = in_file_order(tensors);
  const auto for_pieces = [&](const SafetensorsTensor& tensor, const auto& visit) {  // visit(data, bytes)
    const size_t bytes = tensor.type.bytes();
    if (tensor.data || !fetch) return visit(tensor.data, bytes);
    for (size_t first = 0; first < bytes;) {
      const std::span<const std::byte> piece = fetch(tensor, first);
      visit(piece.data(), piece.size());
      first += piece.size();
    }
  };
  uint64_t checksum = 0;
  for (const SafetensorsTensor* tensor : order) {
    DataChecksum sum(checksum);
    for_pieces(*tensor, [&](const void* data, size_t bytes) { sum.add(data, bytes); });
    checksum = sum.value();
  }
  AtomicFile file(path);
  file.write(header_of(order, metadata, checksum));
  for (const SafetensorsTensor* tensor : order)
    for_pieces(*tensor, [&](const void* data, size_t bytes) { file.write(data, bytes); });
  file.commit();
}
}  // namespace linnet
