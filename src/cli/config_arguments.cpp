#include "base/error.h"
#include "cli/commands.h"
#include "kernels/isa.h"

namespace linnet {

void ConfigArguments::declare(Command& command) {
  command.take("config", config, "a TOML file, or the name of a preset (see `linnet presets`)", {.required = true})
      .take("--set", settings, "change one key of the configuration: --set key=value", {.type = "KEY=VALUE"})
      .take("--source", source, "training text, one sentence a line, plain or .gz", {.type = "FILE"})
      .take("--target", target, "its translation, line by line", {.type = "FILE"})
      .take_threads(threads)
      .take_device(device, "cpu, cuda or cuda:N")
      .take_isa(isa);
}

Config ConfigArguments::load(bool resume) const {
  Config loaded = load_config(config);
  if (source.empty() != target.empty()) fail_user("--source and --target go together");
  if (!source.empty()) {
    loaded.data.task = "text";
    loaded.data.data_dir.clear();
    loaded.data.train_tsv.clear();
    loaded.data.train_source = source;
    loaded.data.train_target = target;
    // Another text's validation and test files would not fit this one.
    for (std::string* other : {&loaded.data.valid_source, &loaded.data.valid_target, &loaded.data.valid_tsv,
                               &loaded.data.test_source, &loaded.data.test_target, &loaded.data.test_tsv})
      other->clear();
  }
  for (const std::string& setting : settings) set_value(loaded, setting);
  if (threads > 0) loaded.train.threads = threads;
  if (!isa.empty()) loaded.train.isa = isa;
  if (!device.empty()) loaded.train.device = device;
  validate(loaded);
  for (const std::string& setting : settings) check_setting_belongs(loaded, setting);
  // A preset's keys are not the user's, who may have chosen another architecture for it. And a run made before such
  // keys were refused can still be resumed.
  if (!resume && !is_preset(config)) check_keys_belong(loaded);
  force_isa(loaded.train.isa);
  return loaded;
}

}  // namespace linnet
