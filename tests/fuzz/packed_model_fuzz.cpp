// Any bytes are either a packed model or a user error of one line.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/error.h"
#include "io/packed_model.h"

namespace {

void read(const std::string& bytes) {
  try {
    const linnet::PackedFiles packed = linnet::read_packed_model(std::as_bytes(std::span(bytes)), "fuzz");
    const char *begin = bytes.data(), *end = begin + bytes.size();
    for (const auto& [name, text] : packed.files)
      if (text.data() < begin || text.data() + text.size() > end || name.starts_with("../")) std::abort();
  } catch (const linnet::Error& error) {
    if (error.kind() != linnet::ErrorKind::kUser || std::strchr(error.what(), '\n')) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  read(bytes);
  // With the length of the header in two bytes: most of what the fuzzer makes up would otherwise end at the length.
  if (size < 2) return 0;
  const uint64_t header = std::min<size_t>(size - 2, data[0] + 256u * data[1]);
  read(std::string(reinterpret_cast<const char*>(&header), sizeof header) + bytes.substr(2));
  return 0;
}
