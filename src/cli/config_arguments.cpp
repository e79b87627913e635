#include <CLI/CLI.hpp>

#include "base/error.h"
#include "cli/commands.h"
#include "kernels/isa.h"

namespace linnet {

void ConfigArguments::declare(CLI::App& command, bool data_files) {
  command.add_option("config", config, "a TOML file, or the name of a preset (see `linnet presets`)")->required();
  command.add_option("--set", settings, "change one key of the configuration: --set key=value")
      ->take_all()
      ->expected(1)
      ->type_name("KEY=VALUE");
  if (data_files) {
    command.add_option("--source", source, "training text, one sentence a line, plain or .gz")->type_name("FILE");
    command.add_option("--target", target, "its translation, line by line")->type_name("FILE");
  }
  command.add_option("--threads", threads, "0: what the machine and its cgroup allow")->check(CLI::Range(0, 4096));
  command.add_option("--device", device, "cpu, cuda or cuda:N")->type_name("NAME");
  command.add_option("--isa", isa, "instruction set of the kernels (see `linnet info`)")->type_name("NAME");
}

Config ConfigArguments::load() const {
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
  force_isa(loaded.train.isa);
  return loaded;
}

}  // namespace linnet
