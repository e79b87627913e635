#include "training/run/pretrained_run.h"
#include "base/fail.h"
#include "base/files.h"
#include "models/families/sentence_embedder.h"
#include "models/nn/model_file.h"
#include "training/run/run_folder.h"

namespace linnet {
constexpr const char *kConfigFile = "/config.json", *kTokenizer = "tokenizer", *kGeneration = "generation_config.json";

std::string model_description(const std::string& run) { return run + "/pretrained"; }

void save_pretrained_assets(
    const std::string& folder, const PretrainedModel& model, const PretrainedTokenizer& tokenizer) {
  tokenizer.save(folder, kTokenizer);
  const std::string description = model_description(folder);
  make_directories(description);
  model.config.save(description + kConfigFile);
  if (!dynamic_cast<const SentenceEncoder*>(model.module.get())) return;
  for (const auto& [name, text] : sentence_files(model)) {
    const std::filesystem::path path = std::filesystem::path(description) / name;
    make_directories(path.parent_path().string());
    write_file_atomically(path.string(), text);
  }
}

void save_description(const PretrainedModel& model, const ConfigFile& config, const std::string& run) {
  const std::string description = model_description(run), path = model.folder + "/" + kGeneration;
  make_directories(description);
  config.save(description + kConfigFile);
  if (!model.folder.empty() && file_exists(path))
    write_file_atomically(description + "/" + kGeneration, read_file(path));
}

std::map<std::string, std::string> generation_files(const std::string& run) {
  const std::string path = model_description(run) + "/" + kGeneration;
  if (!file_exists(path)) return {};
  return {{kGeneration, read_file(path)}};
}

GenerationConfig run_generation_config(const std::string& run) {
  return generation_files(run).empty() ? GenerationConfig{} : read_generation_config(model_description(run));
}

PretrainedModel open_run_model(const std::string& folder) {
  PretrainedModel model = new_pretrained(ConfigFile(model_description(folder) + kConfigFile));
  if (dynamic_cast<SentenceEncoder*>(model.module.get())) take_pooling(model, model_description(folder));
  return model;
}

std::optional<Config> run_config(const std::string& folder) {
  const RunFolder run(folder);
  if (!run.has_config() && is_pretrained_folder(folder)) return {};
  return run.load_config();
}

bool is_run_of(const std::string& folder, TaskKind kind) {
  const RunFolder run(folder);
  return run.has_config() && task_kind(run.load_config()) == kind;
}

bool is_model_folder(const std::string& folder, FamilyKind kind, std::initializer_list<ModelHead> heads) {
  if (RunFolder(folder).has_config() || !is_pretrained_folder(folder)) return false;
  const ConfigFile config(folder + kConfigFile);
  const std::optional<ModelHead> head = named_head(config);
  return (heads.size() == 0 || (head && contains(heads, *head))) && find_family(config).kind == kind;
}

LoadWeights weights_of(const std::string& folder, const PretrainedModel* model) {
  return [folder, model](const ParameterLayout& layout, const ParameterTarget& parameters) {
    if (model) load_parameters(*model, layout, parameters);
    else load_model(RunFolder(folder).best_weights(), layout, parameters);
  };
}

void refuse_adapters(const std::string& run, const std::vector<AdapterFolder>& adapters) {
  if (adapters.empty()) return;
  fail_user("--adapter reads adapters beside a model folder, and '", run, "' is a run; `linnet export ", run,
      " --out FOLDER` makes a model folder of it");
}

std::unique_ptr<PretrainedTokenizer> open_run_tokenizer(const std::string& folder) {
  return load_pretrained_tokenizer(folder + "/" + kTokenizer);
}
}  // namespace linnet
