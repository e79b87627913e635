#include "training/run/config_choice.h"
#include <tuple>
#include "base/fail.h"
#include "base/files.h"
#include "data/examples/text/record_reader.h"
#include "models/families/pretrained.h"
#include "training/run/run_folder.h"

namespace linnet {
namespace {
// --data: the file or folder that a task reads. Clears validation and test examples, which would not fit it.
void set_data(Config& config, const std::string& path) {
  DataConfig& data = config.data;
  data.data_dir.clear();
  for (std::string* file : data_files(config)) file->clear();
  const TaskRow& task = task_row(config);
  if (task.kind == TaskKind::kImages && (has_records(path) || std::filesystem::is_regular_file(path)))
    data.train_tsv = path;
  else data.*task.data = path;
  data.task = task.data_task;
}

std::string config_path(const std::string& config) {
  const RunFolder run(config);
  if (run.has_config()) return run.config_path();
  if (is_pretrained_folder(config))
    fail_user("'", config, "' is a model folder, not a configuration; --set model.from=", config,
        " with a preset trains it on (see `linnet presets`)");
  if (std::filesystem::is_directory(config))
    fail_user("'", config,
        "' is a folder without config.toml; a run that was stopped before it began is begun with its ",
        "first command again");
  for (const char* ending : {".tsv", ".csv", ".txt", ".jsonl", ".gz", ".json"})
    if (config.ends_with(ending))
      fail_user("'", config, "' is no configuration; data come behind a preset: linnet train PRESET --data ", config);
  return config;
}
}  // namespace

Config ConfigChoice::load(bool resume) const {
  Config loaded = load_config(config_path(config));
  if (source.empty() != target.empty()) fail_user("--source and --target go together");
  if (!source.empty() && !data.empty()) fail_user("give either --data or --source and --target");
  if (!data.empty()) set_data(loaded, data);
  if (!source.empty()) {
    set_data(loaded, "");
    loaded.data.task = "text";
    loaded.data.train_source = source;
    loaded.data.train_target = target;
  }
  for (const std::string& setting : settings) set_value(loaded, setting);
  std::vector<std::string> all_settings = settings;
  const std::string ending = task_row(loaded).data == &DataConfig::text ? "_text=" : "_tsv=";
  if (!valid.empty()) set_value(loaded, all_settings.emplace_back("valid" + ending + valid));
  if (!test.empty()) set_value(loaded, all_settings.emplace_back("test" + ending + test));
  for (const auto& [option, key, value] : {std::tuple{"--steps", "max_steps", &steps},
           {"--epochs", "max_epochs", &epochs}, {"--batch", "batch_size", &batch},
           {"--lr", "learning_rate", &learning_rate}, {"--text-column", "text_column", &text_column},
           {"--pair-column", "pair_column", &pair_column}, {"--label-column", "label_column", &label_column}})
    if (*value) set_value(loaded, std::string(key) + "=" + **value, std::string(option) + " " + **value);
  const auto sets = [&](const char* key) {
    return std::ranges::any_of(settings, [&](const std::string& one) { return one.find(key) != one.npos; });
  };
  double& last_rate = loaded.train.final_learning_rate;  // a preset's may be above the rate that is asked for
  if (learning_rate && !sets("final_learning_rate=") && last_rate > loaded.train.learning_rate)
    last_rate = loaded.train.learning_rate / 10;
  if (steps && !epochs && !sets("max_epochs=")) loaded.train.max_epochs = 0;  // a preset's could end it before
  if (!parallel.empty()) set_value(loaded, "parallel=" + parallel, "--parallel " + parallel);
  if (!memory.empty()) set_value(loaded, "memory=" + memory, "--memory " + memory);
  if (threads > 0) loaded.train.threads = threads;
  if (!isa.empty()) loaded.train.isa = isa;
  if (!device.empty()) loaded.train.device = device;
  validate(loaded);
  for (const std::string& setting : all_settings) check_setting_belongs(loaded, setting);
  // Not checked: presets and runs, whose keys the user did not choose.
  if (!resume && !is_preset(config) && !is_folder(config)) check_keys_belong(loaded);
  return loaded;
}

void ConfigChoice::check_preset_files(const Config& loaded) const {
  if (!is_preset(config)) return;
  const Config preset = load_config(config);
  const auto check = [&](const std::string& path, const std::string& way) {
    if (!file_exists(path)) fail_user("the preset \"", config, "\" reads '", path, "', which is not there; ", way);
  };
  const std::string& from = loaded.model.from;
  if (!from.empty() && from == preset.model.from) check(from, "--set model.from=FOLDER names the model to start from");
  const std::string& folder = loaded.data.data_dir;
  if (!data.empty() || !source.empty() || folder != preset.data.data_dir) return;
  if (task_kind(loaded) == TaskKind::kImages && !folder.empty() && loaded.data.train_tsv.empty())
    check(folder, "--data FOLDER names your own");
  for (std::string DataConfig::*file :
      {&DataConfig::train_source, &DataConfig::train_target, &DataConfig::train_tsv, &DataConfig::text})
    if (const std::string& path = loaded.data.*file; !path.empty() && path == preset.data.*file)
      check(data_path(loaded.data, path), folder.empty()
                                              ? "--data FILE names your own"
                                              : "--set data.dir=FOLDER names its folder, --data FILE your own");
}
}  // namespace linnet
