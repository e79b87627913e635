// What the reader and the writer of safetensors share.
#pragma once
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

#include "ir/tensor_type.h"

namespace linnet {

constexpr uint64_t kMaxSafetensorsHeader = 100'000'000;  // bytes; the limit of the reference implementation
constexpr const char* kSafetensorsMetadataKey = "__metadata__";
constexpr const char* kSafetensorsChecksumKey = "linnet_checksum";

struct SafetensorsDType {
  DType dtype;
  const char* name;
};
constexpr SafetensorsDType kSafetensorsDTypes[] = {
    {DType::kF32, "F32"}, {DType::kF64, "F64"}, {DType::kI32, "I32"}, {DType::kU8, "U8"}};

inline std::optional<DType> safetensors_dtype(const std::string& name) {
  for (const SafetensorsDType& row : kSafetensorsDTypes)
    if (name == row.name) return row.dtype;
  return std::nullopt;
}

inline std::string checksum_text(uint64_t checksum) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(checksum));
  return text;
}

}  // namespace linnet
