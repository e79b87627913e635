// Any bytes are either a packed model or a user error of one line; where they say how parameters are quantized, a model
// reads all of its parameters from them or there is such an error; and where they hold tables of a tokenizer, it takes
// any text or there is such an error.
#include <algorithm>
#include <string>
#include "data/text/pipeline/tokenizer_json.h"
#include "data/text/pipeline/tokenizer_tables.h"
#include "formats/packed_model.h"
#include "fuzz/fuzzing.h"
#include "models/nn/layers.h"
#include "models/nn/parameter_file.h"

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

void read_tables(std::string_view bytes, const std::string& path) {
  const PipelineTokenizer tokenizer(read_tokenizer_tables(bytes, path));
  fuzzing::use(tokenizer, fuzzing::text_with(std::string(bytes.substr(0, 100))));
  fuzzing::use(tokenizer, "the <|endoftext|> [CLS] way");
  tokenizer.to_json();
}

// A tokenizer.json, an empty line, and changes of the tables that are made of it: an offset of three bytes and eight
// bytes that replace those there. Tables that are made up from nothing would hardly ever have a whole header.
void read_changed_tables(const std::string& bytes) {
  const fuzzing::TwoFiles parts = fuzzing::two_files(bytes);
  if (!parts.first.starts_with("{") || parts.second.empty()) return;
  std::string tables;
  fuzzing::only_user_errors(
      [&] { tables = format_tokenizer_tables(PipelineTokenizer(read_tokenizer_json(parts.first, fuzzing::kName))); });
  if (tables.empty()) return;
  constexpr size_t kChange = 3 + 8;
  for (size_t at = 0; at + kChange <= parts.second.size(); at += kChange) {
    const auto* change = reinterpret_cast<const unsigned char*>(parts.second.data()) + at;
    const size_t offset = (change[0] + 256u * change[1] + 65536u * change[2]) % (tables.size() / 8) * 8;
    std::memcpy(tables.data() + offset, change + 3, 8);
  }
  fuzzing::only_user_errors([&] { read_tables(tables, fuzzing::kName); });
}

void read(const std::string& bytes) {
  fuzzing::only_user_errors([&] {
    const PackedFiles packed = read_packed_model(std::as_bytes(std::span(bytes)), fuzzing::kName);
    const char *begin = bytes.data(), *end = begin + bytes.size();
    for (const auto& [name, text] : packed.files)
      fuzzing::require(text.data() >= begin && text.data() + text.size() <= end && !name.starts_with("../"));
    for (const auto& [name, text] : packed.files)
      if (name.ends_with(kTokenizerTables)) read_tables(text, std::string(fuzzing::kName) + "/" + name);
  });
  fuzzing::only_user_errors([&] {
    read_parameters(SafetensorsFile(std::as_bytes(std::span(bytes)), fuzzing::kName, SafetensorsTypes::kAll));
  });
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes = fuzzing::as_text(data, size);
  read(bytes);
  read_changed_tables(bytes);
  // With the length of the header in two bytes: most of what the fuzzer makes up would otherwise end at the length.
  if (size < 2) return 0;
  const uint64_t header = std::min<size_t>(size - 2, data[0] + 256u * data[1]);
  read(std::string(reinterpret_cast<const char*>(&header), sizeof header) + bytes.substr(2));
  return 0;
}
