// `linnet convert`, `linnet pack`, `linnet quantize`, `linnet import`, `linnet onnx` and `linnet export`.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include "app/cli/commands.h"
#include "app/cli/streams-inl.h"
#include "base/fail.h"
#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "models/families/gguf.h"
#include "models/families/static_scales.h"
#include "models/nn/model_file.h"
#include "onnx/network.h"
#include "onnx/save_onnx.h"
#include "serving/loaded/loaded_model.h"
#include "tasks/calibration.h"
#include "tasks/images/image_session.h"
#include "tasks/language/language_model.h"
#include "tasks/task_table.h"
#include "tasks/texts/onnx_classifier.h"
#include "tasks/translation/translation_model.h"
#include "training/run/pretrained_run.h"
#include "training/run/run_folder.h"

namespace linnet {
void print_network(const std::string& path, const OnnxNetwork& network) {
  print("{}: an ONNX network, {} nodes, {} parameters\n", path, network.model().graph.nodes.size(),
      network.parameter_count());
  for (const auto* values : {&network.inputs(), &network.outputs()})
    for (const OnnxValueInfo& value : *values) {
      const std::string dims = joined(value.dims, ", ", [](const OnnxDim& dim) {
        return dim.size >= 0 ? std::to_string(dim.size) : dim.symbol.empty() ? "?" : dim.symbol;
      });
      print("{} {}: {}[{}]\n", values == &network.inputs() ? "input" : "output", value.name,
          element_name(value.element), dims);
    }
}

namespace {
struct ConvertArguments {
  std::string from, to, dtype, architecture, adapter;
  double shard_gb = 5;
};

int convert(const ConvertArguments& arguments) {
  SaveOptions options;
  if (!arguments.dtype.empty()) options.dtype = file_dtype(arguments.dtype);
  options.max_shard_bytes = static_cast<uint64_t>(arguments.shard_gb * 1e9);
  if (RunFolder(arguments.from).has_config())
    fail_user("'", arguments.from, "' is a run; `linnet export ", arguments.from, " --out ", arguments.to,
        "` makes a model folder of it");
  const bool merges = !arguments.adapter.empty();
  const auto adapters = merges ? std::vector<AdapterFolder>{{"", arguments.adapter}} : std::vector<AdapterFolder>{};
  const PretrainedModel model = open_with_adapters(arguments.from, adapters, {.architecture = arguments.architecture});
  if (const std::string files = tokenizer_folder(arguments.from, adapters); files != arguments.from)
    options.files = load_pretrained_tokenizer(files)->files();
  const FlatWeights flat(*model.module, weights_of(arguments.from, &model));
  if (!merges)
    for (const std::string& name : model.fresh) std::fprintf(stderr, "new: %s\n", name.c_str());
  for (const std::string& name : model.unused) std::fprintf(stderr, "left out: %s\n", name.c_str());
  save_pretrained(model, flat.layout, flat.parameters.data(), arguments.to, options);
  return 0;
}

struct PackArguments {
  std::string model, out;
  QuantizationWords words;
  bool overwrite = false;
};

// Image models have no ModelKind; a run's weights are packed as they are unless quantized.
PackReport pack_any(const PackArguments& arguments) {
  const auto& [folder, out, words, overwrite] = arguments;
  if (file_exists(folder + "/network.onnx"))
    fail_user("'", folder, "' has the network of an ONNX file, which no packed file holds; `linnet export ", folder,
        " --onnx DIR` writes the network of a run");
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

struct OnnxArguments {
  std::string folder, file, inputs, out;
  int threads = 0;
  int64_t repeats = 1;
  bool verbose = false, profile = false;
};

int test(const OnnxArguments& arguments) {
  const std::vector<OnnxTestResult> results = run_onnx_tests(arguments.folder);
  bool failed = false;
  for (const OnnxTestResult& result : results) {
    const bool fails = result.outcome == OnnxTestResult::kFail;
    failed = failed || fails;
    if (fails || (result.outcome == OnnxTestResult::kUnsupported && arguments.verbose))
      print("{} {}: {}\n", fails ? "failed" : "unsupported", result.name, result.detail);
  }
  print_text(onnx_test_table(results));
  return failed ? 1 : 0;
}

// Prints each op's share, then the twenty slowest nodes.
void print_times(std::vector<Forward::NodeTime> nodes) {
  std::map<std::string, std::pair<double, int>> ops;
  double total = 0;
  for (const Forward::NodeTime& node : nodes) {
    auto& [seconds, count] = ops[node.op];
    seconds += node.seconds, ++count, total += node.seconds;
  }
  std::vector<std::pair<std::string, std::pair<double, int>>> rows(ops.begin(), ops.end());
  std::ranges::sort(rows, std::ranges::greater{}, [](const auto& row) { return row.second.first; });
  print("\n{:<24} {:>10} {:>7} {:>6}\n", "op", "ms", "share", "nodes");
  for (const auto& [op, sum] : rows)
    print("{:<24} {:10.3f} {:6.1f}% {:6}\n", op, sum.first * 1e3, 100 * sum.first / total, sum.second);
  std::ranges::sort(nodes, std::ranges::greater{}, &Forward::NodeTime::seconds);
  nodes.resize(std::min<size_t>(nodes.size(), 20));
  print("\n{:>10}  node\n", "ms");
  for (const Forward::NodeTime& node : nodes) print("{:10.3f}  {}  {}\n", node.seconds * 1e3, node.op, node.types);
}

int run_with_inputs(const OnnxArguments& arguments) {
  const std::unique_ptr<OnnxNetwork> network = load_onnx(arguments.file);
  const OnnxRunReport report = run_onnx_file(*network, arguments.inputs, arguments.out,
      {.threads = arguments.threads, .repeats = arguments.repeats, .profile = arguments.profile});
  for (const auto& [name, type] : report.outputs) print("output {}: {}\n", name, type.shape.text());
  print("{:.3f} ms a run, {:.1f} MB\n", report.seconds * 1e3, megabytes(report.memory_bytes));
  if (arguments.profile) print_times(report.nodes);
  return 0;
}

int import_model(const OnnxArguments& arguments) {
  const std::unique_ptr<OnnxNetwork> network = load_onnx(arguments.file);
  save_onnx_folder(*network, arguments.out);
  print_network(arguments.out, *network);
  return 0;
}

namespace fs = std::filesystem;

struct ExportArguments {
  std::string run, out, adapter, onnx, precision, gguf, type;
  std::optional<int64_t> opset;
  bool overwrite = false, no_cache = false, joined_past = false;
};

OnnxFolderOptions options_of(const ExportArguments& arguments) {
  const OnnxPrecision precision = onnx_precision(arguments.precision.empty() ? "fp32" : arguments.precision);
  OnnxFolderOptions options{.onnx = {.opset = arguments.opset.value_or(17), .precision = precision},
      .files = {.cache = !arguments.no_cache, .joined_past = arguments.joined_past}};
  if (precision == OnnxPrecision::kInt8Qdq)
    if (const auto scales = read_static_scales(arguments.run)) options.onnx.input_scales = scales->input_scales;
  return options;
}

void export_model_folder(const std::string& folder, const std::string& out, const OnnxFolderOptions& options) {
  const PretrainedModel model = open_pretrained(folder);
  const FlatWeights flat(*model.module, weights_of(folder, &model));
  export_onnx_folder(model, flat.layout, flat.parameters.data(), out, options);
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
  const FlatWeights flat(*opened.model, opened.weights());
  const OutputFolder made(out);
  for (const OnnxFile& file : onnx_files(*opened.model, options.files))
    save_onnx(flat.layout, flat.parameters.data(), file, out, options.onnx);
  translation_config_file(opened).save(out + "/config.json");
  opened.tokenizers.save(out);
}

void export_image_onnx(
    const std::string& run, const Config& config, const std::string& out, const OnnxOptions& options) {
  ImageFormat format = ImageFormat::load(run);
  const std::unique_ptr<ImageModel> model = make_image_model(config, format);
  const FlatWeights flat(*model, weights_of(run));
  const OutputFolder made(out);
  for (const OnnxFile& file : onnx_files(*model)) save_onnx(flat.layout, flat.parameters.data(), file, out, options);
  format.network.clear();  // it has the weights from before training
  format.save(out);
}

// The beginning of a path beside `out`; makes the parent folder, and removes folders that killed exports left.
std::string folder_beside(const std::string& out) {
  const fs::path parent = fs::path(out).parent_path();
  if (!parent.empty()) make_directories(parent.string());
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(parent.empty() ? "." : parent, ignored)) {
    const std::string path = (parent / entry.path().filename()).string();
    const bool is_ours = path.starts_with(out + ".folder.") && path.size() == out.size() + 14;
    if (!is_ours || !file_exists(path + "/.lock") || RunFolder(path).has_config()) continue;
    try {
      const FolderLock unused(path);
      fs::remove_all(path, ignored);
    } catch (const Error&) {  // another export is at work there
    }
  }
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
    return export_onnx_run(arguments.run, arguments.onnx, options.onnx.precision, arguments.opset.value_or(0));
  // A run's tokenizer has other formats: the exported model folder has those that other programs read.
  const TemporaryFolder folder(folder_beside(arguments.onnx));
  const FolderLock lock(folder.path());
  task_actions(config).export_model(arguments.run, folder.path());
  export_model_folder(folder.path(), arguments.onnx, options);
}

void export_gguf(const ExportArguments& arguments) {
  const GgufBlocks* type = find_gguf_blocks(arguments.type.empty() ? "F16" : upper_ascii(arguments.type));
  if (!type || (type->format && !type->write))
    fail_user("--type ", arguments.type, ": Linnet writes f32, f16, bf16, q8_0 and q4_0");
  if (!arguments.gguf.ends_with(kGgufEnding))
    fail_user("--gguf '", arguments.gguf, "': the name of such a file ends in ", kGgufEnding);
  if (file_exists(arguments.gguf) && !arguments.overwrite)
    fail_user("--gguf '", arguments.gguf, "' is there already; name another file, or replace it with --overwrite");
  const RunFolder run(arguments.run);
  std::string folder = arguments.run;
  std::optional<TemporaryFolder> temporary;
  std::optional<FolderLock> lock;
  if (run.has_config()) {
    temporary.emplace(folder_beside(arguments.gguf)), lock.emplace(temporary->path());
    // The file's "general.name" is the name of the folder.
    folder = temporary->path() + "/" + fs::path(arguments.gguf).filename().string() + ".folder.tmp";
    task_actions(run.load_config()).export_model(arguments.run, folder);
  }
  const PretrainedModel model = open_pretrained(folder);
  const FlatWeights flat(*model.module, weights_of(folder, &model));
  save_gguf_model(model, flat.layout, flat.parameters.data(), arguments.gguf, *type);
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
  if (!type.empty() && gguf.empty()) fail_user("--type goes with --gguf FILE");
  if ((!precision.empty() || opset || no_cache || joined_past) && onnx.empty())
    fail_user("--precision, --opset, --no-cache and --joined-past go with --onnx DIR");
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
    const ConfigFile written = ConfigFile::if_exists(out + "/config.json");
    if (written.text("model_type", "") == "modernbert" && written.integer("num_hidden_layers", 1) == 0)
      log_warning("transformers (5.24) loads no ModernBERT without layers, as '" + out +
                  "' is; Linnet does, and --onnx DIR writes it for other programs");
  }
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
  const auto& methods = kEnumNames<CalibrationMethod>;
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
          {.choices = {methods.begin(), methods.end()}})
      .take("--examples", arguments.most, "read so many examples at most (default 512)",
          {.type = "N", .least = kFewestExamples, .most = 1e9})
      .take("--keep", arguments.keep,
          "parameters that stay in fp32 (* stands for any characters); may be given several times", {.type = "NAME"})
      .take_threads(arguments.threads);
}

