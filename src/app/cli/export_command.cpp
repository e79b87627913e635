#include <cstdio>
#include <filesystem>
#include "app/cli/commands.h"
#include "base/fail.h"
#include "base/text.h"
#include "engine/plan/state_names.h"
#include "models/families/gguf.h"
#include "models/families/static_scales.h"
#include "onnx/sources.h"
#include "tasks/images/image_session.h"
#include "tasks/language/language_model.h"
#include "tasks/task_table.h"
#include "tasks/texts/onnx_classifier.h"
#include "tasks/translation/translation_model.h"
#include "training/run/pretrained_run.h"
#include "training/run/run_folder.h"

namespace linnet {
namespace {
namespace fs = std::filesystem;

struct ExportArguments {
  std::string run, out, adapter, onnx, precision = "fp32", gguf, type = "f16";
  int64_t opset = 17;
  bool overwrite = false, no_cache = false, joined_past = false;
};

OnnxFolderOptions options_of(const ExportArguments& arguments) {
  const OnnxPrecision precision = onnx_precision(arguments.precision);
  OnnxFolderOptions options{.onnx = {.opset = arguments.opset, .precision = precision},
      .files = {.cache = !arguments.no_cache, .joined_past = arguments.joined_past}};
  if (precision == OnnxPrecision::kInt8Qdq)
    if (const auto scales = read_static_scales(arguments.run)) options.onnx.input_scales = scales->input_scales;
  return options;
}

struct LoadedFolder {
  explicit LoadedFolder(const std::string& folder)
      : model(open_pretrained(folder)), layout(*model.module),
        parameters(static_cast<size_t>(layout.parameter_count())) {
    load_parameters(model, layout, parameters.data());
  }
  PretrainedModel model;
  ParameterLayout layout;
  std::vector<float> parameters;
};

void export_model_folder(const std::string& folder, const std::string& out, const OnnxFolderOptions& options) {
  const LoadedFolder loaded(folder);
  export_onnx_folder(loaded.model, loaded.layout, loaded.parameters.data(), out, options);
}

// A configuration for optimum, whose classes know models by Transformers' family names and read generation settings
// from it. Marian is the family with these sizes.
ConfigFile translation_config_file(const OpenedTranslationModel& opened) {
  const auto& t = dynamic_cast<const Transformer&>(*opened.model).config;
  const SpecialTokens& special = opened.tokenizers.special;
  ConfigFile file;
  file.set("architectures", std::vector<std::string>{"MarianMTModel"});
  file.set("model_type", "marian");
  file.set("is_encoder_decoder", true);
  const std::pair<const char*, int64_t> numbers[] = {{"vocab_size", t.source_vocab},
      {"decoder_vocab_size", t.target_vocab}, {"d_model", t.d_model}, {"encoder_layers", t.num_encoder_layers},
      {"decoder_layers", t.num_decoder_layers}, {"encoder_attention_heads", t.num_heads}, {"encoder_ffn_dim", t.d_ff},
      {"decoder_attention_heads", t.num_heads}, {"decoder_ffn_dim", t.d_ff}, {"max_position_embeddings", t.max_seq_len},
      {"pad_token_id", special.pad}, {"decoder_start_token_id", special.begin}, {"eos_token_id", special.end}};
  for (const auto& [name, number] : numbers) file.set(name, number);
  return file;
}

// A plain Transformer's run, which no model folder can hold.
void export_translation_onnx(
    const OpenedTranslationModel& opened, const std::string& out, const OnnxFolderOptions& options) {
  const ParameterLayout layout(*opened.model);
  const std::vector<float> parameters = flat_weights(layout, opened.weights());
  make_directories(out);
  for (const OnnxFile& file : onnx_files(*opened.model, options.files))
    save_onnx(layout, parameters.data(), file, out, options.onnx);
  translation_config_file(opened).save(out + "/config.json");
  opened.tokenizers.save(out);
}

void export_image_onnx(
    const std::string& run, const Config& config, const std::string& out, const OnnxOptions& options) {
  const ImageFormat format = ImageFormat::load(run);
  ImageSession session(config, format, /*training=*/false);
  take_run_weights(session, run);
  make_directories(out);
  for (const OnnxFile& file : onnx_files(session.image_model()))
    save_onnx(session.layout, session.store.as<float>(state::kParameters), file, out, options);
  format.save(out);
}

// The beginning of a path beside `out`; makes the parent folder.
std::string folder_beside(const std::string& out) {
  const fs::path parent = fs::path(out).parent_path();
  if (!parent.empty()) make_directories(parent.string());
  return out + ".folder.";
}

void export_onnx(const ExportArguments& arguments) {
  const OnnxFolderOptions options = options_of(arguments);
  const RunFolder run(arguments.run);
  if (!run.has_config()) return export_model_folder(arguments.run, arguments.onnx, options);
  const Config config = run.load_config();
  if (task_kind(config) == TaskKind::kImages)
    return export_image_onnx(arguments.run, config, arguments.onnx, options.onnx);
  if (task_kind(config) == TaskKind::kTranslation) {
    const OpenedTranslationModel opened = open_translation_model(arguments.run);
    if (!opened.pretrained) return export_translation_onnx(opened, arguments.onnx, options);
  }
  if (task_kind(config) == TaskKind::kTexts && is_onnx_run(arguments.run))
    return export_onnx_run(arguments.run, arguments.onnx, options.onnx.precision,
        arguments.opset == ExportArguments{}.opset ? 0 : arguments.opset);
  // A run's tokenizer has other formats: the exported model folder has those that other programs read.
  const TemporaryFolder folder(folder_beside(arguments.onnx));
  task_actions(config).export_model(arguments.run, folder.path());
  export_model_folder(folder.path(), arguments.onnx, options);
}

void export_gguf(const ExportArguments& arguments) {
  const GgufBlocks* type = find_gguf_blocks(upper_ascii(arguments.type));
  if (!type || (type->format && !type->write))
    fail_user("--type ", arguments.type, ": Linnet writes f32, f16, bf16, q8_0 and q4_0");
  if (!arguments.gguf.ends_with(kGgufEnding))
    fail_user("--gguf '", arguments.gguf, "': the name of such a file ends in ", kGgufEnding);
  if (file_exists(arguments.gguf) && !arguments.overwrite)
    fail_user("--gguf '", arguments.gguf, "' is there already; name another file, or replace it with --overwrite");
  const RunFolder run(arguments.run);
  std::string folder = arguments.run;
  std::optional<TemporaryFolder> temporary;
  if (run.has_config()) {
    temporary.emplace(folder_beside(arguments.gguf));
    // The file's "general.name" is the name of the folder.
    folder = temporary->path() + "/" + fs::path(arguments.gguf).filename().string() + ".folder.tmp";
    task_actions(run.load_config()).export_model(arguments.run, folder);
  }
  const LoadedFolder loaded(folder);
  save_gguf_model(loaded.model, loaded.layout, loaded.parameters.data(), arguments.gguf, *type);
}

OpenedLanguageModel open_decoder(const std::string& folder) {
  if (is_pretrained_folder(folder) && open_pretrained(folder).family->kind != FamilyKind::kDecoder)
    fail_user("'", folder, "' is a model folder, not a run: `linnet convert` writes it in another form");
  return open_language_model(folder);
}

// The folder must not be another kind's, nor, unless `overwrite`, have files to be written, likely another model's.
void check_free(const char* option, const std::string& folder, bool overwrite, const char* kind,
    std::initializer_list<std::string> others, std::initializer_list<std::string> written) {
  const std::string named = std::string(option) + " '" + folder + "' ";
  for (const std::string& name : others)
    if (file_exists(folder + "/" + name)) fail_user(named, "is ", kind, "; name another one");
  for (const std::string& name : written)
    if (!overwrite && file_exists(folder + "/" + name))
      fail_user(named, "holds ",
          name == "adapter_config.json" ? "an adapter already" : "a model already (" + name + ")",
          "; name another folder, or replace it with --overwrite");
}

int export_run(const ExportArguments& arguments) {
  const auto& [run, out, adapter, onnx, precision, gguf, type, opset, overwrite, no_cache, joined_past] = arguments;
  if (!out.empty() + !onnx.empty() + !adapter.empty() + !gguf.empty() != 1)
    fail_user("give one of --out DIR, --adapter DIR, --onnx DIR and --gguf FILE");
  if (!gguf.empty()) {
    export_gguf(arguments);
  } else if (!adapter.empty()) {
    check_free("--adapter", adapter, overwrite, "a run or a model folder", {"config.toml", "config.json"},
        {"adapter_config.json"});
    export_adapters(run, adapter);
  } else if (!onnx.empty()) {
    check_free("--onnx", onnx, overwrite, "a run or a model folder", {"config.toml", "model.safetensors"},
        {"model.onnx", "encoder_model.onnx"});
    export_onnx(arguments);
  } else {
    check_free("--out", out, overwrite, "a run folder", {"config.toml"},
        {"config.json", "model.safetensors", "model.safetensors.index.json"});
    const RunFolder folder(run);
    if (folder.has_config()) task_actions(folder.load_config()).export_model(run, out);
    else export_language_model(open_decoder(run), out);
  }
  return 0;
}
}  // namespace

void add_export_command(Command& linnet) {
  auto [command, arguments] = linnet.subcommand("export",
      "write a model as a folder that other programs load (Hugging Face's layout, or ONNX), or a file of llama.cpp",
      export_run);
  command.take("run", arguments.run, "a run folder, or with --onnx or --gguf a model folder", {.required = true})
      .take("--out", arguments.out, "the folder to write, in Hugging Face's layout", {.type = "DIR"})
      .take("--adapter", arguments.adapter, "the folder to write a run's LoRA adapters in, in PEFT's layout",
          {.type = "DIR"})
      .take("--onnx", arguments.onnx, "the folder to write in ONNX", {.type = "DIR"})
      .take("--gguf", arguments.gguf, "the file to write for llama.cpp, of a decoder", {.type = "FILE"})
      .take("--type", arguments.type, "of a GGUF file's matrices: f32, f16, bf16, q8_0 or q4_0", {.show_default = true})
      .take("--opset", arguments.opset, "of ONNX", {.least = 14, .most = 18, .show_default = true})
      .take("--precision", arguments.precision,
          "of ONNX weights and products: fp32, fp16, int8-dynamic (products of 8-bit numbers) or int8-qdq (weights "
          "of 8 bits; of a model that `linnet quantize` has calibrated, products of 8-bit numbers)",
          {.show_default = true})
      .flag("--no-cache", arguments.no_cache, "ONNX decoders without keys and values of earlier tokens")
      .flag("--joined-past", arguments.joined_past,
          "ONNX of GPT-2 with keys and values in one tensor: ONNX Runtime's optimizer fuses its attention")
      .flag("--overwrite", arguments.overwrite, "replace a model that is there");
}
}  // namespace linnet
