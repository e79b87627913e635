#include "app/cli/commands.h"
#include "base/error.h"
#include "config/config_keys.h"
#include "engine/kernels/isa.h"

namespace linnet {

namespace {

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& preset : presets()) names.emplace_back(preset.name);
  return names;
}

std::vector<std::string> key_starts() {
  std::vector<std::string> starts;
  for (const ConfigKey& key : config_keys()) starts.push_back(std::string(key.name) + "=");
  return starts;
}

}  // namespace

void ConfigArguments::declare(Command& command) {
  command
      .take("config", config,
            "a TOML file, the name of a preset (see `linnet presets`), or a run folder for its configuration",
            {.required = true, .type = "FILE", .suggestions = preset_names()})
      .take("--set", settings, "change one key of the configuration: --set key=value",
            {.type = "KEY=VALUE", .suggestions = key_starts()})
      .take("--steps", steps, "short for --set max_steps=N --set max_epochs=0", {.type = "N"})
      .take("--epochs", epochs, "short for --set max_epochs=N", {.type = "N"})
      .take("--batch", batch, "short for --set batch_size=N", {.type = "N"})
      .take("--lr", learning_rate, "short for --set learning_rate=RATE", {.type = "RATE"})
      .take("--data", data,
            "what to train on: a file of source<TAB>target or text<TAB>label (or .csv, .jsonl), a text, a folder of "
            "texts "
            "or of images",
            {.type = "FILE"})
      .take("--text-column", text_column,
            "short for --set text_column=NAME: the column of a table with the text, or of "
            "translations the source",
            {.type = "NAME"})
      .take("--pair-column", pair_column, "the same of the second text of a pair", {.type = "NAME"})
      .take("--label-column", label_column, "the same of the label, or of translations the target", {.type = "NAME"})
      .take("--source", source, "training text, one sentence a line, plain or .gz", {.type = "FILE"})
      .take("--target", target, "its translation, line by line", {.type = "FILE"})
      .take("--memory", memory,
            "short for --set memory=SIZE: the most memory that training may take, such as 2GiB; layers are computed "
            "again until it is kept",
            {.type = "SIZE"})
      .take_threads(threads)
      .take_device(device, "cpu, cuda or cuda:N")
      .take_isa(isa);
}

Config ConfigArguments::load(bool resume) const {
  Config loaded = ConfigChoice::load(resume);
  force_isa(loaded.train.isa);
  return loaded;
}

}  // namespace linnet
