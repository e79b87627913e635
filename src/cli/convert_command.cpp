#include <CLI/CLI.hpp>
#include <cstdio>

#include "base/error.h"
#include "cli/commands.h"
#include "pretrained/pretrained.h"

namespace linnet {
namespace {

struct ConvertArguments {
  std::string from, to, dtype, architecture;
  double shard_gb = 5;
};

int convert(const ConvertArguments& arguments) {
  SaveOptions options;
  if (!arguments.dtype.empty()) options.dtype = file_dtype(arguments.dtype);
  options.max_shard_bytes = static_cast<uint64_t>(std::max(arguments.shard_gb, 1e-6) * 1e9);
  const PretrainedModel model = open_pretrained(arguments.from, {.architecture = arguments.architecture});
  const ParameterLayout layout(*model.module);
  std::vector<float> parameters(static_cast<size_t>(layout.parameter_count()));
  load_parameters(model, layout, parameters.data());
  for (const std::string& name : model.fresh) std::fprintf(stderr, "new: %s\n", name.c_str());
  for (const std::string& name : model.unused) std::fprintf(stderr, "left out: %s\n", name.c_str());
  save_pretrained(model, layout, parameters.data(), arguments.to, options);
  return 0;
}

}  // namespace

void add_convert_command(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("convert", "read a model folder and write it in another form");
  auto arguments = std::make_shared<ConvertArguments>();
  command->add_option("MODEL", arguments->from, "a model folder (config.json, model.safetensors)")->required();
  command->add_option("OUT", arguments->to, "the folder to write")->required();
  command->add_option("--dtype", arguments->dtype, "of all weights; otherwise as they are")
      ->check(CLI::IsMember({"F32", "F16", "BF16", "F64"}));
  command->add_option("--shard-gb", arguments->shard_gb, "the most that one file holds")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--architecture", arguments->architecture, "another of the family, e.g. BertForMaskedLM");
  command->callback([&action, arguments] { action = [arguments] { return convert(*arguments); }; });
}

}  // namespace linnet
