#include "run/pretrained_run.h"

#include "base/files.h"
#include "pretrained/static_scales.h"
#include "run/run_folder.h"
#include "train/checkpoint.h"

namespace linnet {
namespace {

constexpr const char *kFolder = "/pretrained", *kConfigFile = "/pretrained/config.json", *kTokenizer = "tokenizer";

}  // namespace

void save_pretrained_assets(const std::string& folder, const PretrainedModel& model,
                            const PretrainedTokenizer& tokenizer) {
  tokenizer.save(folder, kTokenizer);
  make_directories(folder + kFolder);
  model.config.save(folder + kConfigFile);
}

PretrainedModel open_run_model(const std::string& folder) { return new_pretrained(ConfigFile(folder + kConfigFile)); }

void refuse_adapters(const std::string& run, const std::vector<AdapterFolder>& adapters) {
  if (adapters.empty()) return;
  fail_user("--adapter reads adapters beside a model folder, and '" + run + "' is a run; `linnet export " + run +
            " --out FOLDER` makes a model folder of it");
}

std::unique_ptr<PretrainedTokenizer> open_run_tokenizer(const std::string& folder) {
  return load_pretrained_tokenizer(folder + "/" + kTokenizer);
}

void export_adapters(const std::string& folder, const std::string& out) {
  const Config config = RunFolder(folder).load_config();
  if (config.lora.rank == 0) fail_user("run '" + folder + "' has no adapters: it was trained without lora.rank");
  const PretrainedModel model = open_run_model(folder);
  const ParameterLayout layout(*model.module);
  std::vector<float> parameters(static_cast<size_t>(layout.parameter_count()));
  load_model(RunFolder(folder).best_weights(), layout, parameters.data());
  save_adapters(model, layout, parameters.data(), config.model.from, out);
}

void export_pretrained_run(const std::string& folder, const std::string& out) {
  const PretrainedModel model = open_run_model(folder);
  const ParameterLayout layout(*model.module);
  std::vector<float> parameters(static_cast<size_t>(layout.parameter_count()));
  load_model(RunFolder(folder).best_weights(), layout, parameters.data());
  save_pretrained(model, layout, parameters.data(), out, {.files = open_run_tokenizer(folder)->files()});
  if (const auto scales = read_static_scales(folder)) write_static_scales(out, *scales);
}

void load_initial_weights(Trainer& trainer, const PretrainedModel& model, const Config& config) {
  trainer.load_parameters([&](const ParameterTarget& parameters) {
    load_parameters(model, trainer.layout(), parameters, static_cast<uint64_t>(config.train.seed));
  });
}

}  // namespace linnet
