#include <cstdio>
#include "app/cli/commands.h"
#include "models/families/pretrained.h"

namespace linnet {
namespace {

struct ConvertArguments {
  std::string from, to, dtype, architecture, adapter;
  double shard_gb = 5;
};

int convert(const ConvertArguments& arguments) {
  SaveOptions options;
  if (!arguments.dtype.empty()) options.dtype = file_dtype(arguments.dtype);
  options.max_shard_bytes = static_cast<uint64_t>(arguments.shard_gb * 1e9);
  const bool merges = !arguments.adapter.empty();
  const PretrainedModel model = open_with_adapters(
      arguments.from, merges ? std::vector<AdapterFolder>{{"", arguments.adapter}} : std::vector<AdapterFolder>{},
      {.architecture = arguments.architecture});
  const ParameterLayout layout(*model.module);
  std::vector<float> parameters(static_cast<size_t>(layout.parameter_count()));
  load_parameters(model, layout, parameters.data());
  if (!merges)
    for (const std::string& name : model.fresh) std::fprintf(stderr, "new: %s\n", name.c_str());
  for (const std::string& name : model.unused) std::fprintf(stderr, "left out: %s\n", name.c_str());
  save_pretrained(model, layout, parameters.data(), arguments.to, options);
  return 0;
}

}  // namespace

void add_convert_command(Command& linnet) {
  auto arguments = std::make_shared<ConvertArguments>();
  linnet.subcommand("convert", "read a model folder and write it in another form")
      .take("MODEL", arguments->from, "a model folder (config.json, model.safetensors)", {.required = true})
      .take("OUT", arguments->to, "the folder to write", {.required = true})
      .take("--dtype", arguments->dtype, "of all weights; otherwise as they are",
            {.choices = {"F32", "F16", "BF16", "F64"}})
      .take("--shard-gb", arguments->shard_gb, "the most that one file holds",
            {.type = "GB", .least = 1e-6, .most = 1e6, .show_default = true})
      .take("--architecture", arguments->architecture, "another of the family, e.g. BertForMaskedLM")
      .take("--merge", arguments->adapter, "a folder of LoRA adapters (PEFT's) to add to the weights", {.type = "DIR"})
      .does([arguments] { return convert(*arguments); });
}

}  // namespace linnet
