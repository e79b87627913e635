#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <set>
#include "base/files.h"
#include "base/packed_files.h"
#include "base/text.h"
#include "formats/weight_files.h"
#include "models/families/pretrained.h"
#include "models/families/static_scales.h"
#include "models/nn/parameter_file.h"

namespace linnet {
namespace {
std::string line(const char* name, const std::string& value) {
  char text[32];
  std::snprintf(text, sizeof text, "%-18s", name);
  return text + value + "\n";
}

std::string with_commas(int64_t number) {
  std::string text = std::to_string(number);
  for (auto at = static_cast<int64_t>(text.size()) - 3; at > 0; at -= 3) text.insert(static_cast<size_t>(at), ",");
  return text;
}

// The settings that families call alike or nearly.
std::string sizes(const ConfigFile& config) {
  struct Row {
    const char* name;
    std::initializer_list<const char*> keys;
  };
  const Row rows[] = {{"vocabulary", {"vocab_size"}}, {"width", {"n_embd", "hidden_size", "d_model", "dim"}},
      {"layers", {"n_layer", "num_hidden_layers", "num_layers", "encoder_layers", "n_layers"}},
      {"heads", {"n_head", "num_attention_heads", "num_heads", "encoder_attention_heads", "n_heads"}},
      {"positions", {"n_positions", "max_position_embeddings"}}};
  std::string text;
  for (const Row& row : rows)
    for (const char* key : row.keys)
      if (config.has(key)) {
        text += (text.empty() ? "" : ", ") + std::string(row.name) + " " + std::to_string(config.integer(key));
        break;
      }
  return text;
}

std::string in_megabytes(double bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f MB", bytes / 1e6);
  return text;
}

std::string types(const WeightFiles& files) {
  std::set<std::string> names;
  for (const WeightFiles::Weight& weight : files.weights()) names.insert(weight.entry->form_name());
  return joined(names);
}

std::string tokenizer_files(const std::string& folder) {
  std::string text;
  for (const char* name : {"tokenizer.json", "vocab.json", "merges.txt", "vocab.txt", "spiece.model", "tokenizer.model",
           "sentencepiece.bpe.model", "source.spm", "target.spm"})
    if (file_exists((std::filesystem::path(folder) / name).string()))
      text += (text.empty() ? "" : ", ") + std::string(name);
  return text.empty() ? "none" : text;
}
}  // namespace

std::string describe_pretrained(const std::string& folder) {
  const PretrainedModel model = open_pretrained(folder, {.may_lack_weights = true});
  std::string text = line("model", std::string(model.family->model_type) + ", " + model.architecture);
  text += line("sizes", sizes(model.config));
  text += line("parameters", with_commas(model.parameter_count()));
  if (!has_weight_files(folder) && !ParameterFile::open(folder)) {
    const auto count = static_cast<double>(model.parameter_count());
    text += line("weights", "none: config.json alone; in memory " + in_megabytes(4 * count) + " in fp32, " +
                                in_megabytes(2 * count) + " in bf16");
    return text + line("tokenizer", tokenizer_files(folder));
  }
  const WeightFiles files(folder);
  text += line("weights", in_megabytes(static_cast<double>(files.bytes())) + ", " + types(files) + ", " +
                              std::to_string(files.files()) + (files.files() == 1 ? " file" : " files"));
  if (is_gguf(folder)) {
    const ParameterLayout layout(*model.module, {}, folder_quantization(folder, ""));
    const size_t bytes = layout.quantized_bytes() + static_cast<size_t>(layout.stored_count()) * sizeof(float);
    text +=
        line("in memory", in_megabytes(static_cast<double>(bytes)) +
                              " for inference on the CPU, matrices in the file's blocks; fp32 with --quantize none");
  }
  if (const auto packed = ParameterFile::open(folder))
    text += line("packed",
        packed->words().text() + (packed->can_map(ParameterLayout(*model.module, {}, packed->words().parsed()))
                                         ? ", mapped: processes share it"
                                         : ", copied when it is opened"));
  text += line("tokenizer", tokenizer_files(folder));
  for (const std::string& name : model.unused) text += line("unused", name);
  return text;
}
}  // namespace linnet
