#include <cstdio>
#include <memory>
#include "app/cli/commands.h"
#include "base/error.h"
#include "base/files.h"
#include "base/packed_files.h"
#include "config/config.h"
#include "models/families/pretrained.h"
#include "models/nn/model_file.h"
#include "serving/loaded/pack.h"
#include "tasks/images/image_session.h"
#include "training/run/run_folder.h"

namespace linnet {
namespace {

struct PackArguments {
  std::string model, out;
  QuantizationWords words;
  bool overwrite = false;
};

// Images are told apart by models of their own; the weights of a run are packed as they are unless they are quantized.
PackReport pack_any(const PackArguments& arguments) {
  const auto& [folder, out, words, overwrite] = arguments;
  if (!is_packed(folder) && is_vit_folder(folder)) {
    const PretrainedModel model = open_pretrained(folder);
    const auto load = [&](const ParameterLayout& layout, const ParameterTarget& parameters) {
      load_parameters(model, layout, parameters);
    };
    return pack_model(folder, out, words, {*model.module, load, &model});
  }
  const RunFolder run(folder);
  if (is_packed(folder) || !run.has_config() || !words.parsed().any()) return pack_model(folder, out, words);
  const Config config = run.load_config();
  if (task_kind(config) != TaskKind::kImages) return pack_model(folder, out, words);
  const std::unique_ptr<ImageModel> model = make_image_model(config, ImageFormat::load(folder));
  return pack_model(folder, out, words, {*model, [&](const ParameterLayout& layout, const ParameterTarget& parameters) {
                                           load_model(run.best_weights(), layout, parameters);
                                         }});
}

int pack(const PackArguments& arguments) {
  if (!arguments.out.ends_with(kPackedEnding))
    fail_user("-o " + arguments.out + ": the name of a packed model ends in " + kPackedEnding);
  if (file_exists(arguments.out) && !arguments.overwrite)
    fail_user("'" + arguments.out + "' exists; --overwrite replaces it");
  const PackReport report = pack_any(arguments);
  std::printf("%s: %zu tensors, %zu files, %.1f MB; weights %s\n", arguments.out.c_str(), report.tensors, report.files,
              static_cast<double>(report.bytes) / 1e6, report.weights.c_str());
  return 0;
}

}  // namespace

void add_pack_command(Command& linnet) {
  auto arguments = std::make_shared<PackArguments>();
  linnet.subcommand("pack", "put a model into one file, which every command takes in place of its folder")
      .take("MODEL", arguments->model, "a run or a model folder", {.required = true})
      .take("-o,--out", arguments->out, "the file to write, which ends in .linnet", {.required = true, .type = "FILE"})
      .take_packed_quantize(arguments->words.quantize, arguments->words.keep)
      .take("--tables", arguments->words.tables,
            "embeddings, and heads that share their weight, in another way than --quantize says",
            {.choices = quantization_words()})
      .flag("--overwrite", arguments->overwrite, "replace a file that is there")
      .does([arguments] { return pack(*arguments); });
}

}  // namespace linnet
