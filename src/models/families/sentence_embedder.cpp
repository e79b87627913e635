#include "models/families/sentence_embedder.h"
#include <numeric>
#include "base/fail.h"
#include "base/files.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "models/families/config_file.h"
#include "models/families/fields.h"
#include "models/nn/parameter_file.h"

namespace linnet {
namespace {
constexpr const char *kModules = "modules.json", *kTransformer = "sentence_bert_config.json",
                     *kSettings = "config_sentence_transformers.json";

struct PoolingName {
  const char *name, *flag;
  Pooling kind;
};
constexpr PoolingName kKinds[] = {{"mean", "pooling_mode_mean_tokens", Pooling::kMean},
    {"cls", "pooling_mode_cls_token", Pooling::kFirst}, {"lasttoken", "pooling_mode_lasttoken", Pooling::kLast},
    {"max", "pooling_mode_max_tokens", Pooling::kMax},
    {"mean_sqrt_len_tokens", "pooling_mode_mean_sqrt_len_tokens", Pooling::kRootMean}};

// By "pooling_mode", or by the older flag that is true.
Pooling read_kind(const ConfigFile& config) {
  config.require_flag("pooling_mode_weightedmean_tokens", false);
  const std::string mode = config.text("pooling_mode", "");
  std::vector<Pooling> chosen;
  for (const PoolingName& row : kKinds)
    if (mode.empty() ? config.flag(row.flag, false) : mode == row.name) chosen.push_back(row.kind);
  if (chosen.empty() && mode.empty()) config.require_flag("pooling_mode_mean_tokens", true);
  if (chosen.size() > 1 || (chosen.empty() && !mode.empty()))
    config.fail("asks for ", mode.empty() ? "several poolings" : "the pooling \"" + mode + "\"",
        "; Linnet has one of mean, cls, lasttoken, max and mean_sqrt_len_tokens");
  return chosen.empty() ? Pooling::kMean : chosen[0];
}

struct SentenceModule {
  std::string kind, path;  // "Pooling"
};

std::vector<SentenceModule> read_modules(const std::string& path) {
  // ConfigFile does not read a list at the top.
  const ConfigFile file = ConfigFile::parse("{\"modules\": " + read_file(path) + "}", path);
  std::vector<SentenceModule> modules;
  for (const ConfigFile& module : file.objects("modules")) {
    const std::string type = module.text("type");
    modules.push_back({type.substr(type.rfind('.') + 1), module.text("path", "")});
    if (const std::string& name = modules.back().path; name.find_first_of("/\\") != name.npos || name == "..")
      module.fail("the path \"", name, "\" is no folder within the model's");
  }
  return modules;
}

DenseLayer read_dense(const std::string& folder, const std::string& part) {
  constexpr std::pair<const char*, std::optional<Activation>> kFunctions[] = {
      {"torch.nn.modules.linear.Identity", std::nullopt}, {"torch.nn.modules.activation.Tanh", Activation::kTanh},
      {"torch.nn.modules.activation.ReLU", Activation::kRelu}, {"torch.nn.modules.activation.GELU", Activation::kGelu},
      {"torch.nn.modules.activation.SiLU", Activation::kSilu}};
  const ConfigFile config(path_in(path_in(folder, part), "config.json"));
  return {part, config.size("in_features"), config.size("out_features"), config.flag("bias", true),
      read_word<std::optional<Activation>>(config, "activation_function", kFunctions, Activation::kTanh)};
}

// Adds the linear layers behind a pooling, unless the model has them.
void add_dense(PretrainedModel& model, const SentencePooling& pooling) {
  auto& encoder = model.as<SentenceEncoder>();
  if (encoder.dense.size() > 0) return;
  for (const DenseLayer& layer : pooling.dense) {
    if (layer.in != encoder.width())
      fail_user(
          "\"in_features\" of ", layer.folder, " is ", layer.in, ", and it is given ", encoder.width(), " numbers");
    const std::string ours = "dense." + std::to_string(encoder.dense.size()), theirs = layer.folder + "/linear";
    encoder.dense.append(layer.in, layer.out, xavier_uniform(), layer.bias);
    encoder.dense_activations.push_back(layer.activation);
    model.names.add(theirs + ".weight", ours + ".weight");
    if (layer.bias) model.names.add(theirs + ".bias", ours + ".bias");
    model.names.folders.push_back(layer.folder);
  }
}

void set_pooling(PretrainedModel& model, const SentencePooling& pooling) {
  auto& encoder = model.as<SentenceEncoder>();
  encoder.pooling = pooling.kind, encoder.normalized = pooling.normalized, encoder.max_tokens = pooling.max_tokens;
  add_dense(model, pooling);
}

PretrainedModel open_encoder(const std::string& folder, const std::vector<AdapterFolder>& adapters) {
  check_model_folder(folder);
  const ConfigFile config(path_in(folder, "config.json"));
  const Family& family = find_family(config);
  if (family.kind != FamilyKind::kEncoder)
    fail_user("'", folder, "' is a model of the kind \"", family.model_type, "\"; sentence embeddings are of ",
        names_of_kind(FamilyKind::kEncoder));
  refuse_names(adapters);
  return open_with_adapters(folder, adapters, {.head = ModelHead::kNone});
}

// Null: a masked language model, whose encoder embeds.
SentenceEncoder* sentence_encoder(const PretrainedModel& model) {
  return dynamic_cast<SentenceEncoder*>(model.module.get());
}
TextEncoder& encoder_of(const PretrainedModel& model) {
  if (SentenceEncoder* own = sentence_encoder(model)) return own->encoder;
  return model.as<MaskedLanguageModel>().encoder;
}
}  // namespace

SentencePooling read_sentence_pooling(const std::string& folder) {
  SentencePooling pooling;
  const ConfigFile transformer = ConfigFile::if_exists(path_in(folder, kTransformer));
  if (transformer.flag("do_lower_case", false))
    log_warning("'" + folder + "': \"do_lower_case\" of " + kTransformer +
                " is ignored: texts are as the tokenizer reads them");
  pooling.max_tokens = transformer.size("max_seq_length", 0);
  pooling.dimensions = ConfigFile::if_exists(path_in(folder, kSettings)).size("truncate_dim", 0);
  const std::string path = path_in(folder, kModules);
  if (!file_exists(path)) return pooling;
  // Newer versions write the length into the tokenizer's file alone.
  if (pooling.max_tokens == 0) {
    const ConfigFile words = ConfigFile::if_exists(path_in(folder, "tokenizer_config.json"));
    if (const double length = words.number("model_max_length", 0); length < INT64_C(1) << 31)
      pooling.max_tokens = static_cast<int64_t>(length);
  }
  pooling.normalized = false;
  for (const SentenceModule& module : read_modules(path)) {
    if (module.kind == "Pooling")
      pooling.kind = read_kind(ConfigFile(path_in(path_in(folder, module.path), "config.json")));
    else if (module.kind == "Dense" && !pooling.normalized) pooling.dense.push_back(read_dense(folder, module.path));
    else if (module.kind == "Normalize") pooling.normalized = true;
    else if (module.kind != "Transformer")
      fail_user("'", path, "': a module of type ", module.kind,
          ", Linnet has Transformer, Pooling, Dense and Normalize, in this order");
  }
  return pooling;
}

std::map<std::string, std::string> sentence_files(const std::string& folder) {
  const std::string path = path_in(folder, kModules);
  std::map<std::string, std::string> files;
  if (!file_exists(path) || is_cross_encoder(folder)) return files;
  files[kModules] = read_file(path);
  for (const char* name : {kTransformer, kSettings})
    if (file_exists(path_in(folder, name))) files[name] = read_file(path_in(folder, name));
  for (const SentenceModule& module : read_modules(path))
    if (const std::string name = path_in(module.path, "config.json");
        !module.path.empty() && file_exists(path_in(folder, name)))
      files[name] = read_file(path_in(folder, name));
  return files;
}

std::map<std::string, std::string> sentence_files(const PretrainedModel& model) {
  const auto& encoder = model.as<SentenceEncoder>();
  if (auto files = sentence_files(model.folder); !files.empty()) {
    std::string& text = files[kTransformer];  // has the length if the tokenizer's file had it
    Json transformer = text.empty() ? Json::object() : Json::parse(text, kTransformer, JsonLimits::settings());
    if (encoder.max_tokens > 0 && transformer.is_object() && !transformer.find("max_seq_length")) {
      transformer["max_seq_length"] = encoder.max_tokens;
      text = transformer.dump(2);
    }
    if (text.empty()) files.erase(kTransformer);
    return files;
  }
  Json modules = Json::array(), mode{{"word_embedding_dimension", encoder.encoder.config.width}};
  for (const std::string kind : {"Transformer", "Pooling", "Normalize"}) {
    if (!encoder.normalized && kind == "Normalize") continue;
    const auto index = static_cast<int64_t>(modules.size());
    const std::string number = std::to_string(index);
    modules.push_back({{"idx", index}, {"name", number}, {"path", index == 0 ? "" : number + "_" + kind},
        {"type", "sentence_transformers.models." + kind}});
  }
  for (const PoolingName& row : kKinds) mode[row.flag] = row.kind == encoder.pooling;
  const Json transformer{{"max_seq_length", encoder.max_length()}, {"do_lower_case", false}};
  return {{kModules, modules.dump(2)}, {"1_Pooling/config.json", mode.dump(2)}, {kTransformer, transformer.dump(2)}};
}

void take_pooling(PretrainedModel& model, const std::string& folder) {
  set_pooling(model, read_sentence_pooling(folder));
}

std::string SentencePrompts::of(const std::string& name) const {
  if (name.empty() && usual.empty()) return "";
  const auto found = prompts.find(name.empty() ? usual : name);
  if (found != prompts.end() && !included && !found->second.empty())
    fail_user("\"include_prompt\" is false: the model leaves its prompts out of the pooling, which Linnet does not");
  if (found != prompts.end()) return found->second;
  const std::string names = joined(prompts, ", ", [](const auto& entry) { return entry.first; });
  fail_user("the model has no prompt \"", name, "\"", names.empty() ? "" : "; it has " + names);
}

SentencePrompts read_sentence_prompts(const std::string& folder) {
  SentencePrompts result;
  const std::string path = path_in(folder, kSettings);
  if (!file_exists(path)) return result;
  const Json json = Json::parse(read_file(path), "'" + path + "'", JsonLimits::settings());
  const JsonObject config(json, "'" + path + "':");
  if (file_exists(path_in(folder, kModules)))
    for (const SentenceModule& module : read_modules(path_in(folder, kModules)))
      if (module.kind == "Pooling")
        result.included = ConfigFile(path_in(path_in(folder, module.path), "config.json")).flag("include_prompt", true);
  result.usual = config.text("default_prompt_name", "");
  if (const Json* prompts = json.find("prompts"); prompts && prompts->is_object())
    for (const auto& [name, text] : prompts->items())
      if (text.is_string()) result.prompts[name] = text.text();
  if (!result.usual.empty() && !result.prompts.contains(result.usual))
    config.fail("default_prompt_name", "is not among the \"prompts\"");
  return result;
}

void normalize_rows(std::span<float> rows, size_t width) {
  for (size_t first = 0; first < rows.size(); first += width) {
    const std::span<float> row = rows.subspan(first, width);
    const double squares = std::inner_product(row.begin(), row.end(), row.begin(), 0.0);
    for (float& value : row) value = static_cast<float>(value / std::sqrt(std::max(squares, 1e-24)));
  }
}

void shorten_rows(std::vector<float>& rows, size_t width, size_t dimensions, bool normalized) {
  if (dimensions >= width) return;
  for (size_t row = 0; row < rows.size() / width; ++row)
    std::copy_n(rows.begin() + row * width, dimensions, rows.begin() + row * dimensions);
  rows.resize(rows.size() / width * dimensions);
  if (normalized) normalize_rows(rows, dimensions);
}

SentenceEmbedder::SentenceEmbedder(
    const std::string& folder, int64_t rows, const ForwardOptions& options, const std::vector<AdapterFolder>& adapters)
    : SentenceEmbedder(open_encoder(folder, adapters), read_sentence_pooling(folder), rows, options) {}

SentenceEmbedder::SentenceEmbedder(PretrainedModel model, const SentencePooling& pooling, int64_t rows,
    ForwardOptions options, const LoadWeights& load)
    : model_(std::move(model)), encoder_(encoder_of(model_)), normalized_(pooling.normalized) {
  const std::string& folder = model_.folder;
  const EncoderConfig& config = encoder_.config;
  // A few sentences need not wait for a whole batch.
  for (const int64_t few : {1, 4})
    if (few < rows) rows_.push_back(few);
  rows_.push_back(rows);
  SentenceEncoder* const own = sentence_encoder(model_);
  if (own) set_pooling(model_, pooling);
  width_ = own ? own->width() : config.width;
  if (pooling.dimensions > 0) width_ = std::min(width_, pooling.dimensions);
  max_tokens_ = pooling.max_tokens > 0 ? std::min(pooling.max_tokens, config.max_seq_len) : config.max_seq_len;
  lengths_ = doubling_sizes(16, max_tokens_);
  std::vector<Forward::Function> functions;
  for (const int64_t planned : rows_)
    for (const int64_t length : lengths_)
      functions.emplace_back([this, own, kind = pooling.kind, planned, length](Trace& trace) {
        const Tensor tokens = trace.input("tokens", {DType::kI32, {planned, length}});
        const Tensor lengths = trace.input("lengths", {DType::kI32, {planned}});
        trace.graph().output("embeddings",
            own ? own->logits(tokens, lengths) : sentence_embeddings(encoder_, tokens, lengths, normalized_, kind));
      });
  options.quantization = quantization_of(folder, options.quantization);
  options.pack_weights = !is_packed(folder);  // processes share the pages of a packed file
  forward_ = std::make_unique<Forward>(*model_.module, functions, options);
  forward_->load(folder, [&](const ParameterLayout& layout, const ParameterTarget& parameters) {
    load ? load(layout, parameters) : load_parameters(model_, layout, parameters);
  });
}

int64_t SentenceEmbedder::padded_length(int64_t tokens) const {
  const auto found = std::ranges::lower_bound(lengths_, tokens);
  return found == lengths_.end() ? max_tokens_ : *found;
}

std::vector<float> SentenceEmbedder::embed(std::span<const std::vector<int32_t>> sentences) {
  std::vector<size_t> order = numbers_below<size_t>(sentences.size());
  std::ranges::stable_sort(order, {}, [&](size_t i) { return sentences[i].size(); });
  const auto width = static_cast<size_t>(width_), most = static_cast<size_t>(rows_.back());
  std::vector<float> result(sentences.size() * width);
  for (size_t first = 0; first < order.size(); first += most) {
    const std::span<const size_t> batch(order.data() + first, std::min(most, order.size() - first));
    const auto planned = std::ranges::lower_bound(rows_, std::ssize(batch)) - rows_.begin();
    const auto rows = static_cast<size_t>(rows_[planned]);
    const auto longest = static_cast<int64_t>(sentences[batch.back()].size());
    if (longest > max_tokens_) fail_user("a sentence of ", longest, " tokens is longer than the model's ", max_tokens_);
    const auto shape = std::ranges::lower_bound(lengths_, longest) - lengths_.begin();
    const auto length = static_cast<size_t>(lengths_[shape]);
    std::vector<int32_t> tokens(rows * length, 0), lengths(rows, 1);  // rows beyond the batch: one token each
    for (size_t row = 0; row < batch.size(); ++row) {
      const std::vector<int32_t>& sentence = sentences[batch[row]];
      std::ranges::copy(sentence, tokens.begin() + row * length);
      lengths[row] = static_cast<int32_t>(sentence.size());
    }
    forward_->set("tokens", tokens);
    forward_->set("lengths", lengths);
    const auto plan = static_cast<size_t>(planned) * lengths_.size() + static_cast<size_t>(shape);
    const std::span<const float> embeddings = forward_->run(plan).output("embeddings");
    const size_t whole = embeddings.size() / rows;  // numbers of a row
    if (std::ranges::any_of(embeddings.first(batch.size() * whole), [](float value) { return std::isnan(value); }))
      fail_user("a sentence's embedding is not of numbers (NaN): the model's weights are broken");
    for (size_t row = 0; row < batch.size(); ++row)
      std::ranges::copy(embeddings.subspan(row * whole, width), result.begin() + (batch[row] * width));
  }
  forward_->check_weights();
  return result;
}
}  // namespace linnet
