#include "serving/loaded/pack.h"
#include <cstring>
#include <filesystem>
#include <set>
#include "base/fail.h"
#include "data/text/pipeline/tokenizer_tables.h"
#include "formats/packed_model.h"
#include "models/families/sentence_embedder.h"
#include "models/nn/model_store.h"
#include "serving/loaded/loaded_model.h"
#include "tasks/language/language_model.h"
#include "tasks/texts/text_classifier.h"
#include "tasks/translation/translation_model.h"
#include "training/run/run_folder.h"

namespace linnet {
namespace {
namespace fs = std::filesystem;

// Whether a file only records a training run, or holds the weights.
bool is_left_out(const std::string& name) {
  for (const char* record : {"metrics.jsonl", "samples.jsonl", "data.json", "memory.json", "system.json",
           "trainer_state.json", "training_args.bin"})
    if (name == record) return true;
  for (const char* ending : {".safetensors", ".index.json", ".bin", ".h5", ".msgpack", ".onnx", ".ot", ".pt", ".pth",
           ".gguf", ".html", ".linnet", ".tmp", ".png", ".tables"})
    if (name.ends_with(ending)) return true;
  return name.starts_with(".") || name.starts_with("events.out.") || name.starts_with("README");
}

// Subfolders of the model: tokenizers, a run's initial configuration, parts of a sentence-transformers folder.
bool is_part(const fs::path& folder) {
  for (const char* file : {"config.json", "tokenizer_config.json", "tokenizer.json", "vocab.txt", "vocab.json"})
    if (fs::exists(folder / file)) return !has_weight_files(folder.string());
  return false;
}

void add_files(const fs::path& folder, const std::string& prefix, std::map<std::string, std::string>& files) {
  if (is_gguf(folder)) {
    for (const auto& [name, text] : open_packed(folder)->files) files.emplace(name, text);
    return;
  }
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_regular_file() && !is_left_out(name)) files[prefix + name] = read_file(entry.path().string());
    if (entry.is_directory() && prefix.empty() && is_part(entry.path())) add_files(entry.path(), name + "/", files);
  }
}

// Tokenizer tables, which open faster than parsed texts. Only for tokenizer.json and its predecessors.
void add_tokenizer_tables(const std::string& folder, std::map<std::string, std::string>& files) {
  std::set<std::string> parts = {""};
  for (const auto& [name, text] : files)
    if (const size_t slash = name.find('/'); slash != name.npos) parts.insert(name.substr(0, slash + 1));
  for (const std::string& part : parts) {
    if (!has_pretrained_tokenizer(folder + "/" + part)) continue;
    try {
      const auto tokenizer = load_pretrained_tokenizer(folder + "/" + part);
      if (const auto* pipeline = dynamic_cast<const PipelineTokenizer*>(tokenizer.get()))
        files[part + kTokenizerTables] = format_tokenizer_tables(*pipeline);
    } catch (const Error& error) {  // an unsupported tokenizer, which is reported when opened
      if (error.kind() != ErrorKind::kUser) throw;
    }
  }
}

WeightSource source_of(const TensorEntry& entry) {
  const size_t size = file_dtype_size(entry.dtype);
  return {entry.name, entry.dtype, entry.type.shape,
      [data = entry.data, size](int64_t first, int64_t count, std::byte* out) {
        std::memcpy(out, data + static_cast<size_t>(first) * size, static_cast<size_t>(count) * size);
      }};
}

// A model of any kind and how its parameters are read.
struct Opened {
  std::shared_ptr<const void> owner;
  const Module* module = nullptr;
  const PretrainedModel* pretrained = nullptr;  // null: a run with fp32 weights
  LoadWeights load;
};

template <class Model> Opened opened_as(Model model) {
  const auto kept = std::make_shared<const Model>(std::move(model));
  return {kept, &kept->module(), kept->of_folder(), kept->weights()};
}

Opened open_any(const std::string& folder) {
  switch (model_kind(folder)) {
    case ModelKind::kLanguage: return opened_as(open_language_model(folder));
    case ModelKind::kTranslation: return opened_as(open_translation_model(folder));
    case ModelKind::kClassifier: return opened_as(open_text_classifier(folder));
    case ModelKind::kSpans:  // of a model that is loaded to serve
    case ModelKind::kEmbedder: break;
  }
  const auto opened = std::make_shared<PretrainedModel>(open_pretrained(folder));
  if (dynamic_cast<SentenceEncoder*>(opened->module.get())) take_pooling(*opened, folder);
  return {opened, opened->module.get(), opened.get(), weights_of(folder, opened.get())};
}

