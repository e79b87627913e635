// Any bytes are either a packed model or a user error of one line; and where they say how parameters are quantized, a
// model reads all of its parameters from them or there is such an error.
#include <algorithm>
#include <string>

#include "fuzz/fuzzing.h"
#include "io/packed_model.h"
#include "nn/layers.h"
#include "nn/parameter_file.h"

using namespace linnet;

namespace {

// A matrix of one panel of one block, so that few bytes are a whole model.
struct Net : Module {
  Linear fc{this, "fc", 32, 16};
};

void read_parameters(const SafetensorsFile& tensors) {
  const Net net;
  const ParameterFile file(tensors, nullptr);
  // Patterns of parameters to keep may name some that the model does not have; then the form is as of none.
  const QuantizationWords words{file.words().quantize, file.words().tables, {}};
  const ParameterLayout layout(net, {}, words.parsed());
  for (const ParameterSlot& slot : layout.parameters()) file.dtype(slot.spec.name);
  std::vector<float> values(static_cast<size_t>(layout.parameter_count()));
  file.read(layout, values.data());
  for (const ParameterSlot& slot : layout.parameters()) file.check(slot.spec);
  fuzzing::require(!file.can_map(layout));  // there is no file to map
}

void read(const std::string& bytes) {
  fuzzing::only_user_errors([&] {
    const PackedFiles packed = read_packed_model(std::as_bytes(std::span(bytes)), fuzzing::kName);
    const char *begin = bytes.data(), *end = begin + bytes.size();
    for (const auto& [name, text] : packed.files)
      fuzzing::require(text.data() >= begin && text.data() + text.size() <= end && !name.starts_with("../"));
  });
  fuzzing::only_user_errors([&] {
    read_parameters(SafetensorsFile(std::as_bytes(std::span(bytes)), fuzzing::kName, SafetensorsTypes::kAll));
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes = fuzzing::as_text(data, size);
  read(bytes);
  // With the length of the header in two bytes: most of what the fuzzer makes up would otherwise end at the length.
  if (size < 2) return 0;
  const uint64_t header = std::min<size_t>(size - 2, data[0] + 256u * data[1]);
  read(std::string(reinterpret_cast<const char*>(&header), sizeof header) + bytes.substr(2));
  return 0;
}