void add_import_command(Command& linnet) {
  auto [command, arguments] = linnet.subcommand(
      "import", "read an ONNX model, check that it can be run here, and keep it as a folder", import_model);
  command.take("MODEL", arguments.file, "the ONNX file", {.required = true, .type = "FILE"})
      .take("-o,--out", arguments.out, "the folder to write", {.required = true, .type = "DIR"});
}

void add_onnx_command(Command& linnet) {
  Command onnx = linnet.subcommand("onnx", "what Linnet reads of ONNX");
  onnx.subcommand("operators", "the operators that imported networks may have").does([] {
    for (const OnnxOperatorRow& row : onnx_operators()) print("{:<48}{}\n", row.name, row.note);
    return 0;
  });
  auto [tests, tested] =
      onnx.subcommand("test", "run ONNX's backend tests: folders with model.onnx and test_data_set_0", test);
  tests.take("DIR", tested.folder, "a test, or a folder of tests", {.required = true})
      .flag("--verbose", tested.verbose, "name the tests that are not supported, and why");
  auto [runs, arguments] = onnx.subcommand("run", "run a network on the arrays of a file", run_with_inputs);
  runs.take("MODEL", arguments.file, "an ONNX file, or the folder of an imported one", {.required = true})
      .take("INPUTS", arguments.inputs, "a safetensors file with a tensor for each of the network's inputs",
          {.required = true, .type = "FILE"})
      .take("-o,--out", arguments.out, "the safetensors file to write: a tensor for each output",
          {.required = true, .type = "FILE"})
      .take("--repeats", arguments.repeats, "run it so often, for the time of a run (the median)",
          {.least = 1, .most = 1000000, .show_default = true})
      .flag("--profile", arguments.profile, "where the time goes: by op, and the slowest nodes")
      .take_threads(arguments.threads);
}

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
      .take("--type", arguments.type, "of a GGUF file's matrices: f32, f16 (default), bf16, q8_0 or q4_0")
      .take("--opset", arguments.opset, "of ONNX (default 17)", {.least = 14, .most = 18})
      .take("--precision", arguments.precision,
          "of ONNX weights and products: fp32 (default), fp16, int8-dynamic (products of 8-bit numbers) or int8-qdq "
          "(weights of 8 bits; of a model that `linnet quantize` has calibrated, products of 8-bit numbers)")
      .flag("--no-cache", arguments.no_cache, "ONNX decoders without keys and values of earlier tokens")
      .flag("--joined-past", arguments.joined_past,
          "ONNX of GPT-2 with keys and values in one tensor: ONNX Runtime's optimizer fuses its attention")
      .flag("--overwrite", arguments.overwrite, "replace a model that is there");
}
}  // namespace linnet
