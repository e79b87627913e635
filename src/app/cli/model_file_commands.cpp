// `linnet convert`, `linnet pack` and `linnet quantize`.
#include <cstdio>
#include "app/cli/commands.h"
#include "app/cli/print-inl.h"
#include "base/packed_files.h"
#include "models/nn/model_file.h"
#include "serving/loaded/pack.h"
#include "tasks/calibration.h"
#include "tasks/images/image_session.h"
#include "training/run/run_folder.h"

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
  const PretrainedModel model = open_with_adapters(arguments.from,
      merges ? std::vector<AdapterFolder>{{"", arguments.adapter}} : std::vector<AdapterFolder>{},
      {.architecture = arguments.architecture});
  const ParameterLayout layout(*model.module);
  std::vector<float> parameters(layout.parameter_count());
  load_parameters(model, layout, parameters.data());
  if (!merges)
    for (const std::string& name : model.fresh) std::fprintf(stderr, "new: %s\n", name.c_str());
  for (const std::string& name : model.unused) std::fprintf(stderr, "left out: %s\n", name.c_str());
  save_pretrained(model, layout, parameters.data(), arguments.to, options);
  return 0;
}

struct PackArguments {
  std::string model, out;
  QuantizationWords words;
  bool overwrite = false;
};

// Image models have no model_kind(); a run's weights are packed as they are unless quantized.
PackReport pack_any(const PackArguments& arguments) {
  const auto& [folder, out, words, overwrite] = arguments;
  if (!is_packed(folder) && is_vit_folder(folder)) {
    const PretrainedModel model = open_pretrained(folder);
    return pack_model(folder, out, words, {*model.module, weights_of(folder, &model), &model});
  }
  const RunFolder run(folder);
  if (is_packed(folder) || !run.has_config() || !words.parsed().any()) return pack_model(folder, out, words);
  const Config config = run.load_config();
  if (task_kind(config) != TaskKind::kImages) return pack_model(folder, out, words);
  const std::unique_ptr<ImageModel> model = make_image_model(config, ImageFormat::load(folder));
  return pack_model(folder, out, words, {*model, weights_of(folder)});
}

int pack(const PackArguments& arguments) {
  if (!arguments.out.ends_with(kPackedEnding))
    fail_user("-o ", arguments.out, ": the name of a packed model ends in ", kPackedEnding);
  if (file_exists(arguments.out) && !arguments.overwrite)
    fail_user("'", arguments.out, "' exists; --overwrite replaces it");
  const PackReport report = pack_any(arguments);
  print("{}: {} tensors, {} files, {:.1f} MB; weights {}\n", arguments.out, report.tensors, report.files,
      megabytes(report.bytes), report.weights);
  return 0;
}

struct QuantizeArguments : CalibrationRequest {
  std::string method_name = "minmax", out;
};

int quantize(QuantizeArguments& arguments) {
  arguments.method = calibration_method(arguments.method_name);
  const StaticScales scales = calibrate(arguments);
  save_quantized(arguments.model, scales, arguments.out);
  print("{}: {} layers in static int8, scales by {} of {} examples\n", arguments.out, scales.input_scales.size(),
      scales.method, scales.examples);
  return 0;
}
}  // namespace

void add_convert_command(Command& linnet) {
  auto [command, arguments] = linnet.subcommand("convert", "read a model folder and write it in another form", convert);
  command.take("MODEL", arguments.from, "a model folder (config.json, model.safetensors)", {.required = true})
      .take("OUT", arguments.to, "the folder to write", {.required = true})
      .take("--dtype", arguments.dtype, "of all weights; otherwise as they are",
          {.choices = {"F32", "F16", "BF16", "F64"}})
      .take("--shard-gb", arguments.shard_gb, "the most that one file holds",
          {.type = "GB", .least = 1e-6, .most = 1e6, .show_default = true})
      .take("--architecture", arguments.architecture, "another of the family, e.g. BertForMaskedLM")
      .take("--merge", arguments.adapter, "a folder of LoRA adapters (PEFT's) to add to the weights", {.type = "DIR"});
}

void add_pack_command(Command& linnet) {
  auto [command, arguments] =
      linnet.subcommand("pack", "put a model into one file, which every command takes in place of its folder", pack);
  command.take("MODEL", arguments.model, "a run or a model folder", {.required = true})
      .take("-o,--out", arguments.out, "the file to write, which ends in .linnet", {.required = true, .type = "FILE"})
      .take_quantize(arguments.words.quantize, arguments.words.keep, /*packs=*/true)
      .take("--tables", arguments.words.tables,
          "embeddings, and heads that share their weight, in another way than --quantize says",
          {.choices = quantization_words()})
      .flag("--overwrite", arguments.overwrite, "replace a file that is there");
}

void add_quantize_command(Command& linnet) {
  auto [command, arguments] = linnet.subcommand("quantize",
      "find scales for static int8 on examples; commands then run the model in int8 unless --quantize says otherwise",
      quantize);
  command.take("MODEL", arguments.model, "a run or a model folder", {.required = true})
      .take("--calibrate", arguments.examples,
          "a file with an example on each line: a text (of a .tsv for a classifier what is before the first tab), "
          "for translation source<TAB>target; for images a folder of them",
          {.required = true, .type = "FILE"})
      .take("-o,--out", arguments.out,
          "the folder to write the model and its scales to; MODEL itself: the scales are added there",
          {.required = true, .type = "DIR"})
      .take("--method", arguments.method_name,
          "how far the 8 bits reach: minmax (the largest value seen; default), percentile (99.99% of the values) or "
          "entropy (the least change of their distribution)",
          {.choices = calibration_methods()})
      .take("--examples", arguments.most, "read so many examples at most (default 512)",
          {.type = "N", .least = kFewestExamples, .most = 1e9})
      .take("--keep", arguments.keep,
          "parameters that stay in fp32 (* stands for any characters); may be given several times", {.type = "NAME"})
      .take_threads(arguments.threads);
}
}  // namespace linnet
