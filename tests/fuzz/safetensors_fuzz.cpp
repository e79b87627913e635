// Any bytes are either a safetensors file or a user error.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>
#include "base/error.h"
#include "formats/safetensors.h"

namespace {
// The input with a right length in front of it: most of what the fuzzer makes up would otherwise end at the length.
std::string with_header_length(const uint8_t* data, size_t size) {
  const size_t header = size < 2 ? size : std::min<size_t>(size - 2, data[0] + 256u * data[1]);
  const uint64_t length = size < 2 ? size : header;
  const size_t skip = size < 2 ? 0 : 2;
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) +
         std::string(reinterpret_cast<const char*>(data) + skip, size - skip);
}

// Every element through its conversion: the sanitizer watches the reads.
void convert(const linnet::SafetensorsEntry& entry) {
  const int64_t count = entry.type.shape.elements();
  std::vector<float> floats(static_cast<size_t>(count));
  std::vector<int64_t> integers(static_cast<size_t>(count));
  if (linnet::is_float(entry.dtype)) linnet::read_floats(entry.dtype, entry.data, count, floats.data());
  else linnet::read_integers(entry.dtype, entry.data, count, integers.data());
}

void read(std::span<const std::byte> bytes, linnet::SafetensorsTypes types) {
  try {
    const linnet::SafetensorsFile file(bytes, "fuzz", types);
    file.check_data();
    for (const linnet::SafetensorsEntry& entry : file.entries()) {
      if (entry.data + entry.bytes() > bytes.data() + bytes.size()) std::abort();
      if (types == linnet::SafetensorsTypes::kEngine && entry.bytes() != entry.type.bytes()) std::abort();
      convert(entry);
    }
  } catch (const linnet::Error& error) {
    if (error.kind() != linnet::ErrorKind::kUser || std::strchr(error.what(), '\n')) std::abort();
  }
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string framed = with_header_length(data, size);
  for (const auto types : {linnet::SafetensorsTypes::kEngine, linnet::SafetensorsTypes::kAll}) {
    read(std::as_bytes(std::span(data, size)), types);
    read(std::as_bytes(std::span(framed)), types);
  }
  return 0;
}
