#include "serving/loaded/loaded_model.h"
#include <algorithm>
#include <condition_variable>
#include <filesystem>
#include <set>
#include "base/fail.h"
#include "base/files.h"
#include "base/numbers.h"
#include "base/text.h"
#include "data/text/pipeline/tokenizer_tables.h"
#include "data/text/unicode/utf8.h"
#include "formats/packed_model.h"
#include "models/families/sentence_embedder.h"
#include "models/families/static_scales.h"
#include "models/nn/model_store.h"
#include "tasks/language/language_model.h"
#include "tasks/texts/text_classifier.h"
#include "tasks/translation/translation_model.h"
#include "training/run/run_folder.h"

namespace linnet {
namespace {
ModelKind kind_of_run(const std::string& folder, const Config& config) {
  switch (task_kind(config)) {
    case TaskKind::kTranslation: return ModelKind::kTranslation;
    case TaskKind::kLanguage: return ModelKind::kLanguage;
    case TaskKind::kTexts: return config.data.task == "embeddings" ? ModelKind::kEmbedder : ModelKind::kClassifier;
    case TaskKind::kMaskedLanguage: return ModelKind::kEmbedder;
    case TaskKind::kImages: break;
  }
  fail_user("run '", folder, "' classifies images; `linnet predict` does that");
}

// `folder`: a run or a model folder. User error for one that answers no texts, such as an image classifier.
ModelKind model_kind(const std::string& folder) {
  if (!file_exists(folder)) fail_user("there is no model '", folder, "'", missing_model_hint(folder));
  if (const std::optional<Config> run = run_config(folder)) return kind_of_run(folder, *run);
  if (is_text_classifier_folder(folder)) return ModelKind::kClassifier;
  const ConfigFile config(folder + "/config.json");
  const Family& family = find_family(config);
  switch (family.kind) {
    case FamilyKind::kDecoder: return ModelKind::kLanguage;
    case FamilyKind::kEncoder: return ModelKind::kEmbedder;
    case FamilyKind::kEncoderDecoder: return ModelKind::kTranslation;
    case FamilyKind::kImages: break;
  }
  fail_user("'", folder, "' classifies images; `linnet predict` does that");
}

namespace fs = std::filesystem;

// Whether a file only records a training run, or holds the weights.
bool is_left_out(const std::string& name) {
  for (const char* ending : {".safetensors", ".index.json", ".bin", ".h5", ".msgpack", ".onnx", ".ot", ".pt", ".pth",
           ".gguf", ".html", ".linnet", ".png", ".tables"})
    if (name.ends_with(ending)) return true;
  return is_training_record(name) || name == "trainer_state.json" || name.starts_with("README");
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
    if (entry.is_directory() && (prefix.empty() || !entry.is_symlink()) && is_part(entry.path()))
      add_files(entry.path(), prefix + name + "/", files);
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

// A model of any kind, and its owner.
struct Opened {
  std::shared_ptr<const void> owner;
  ModelToPack model;
};

template <class Model> Opened opened_as(Model model) {
  const auto kept = std::make_shared<const Model>(std::move(model));
  return {kept, {kept->module(), kept->weights(), kept->of_folder()}};
}

Opened open_any(const std::string& folder) {
  switch (model_kind(folder)) {
    case ModelKind::kLanguage: return opened_as(open_language_model(folder));
    case ModelKind::kTranslation: return opened_as(open_translation_model(folder));
    case ModelKind::kClassifier: return opened_as(open_text_classifier(folder));
    case ModelKind::kSpans:  // of a model that is loaded to serve
    case ModelKind::kEmbedder: break;
  }
  if (run_config(folder)) return opened_as(open_text_classifier(folder));  // that learned embeddings
  const auto opened = std::make_shared<PretrainedModel>(open_pretrained(folder));
  if (dynamic_cast<SentenceEncoder*>(opened->module.get())) take_pooling(*opened, folder);
  return {opened, {*opened->module, weights_of(folder, opened.get()), opened.get()}};
}

// Types, other than fp32, in which a folder has all of a parameter.
std::map<std::string, FileDType> types_of(const PretrainedModel* pretrained) {
  std::map<std::string, FileDType> types;
  if (!pretrained) return types;
  for (const NameRow& row : pretrained->names.rows) {
    const FileDType* found = find_value(pretrained->dtypes, row.tensor);
    if (!found) continue;
    const FileDType type = *found == FileDType::kF64 ? FileDType::kF32 : *found;
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

// Packs the folder's tensors, for models to train further and of images.
PackReport pack_tensors(const std::string& folder, const std::string& path) {
  const WeightFiles weights(folder);
  PackedContents contents{.metadata = metadata_of(folder)};
  contents.weights = mapped(weights.weights(), [](const WeightFiles::Weight& weight) {
    const TensorEntry& entry = *weight.entry;
    return stored_weight(entry.name, entry.dtype, entry.type.shape, entry.data);
  });
  PackReport report = finish(path, contents, folder);
  report.tensors = contents.weights.size();
  report.weights = "as the folder has them";
  return report;
}

// A request, and its answer once there.
struct Item {
  TextRequest request;
  int64_t index = 0;
  std::vector<int32_t> prompt = {};
  // Set by the model's thread.
  std::optional<TextOutcome> written = {};
  std::optional<RowOutcome> row = {};
  std::string refusal = {};  // why it was refused
  bool done() const { return written || row || !refusal.empty(); }
};

class RequestBatch {
 public:
  RequestBatch(LoadedModel& model, const BatchOptions& options, const TakeAnswer& take)
      : model_(model), options_(options), take_(take), most_(options.ahead) {
    // Texts take long, and an interrupt waits for those that have begun.
    if (model.text) most_ = std::min(most_, 2 * static_cast<size_t>(model.text->load().slots));
  }
  // Waits for requests under way, as the model's thread writes to it.
  ~RequestBatch() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return std::ranges::all_of(items_, &Item::done); });
  }

  BatchCounts run(const NextLine& next, const std::function<bool()>& stopped) {
    int64_t line_number = 0;
    try {
      for (std::string line; !stopped() && next(line);) {
        ++line_number;
        if (options_.json && trimmed(line).empty()) continue;
        if (requests_++ < options_.skip) continue;
        begin_or_refuse(line, options_.name + ", line " + std::to_string(line_number));
        give(most_);
      }
    } catch (const Error&) {
      give(0);  // keep the answers before a wrong line
      throw;
    }
    give(0);
    if (requests_ < options_.skip && !stopped())
      fail_user(
          options_.name, " has ", requests_, " requests, and ", options_.skip, " are answered: it is another input");
    return counts_;
  }

 private:
  // One wrong request does not end the others: its JSON answer has the error. Plain text has no place for it.
  void begin_or_refuse(const std::string& line, const std::string& where) {
    try {
      begin(line, where);
    } catch (const Error& error) {
      if (!options_.json || error.kind() != ErrorKind::kUser) throw;
      Item item{.index = requests_ - 1, .refusal = error.what()};
      const Json json = Json::parse_or_null(line, JsonLimits::request());
      if (json.is_object() && json.contains("id")) item.request.id = json["id"].dump();
      keep(std::move(item));
      ++counts_.refused;
    }
  }

  TextRequest read(const std::string& line, const std::string& where) const {
    if (!options_.json) return {.prompt = line, .options = options_.text, .where = where};
    return parse_text_request(line, options_.text, where, model_.kind == ModelKind::kLanguage ? nullptr : "text");
  }

  void begin(const std::string& line, const std::string& where) {
    if (const size_t at = invalid_utf8_at(line); at != std::string::npos)
      fail_user(where, ": byte ", at + 1, " is not valid UTF-8");
    Item item{read(line, where), requests_ - 1};
    if (model_.rows) return compute_row(std::move(item));
    const bool translates = model_.kind == ModelKind::kTranslation;
    if (translates && trimmed(item.request.prompt).empty()) {
      item.written.emplace();  // without the model
      keep(std::move(item));
      return;
    }
    const TextModel& writer = model_.text->model();
    item.request.options.log_probabilities = options_.json && !translates;
    TextJob job = translates ? writer.prepare_translation(item.request) : writer.prepare(item.request);
    if (job.choice.beams > writer.beams())
      fail_user(where, ": a search of ", job.choice.beams, " beams needs --beam to be as many");
    job.choice.max_tokens = std::min(job.choice.max_tokens, writer.room());
    item.prompt = job.prompt;
    Item& kept = keep(std::move(item));
    const auto finished = [this, &kept](int64_t, TextOutcome&& outcome) { set(kept.written, std::move(outcome)); };
    if (model_.text->submit({.job = std::move(job), .events = {.finished = finished}}) < 0)
      fail_internal("the model has no room for a request of a batch");
  }

  void compute_row(Item item) {
    RowText text = model_.rows->model().encode(item.request.prompt);
    Item& kept = keep(std::move(item));
    const auto finished = [this, &kept](RowOutcome&& outcome) { set(kept.row, std::move(outcome)); };
    if (!model_.rows->submit({std::move(text)}, finished))
      fail_internal("the model has no room for a request of a batch");
  }

  template <class Outcome> void set(std::optional<Outcome>& answer, Outcome&& outcome) {
    const std::lock_guard lock(mutex_);
    answer = std::move(outcome);
    changed_.notify_one();
  }

  Item& keep(Item item) {
    const std::lock_guard lock(mutex_);
    items_.push_back(std::move(item));
    return items_.back();  // deque: growing at its ends keeps references valid
  }

  // Emits finished answers in order, and waits for the next while more than `most` requests are under way.
  void give(size_t most) {
    for (;;) {
      std::unique_lock lock(mutex_);
      if (items_.empty() || (items_.size() <= most && !items_.front().done())) return;
      changed_.wait(lock, [&] { return items_.front().done(); });
      const Item item = std::move(items_.front());
      items_.pop_front();
      lock.unlock();
      take_(format(item));
      ++counts_.answers;
    }
  }

  std::string format(const Item& item) const {
    if (item.written && !item.written->error.empty()) fail_user(item.request.where, ": ", item.written->error);
    if (item.row && !item.row->error.empty()) fail_user(item.request.where, ": ", item.row->error);
    const std::string text = item.written ? item.written->text.text : "";
    if (options_.json && item.refusal.empty() && model_.kind == ModelKind::kLanguage)
      return format_written_text(item.written->text, item.request, item.index, 0, item.prompt, false);
    Json json{{"request", item.index}};
    if (!item.request.id.empty()) json["id"] = Json::parse(item.request.id, JsonLimits::request());
    if (!item.refusal.empty()) {
      json["error"] = item.refusal;
      return json.dump();
    }
    switch (model_.kind) {
      case ModelKind::kLanguage: return one_line(text);
      case ModelKind::kTranslation: json["translation"] = text; return options_.json ? json.dump() : one_line(text);
      case ModelKind::kClassifier: {
        const auto& classes = model_.rows->model().classes;
        const auto best = std::ranges::max_element(item.row->rows);
        const std::string& label = classes[best - item.row->rows.begin()];
        json["label"] = label, json["probability"] = *best;
        return options_.json ? json.dump() : label + "\t" + shortest(*best);
      }
      case ModelKind::kSpans:
      case ModelKind::kEmbedder: break;
    }
    const std::string numbers = joined(item.row->rows, options_.json ? "," : " ", shortest<float>);
    if (!options_.json) return numbers;
    const std::string head = json.dump();
    return head.substr(0, head.size() - 1) + ",\"embedding\":[" + numbers + "]}";
  }

  static std::string one_line(std::string text) {
    replace_all(text, "\n", "\\n");
    return text;
  }

  LoadedModel& model_;
  const BatchOptions& options_;
  const TakeAnswer& take_;
  size_t most_;  // requests under way at once
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> items_;
  int64_t requests_ = 0;
  BatchCounts counts_;
};
}  // namespace

std::unique_ptr<LoadedModel> open_loaded_model(const std::string& folder, const LoadedModelOptions& options) {
  const uint64_t lost_before = count_lost_pages();
  auto model = std::make_unique<LoadedModel>();
  model->folder = folder, model->kind = model_kind(folder);
  if (!options.draft.empty() && model->kind != ModelKind::kLanguage)
    fail_user("'", folder, "' is no language model, so it has no draft model");
  // A classifier's adapters bring its head.
  if (model->kind == ModelKind::kEmbedder && are_classifiers(parse_adapters(options.adapters)))
    model->kind = ModelKind::kClassifier;
  if (model->kind == ModelKind::kClassifier && options.open_spans && marks_spans(folder)) {
    model->kind = ModelKind::kSpans, model->spans = options.open_spans(folder, options);
  } else if (model->kind == ModelKind::kClassifier || model->kind == ModelKind::kEmbedder) {
    const auto open = model->kind == ModelKind::kEmbedder ? open_embedder : open_row_classifier;
    model->rows = std::make_unique<RowWorker>(open(folder, options), options.limits.waiting);
  } else {
    std::unique_ptr<TextModel> text = open_text_model(folder, {options});
    text->plan_resident(options.text, options.check);
    model->text = std::make_unique<TextWorker>(std::move(text), options.limits);
  }
  // Lost pages leave zeros for weights.
  if (count_lost_pages() != lost_before) fail_user("'", folder, "': a file was cut short while it was read");
  return model;
}

PackReport pack_model(const std::string& folder, const std::string& path, const QuantizationWords& words) {
  if (is_packed(folder)) fail_user("'", folder, "' is packed already");
  const std::optional<Config> run = run_config(folder);
  if (run) RunFolder(folder).best_weights();  // throws if the run is incomplete
  const TaskKind kind = run ? task_kind(*run) : TaskKind::kTexts;
  if (kind != TaskKind::kMaskedLanguage && kind != TaskKind::kImages)
    return pack_model(folder, path, words, open_any(folder).model);
  if (words.parsed().any())
    fail_user("'", folder, "' answers no texts: its weights are packed as they are, without --quantize");
  return pack_tensors(folder, path);
}

PackReport pack_model(
    const std::string& folder, const std::string& path, const QuantizationWords& words, const ModelToPack& model) {
  const ParameterLayout layout(model.module, {}, words.parsed());
  Store store;
  declare_model(store, layout);
  store.allocate();
  ThreadPool pool(available_threads());
  load_into(store, layout, pool, [&](const ParameterTarget& parameters) { model.load(layout, parameters); });
  PackedContents contents{.metadata = metadata_of(folder)};
  contents.metadata[kParametersKey] = parameters_metadata(words);
  const bool is_quantized = !layout.quantized().empty();
  contents.weights =
      parameter_sources(store, layout, is_quantized ? std::map<std::string, FileDType>() : types_of(model.pretrained));
  // Trained scales are among the run's weights, of which only the module's parameters are packed.
  if (const auto scales = read_static_scales(folder)) contents.files[kStaticScalesFile] = static_scales_file(*scales);
  PackReport report = finish(path, contents, folder);
  report.tensors = layout.parameters().size();
  report.weights = describe(layout, words);
  return report;
}

BatchCounts answer_batch(LoadedModel& model, const BatchOptions& options, const NextLine& next, const TakeAnswer& take,
    const std::function<bool()>& stopped) {
  return RequestBatch(model, options, take).run(next, stopped);
}
}  // namespace linnet