// Types, other than fp32, in which a folder has all of a parameter.
std::map<std::string, FileDType> types_of(const Opened& opened) {
  std::map<std::string, FileDType> types;
  if (!opened.pretrained) return types;
  for (const NameRow& row : opened.pretrained->names.rows) {
    const auto found = opened.pretrained->dtypes.find(row.tensor);
    if (found == opened.pretrained->dtypes.end()) continue;
    const FileDType type = found->second == FileDType::kF64 ? FileDType::kF32 : found->second;
    const auto [known, inserted] = types.try_emplace(row.parameter, type);
    if (known->second != type) known->second = FileDType::kF32;
  }
  return types;
}

std::string describe(const ParameterLayout& layout, const QuantizationWords& words) {
  const size_t all = layout.parameters().size(), quantized = layout.quantized().size();
  if (quantized == 0) return "as the folder has them";
  return words.quantize + (words.tables.empty() ? "" : ", tables " + words.tables) + ": " + std::to_string(quantized) +
         " matrices; " + std::to_string(all - quantized) + " other parameters in fp32";
}

SafetensorsMetadata metadata_of(const std::string& folder) {
  SafetensorsMetadata metadata;
  const WeightFiles files(folder);
  for (const WeightFiles::Weight& weight : files.weights())
    metadata.insert(weight.file->metadata().begin(), weight.file->metadata().end());
  return metadata;
}

PackReport finish(const std::string& path, PackedContents& contents, const std::string& folder) {
  add_files(folder, "", contents.files);
  contents.files.merge(sentence_files(folder));  // of layers whose folders also have weights
  add_tokenizer_tables(folder, contents.files);
  save_packed_model(path, contents);
  use_packed_models();
  open_packed(path)->check();
  return {.files = contents.files.size(), .bytes = static_cast<uint64_t>(fs::file_size(path))};
}

// Packs parameters as graphs read them.
PackReport pack_parameters(
    const std::string& folder, const std::string& path, const QuantizationWords& words, const Opened& opened) {
  const ParameterLayout layout(*opened.module, {}, words.parsed());
  Store store;
  declare_model(store, layout);
  store.allocate();
  ThreadPool pool(available_threads());
  load_into(store, layout, pool, [&](const ParameterTarget& parameters) { opened.load(layout, parameters); });
  PackedContents contents{.metadata = metadata_of(folder)};
  contents.metadata[kParametersKey] = parameters_metadata(words);
  const bool is_quantized = !layout.quantized().empty();
  contents.weights =
      parameter_sources(store, layout, is_quantized ? std::map<std::string, FileDType>() : types_of(opened));
  PackReport report = finish(path, contents, folder);
  report.tensors = layout.parameters().size();
  report.weights = describe(layout, words);
  return report;
}

// Packs the folder's tensors, for models to train further and of images.
PackReport pack_tensors(const std::string& folder, const std::string& path) {
  const WeightFiles weights(folder);
  PackedContents contents{.metadata = metadata_of(folder)};
  for (const WeightFiles::Weight& weight : weights.weights()) contents.weights.push_back(source_of(*weight.entry));
  PackReport report = finish(path, contents, folder);
  report.tensors = contents.weights.size();
  report.weights = "as the folder has them";
  return report;
}

bool answers_texts(const std::string& folder, bool is_run) {
  if (!is_run) return true;
  const TaskKind kind = task_kind(RunFolder(folder).load_config());
  return kind != TaskKind::kMaskedLanguage && kind != TaskKind::kImages;
}
}  // namespace

PackReport pack_model(const std::string& folder, const std::string& path, const QuantizationWords& words) {
  const RunFolder run(folder);
  if (is_packed(folder)) fail_user("'", folder, "' is packed already");
  const bool is_run = run.has_config() || !is_pretrained_folder(folder);
  if (is_run) run.load_config(), run.best_weights();  // throws if the run is incomplete
  if (answers_texts(folder, is_run)) return pack_parameters(folder, path, words, open_any(folder));
  if (words.parsed().any())
    fail_user("'", folder, "' answers no texts: its weights are packed as they are, without --quantize");
  return pack_tensors(folder, path);
}

PackReport pack_model(
    const std::string& folder, const std::string& path, const QuantizationWords& words, const ModelToPack& model) {
  return pack_parameters(folder, path, words, {nullptr, &model.module, model.pretrained, model.load});
}
}  // namespace linnet
