#include <algorithm>
#include <set>
#include "base/error.h"
#include "base/json.h"
#include "formats/data_checksum.h"
#include "formats/safetensors.h"
#include "formats/safetensors_format.h"

namespace linnet {
namespace {

std::string json_string(const std::string& text) {
  try {
    return Json(text).dump_if_utf8();
  } catch (const JsonError&) {
    fail_user("a name or value for a safetensors file is not valid UTF-8");
  }
}

std::vector<const SafetensorsTensor*> in_file_order(std::span<const SafetensorsTensor> tensors) {
  std::vector<const SafetensorsTensor*> order;
  std::set<std::string> names{kSafetensorsMetadataKey};
  for (const SafetensorsTensor& tensor : tensors) {
    if (!names.insert(tensor.name).second) fail_internal("safetensors: two tensors '" + tensor.name + "'");
    order.push_back(&tensor);
  }
  std::ranges::stable_sort(order, [](const SafetensorsTensor* a, const SafetensorsTensor* b) {
    return dtype_size(a->type.dtype) > dtype_size(b->type.dtype);
  });
  return order;
}

// The header with its length in front, padded with spaces to a multiple of 8 bytes so that the data is aligned.
std::string header_text(const std::vector<const SafetensorsTensor*>& order, SafetensorsMetadata metadata,
                        uint64_t checksum) {
  metadata[kSafetensorsChecksumKey] = checksum_text(checksum);
  std::string text = "{\"" + std::string(kSafetensorsMetadataKey) + "\":{";
  const char* comma = "";
  for (const auto& [key, value] : metadata) {
    text += comma;
    text += json_string(key) + ":" + json_string(value);
    comma = ",";
  }
  text += "}";
  uint64_t offset = 0;
  for (const SafetensorsTensor* tensor : order) {
    text += ',';
    text += json_string(tensor->name);
    text += ":{\"dtype\":\"";
    text += file_dtype_name(file_dtype(tensor->type.dtype));
    text += "\",\"shape\":[";
    for (int axis = 0; axis < tensor->type.shape.rank(); ++axis) {
      if (axis > 0) text += ',';
      text += std::to_string(tensor->type.shape[axis]);
    }
    const uint64_t end = offset + tensor->type.bytes();
    text += "],\"data_offsets\":[" + std::to_string(offset) + "," + std::to_string(end) + "]}";
    offset = end;
  }
  text += "}";
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (text.size() > kMaxSafetensorsHeader) fail_internal("safetensors: the header is too large");
  const uint64_t size = text.size();
  return std::string(reinterpret_cast<const char*>(&size), sizeof size) + text;
}

}  // namespace

uint64_t safetensors_size(std::span<const SafetensorsTensor> tensors, const SafetensorsMetadata& metadata) {
  const auto order = in_file_order(tensors);
  uint64_t bytes = header_text(order, metadata, 0).size();
  for (const SafetensorsTensor* tensor : order) bytes += tensor->type.bytes();
  return bytes;
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
  file.write(header_text(order, metadata, checksum));
  for (const SafetensorsTensor* tensor : order)
    for_pieces(*tensor, [&](const void* data, size_t bytes) { file.write(data, bytes); });
  file.commit();
}

}  // namespace linnet
