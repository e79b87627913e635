#include "data/text/sentencepiece/sentencepiece_seal.h"
#include <cstdint>
#include "base/error.h"

namespace linnet {
namespace {

// Protobuf field 1000 (ModelProto sets 200 and above aside for others), length-delimited: the tag 1000 << 3 | 2 as a
// varint, the length, and then "linnet1:" with 16 hexadecimal digits of checksum.
constexpr std::string_view kSealStart = "\xC2\x3E\x18linnet1:";
constexpr size_t kSealDigits = 16;

std::string checksum(std::string_view bytes) {  // FNV-1a, 64 bits
  uint64_t hash = 0xCBF29CE484222325u;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  std::string digits;
  for (int shift = 60; shift >= 0; shift -= 4) digits += "0123456789abcdef"[(hash >> shift) & 15u];
  return digits;
}

}  // namespace

std::string seal_sentencepiece_model(std::string_view model) {
  return std::string(model) + std::string(kSealStart) + checksum(model);
}

std::string open_sentencepiece_model(std::string_view bytes, const std::string& path) {
  const size_t seal = kSealStart.size() + kSealDigits;
  if (bytes.size() > seal) {
    const std::string_view model = bytes.substr(0, bytes.size() - seal);
    if (bytes.substr(model.size()) == std::string(kSealStart) + checksum(model)) return std::string(model);
  }
  fail_user("tokenizer file '" + path + "' is truncated, damaged or was not written by Linnet");
}

}  // namespace linnet
