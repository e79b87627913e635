#include "tasks/texts/onnx_classifier.h"
#include "base/fail.h"
#include "base/files.h"
#include "models/families/config_file.h"
#include "models/nn/model_file.h"
#include "training/run/pretrained_run.h"
#include "training/run/run_folder.h"

namespace linnet {
namespace {
namespace fs = std::filesystem;

constexpr const char *kNetworkFile = "network.onnx", *kConfigFile = "pretrained/config.json";
constexpr int64_t kDefaultLongest = 512;  // default tokens of a text

// The folder of a network's companion files.
std::string folder_of(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return path;
  const fs::path folder = fs::path(path).parent_path();
  return folder.empty() ? "." : folder.string();
}

// optimum keeps config.json and tokenizer beside the network; repositories for browsers have it in a subfolder "onnx".
std::string companion_folder(const std::string& path) {
  const std::string folder = folder_of(path);
  if (has_pretrained_tokenizer(folder)) return folder;
  const fs::path above = fs::absolute(folder).lexically_normal().parent_path();
  if (fs::path(folder).filename() == "onnx" && has_pretrained_tokenizer(above.string())) return above.string();
  return folder;
}

int64_t longest_text(const ConfigFile& config, int64_t of_tokenizer) {
  int64_t longest = config.size("max_position_embeddings", of_tokenizer > 0 ? of_tokenizer : kDefaultLongest);
  if (of_tokenizer > 0) longest = std::min(longest, of_tokenizer);
  // RoBERTa's positions start after the padding token's number, 1.
  if (config.text("model_type", "").find("roberta") != std::string::npos && config.has("max_position_embeddings"))
    longest = std::min(longest, config.size("max_position_embeddings") - 2);
  return std::max<int64_t>(longest, 1);
}

// A tokenizer with more tokens than the network's embedding table is another model's.
void check_onnx_vocabulary(const OnnxNetwork& network, const PretrainedTokenizer& tokenizer) {
  const OnnxGraph& graph = network.model().graph;
  for (const OnnxNode& node : graph.nodes) {
    if (node.op != "Gather" || node.in.size() < 2 || node.in[1] != "input_ids") continue;
    const auto table = std::ranges::find(graph.initializers, node.in[0], &OnnxTensor::name);
    if (table == graph.initializers.end() || table->dims.empty()) continue;
    if (tokenizer.vocab_size() > table->dims[0])
      fail_user("'", network.file(), "' has embeddings of ", table->dims[0], " tokens and the tokenizer beside it has ",
          tokenizer.vocab_size(), ": it belongs to another model");
  }
}

PretrainedModel as_model(std::unique_ptr<OnnxNetwork> network, size_t classes, int64_t longest) {
  PretrainedModel model;
  model.architecture = "network of an ONNX file";
  model.module = std::make_unique<OnnxTextModel>(std::move(network), static_cast<int64_t>(classes), longest);
  return model;
}
}  // namespace

std::unique_ptr<PretrainedTokenizer> load_onnx_tokenizer(const std::string& path) {
  const std::string folder = companion_folder(path);
  if (!has_pretrained_tokenizer(folder))
    fail_user("'", folder, "' has no tokenizer beside the network (tokenizer.json, vocab.txt, ...), which texts need");
  return load_pretrained_tokenizer(folder);
}

PretrainedModel open_onnx_classifier(const std::string& path, std::vector<std::string>& classes) {
  std::unique_ptr<OnnxNetwork> network = load_onnx(path, std::ssize(classes));
  const std::unique_ptr<PretrainedTokenizer> tokenizer = load_onnx_tokenizer(path);
  check_onnx_vocabulary(*network, *tokenizer);
  ConfigFile config = ConfigFile::if_exists(path_in(companion_folder(path), "config.json"));
  if (config.count("id2label") == classes.size()) {
    const std::vector<std::string> names = label_names(config);
    if (std::ranges::is_permutation(names, classes)) classes = names;
  }
  const int64_t longest = longest_text(config, tokenizer->max_length());
  PretrainedModel model = as_model(std::move(network), classes.size(), longest);
  for (int64_t i = 0; classes.empty() && i < model.as<OnnxTextModel>().classes(); ++i)
    classes.push_back(std::to_string(i));
  name_labels(config, classes);
  model.config = std::move(config);
  return model;
}

void save_onnx_assets(const std::string& folder, const PretrainedModel& model, const PretrainedTokenizer& tokenizer) {
  save_pretrained_assets(folder, model, tokenizer);
  write_onnx(dynamic_cast<const OnnxTextModel&>(*model.module).network().model(), path_in(folder, kNetworkFile));
}

bool is_onnx_run(const std::string& folder) { return file_exists(path_in(folder, kNetworkFile)); }

PretrainedModel open_onnx_run(const std::string& folder) {
  ConfigFile config(path_in(folder, kConfigFile));
  const std::vector<std::string> classes = label_names(config);
  const int64_t longest = longest_text(config, open_run_tokenizer(folder)->max_length());
  PretrainedModel model = as_model(load_onnx(path_in(folder, kNetworkFile)), classes.size(), longest);
  model.config = std::move(config);
  return model;
}

void export_onnx_run(const std::string& folder, const std::string& out, OnnxPrecision precision, int64_t opset) {
  PretrainedModel model = open_onnx_run(folder);
  const int64_t own = model.as<OnnxTextModel>().network().model().opsets.at("");
  if (opset > 0 && opset != own)
    fail_user("the network of '", folder, "' is of opset ", own, ", which an export keeps: leave --opset out");
  const FlatWeights flat(*model.module, weights_of(folder));
  OnnxModel network = model.as<OnnxTextModel>().with_parameters(flat.layout, flat.parameters.data());
  set_precision(network, precision);
  const OutputFolder made(out);
  write_onnx(network, path_in(out, "model.onnx"));
  model.config.save(path_in(out, "config.json"));
  open_run_tokenizer(folder)->save_pretrained(out);
}
}  // namespace linnet
