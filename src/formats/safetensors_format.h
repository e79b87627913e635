// What the reader and the writer of safetensors share.
#pragma once
#include <cstdint>
#include <cstdio>
#include <string>

namespace linnet {

constexpr uint64_t kMaxSafetensorsHeader = 100'000'000;  // bytes; the limit of the reference implementation
constexpr const char* kSafetensorsMetadataKey = "__metadata__";
constexpr const char* kSafetensorsChecksumKey = "linnet_checksum";
constexpr const char* kPackedVersionKey = "linnet_packed";  // of packed models (packed_model.h)
constexpr const char* kPackedChecksumKey = "linnet_packed_checksum";
constexpr const char* kPackedSumsKey = "linnet_packed_sums";
constexpr const char* kPackedFilePrefix = "linnet.file:";  // names tensors that are files

inline std::string checksum_text(uint64_t checksum) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(checksum));
  return text;
}

}  // namespace linnet
