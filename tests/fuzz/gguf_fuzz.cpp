// Any bytes are either a file of llama.cpp, whose tensors can be read, or a user error; and so is the model in it.
#include "formats/gguf_file.h"
#include "fuzz/fuzzing.h"
#include "models/families/gguf.h"

using namespace linnet;

namespace {
void read_all(const GgufFile& file) {
  std::vector<std::byte> room;
  for (const TensorEntry& entry : file.entries()) {
    const std::byte* data = file.elements(entry, room);
    std::vector<float> floats(static_cast<size_t>(entry.type.shape.elements()));
    read_floats(entry.dtype, data, std::ssize(floats), floats.data());
  }
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  fuzzing::only_user_errors([&] { read_all(GgufFile(bytes, fuzzing::kName)); });
  fuzzing::only_user_errors([&] { read_all(GgufModel(bytes, fuzzing::kName)); });
  return 0;
}
