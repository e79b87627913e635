#include "tasks/calibration.h"
#include "base/fail.h"
#include "base/files.h"
#include "data/examples/images/image_dataset.h"
#include "data/examples/text/parallel_text.h"
#include "data/examples/text/record_reader.h"
#include "models/families/pretrained.h"
#include "models/families/sentence_embedder.h"
#include "models/nn/parameter_layout.h"
#include "tasks/images/image_session.h"
#include "tasks/predictor.h"
#include "tasks/task_table.h"
#include "tasks/texts/text_classifier.h"
#include "tasks/texts/text_task.h"
#include "training/run/run_folder.h"

namespace linnet {
namespace {
namespace fs = std::filesystem;

constexpr int64_t kRows = 16;

// Runs examples through a model whose observer records activations.
using RunExamples = std::function<void(const std::vector<std::string>& examples)>;

RunExamples open_embedder(const std::string& folder, const InferenceOptions& options) {
  std::shared_ptr<const PretrainedTokenizer> tokenizer = load_pretrained_tokenizer(folder);
  const auto embedder = std::make_shared<SentenceEmbedder>(folder, kRows,
      ForwardOptions{.threads = static_cast<int>(options.threads), .quantization = {.observer = options.observer}});
  return [tokenizer, embedder](const std::vector<std::string>& texts) {
    const EncodeOptions encoding{.max_length = embedder->max_tokens(), .offsets = false};
    embedder->embed(mapped(texts, [&](const std::string& text) { return tokenizer->encode(text, encoding).ids; }));
  };
}

RunExamples open_scored(const std::string& folder, const InferenceOptions& options, const std::string& path) {
  const std::shared_ptr<Scorer> scorer = open_scorer(folder, options);
  return [scorer, path](const std::vector<std::string>& lines) {
    for (size_t i = 0; i < lines.size(); ++i) {
      if (!scorer->takes_pairs()) {
        scorer->score(lines[i], "");
        continue;
      }
      const auto [source, target] = split_pair(lines[i], "'" + path + "': example " + std::to_string(i + 1));
      scorer->score(target, source);
    }
  };
}

bool classifies(const std::string& folder) {
  return is_text_classifier_folder(folder) ||
         (RunFolder(folder).has_config() && task_actions(RunFolder(folder).load_config()).predict);
}

RunExamples open_model(const CalibrationRequest& request, const InferenceOptions& options) {
  if (is_model_folder(request.model, FamilyKind::kEncoder) && !is_text_classifier_folder(request.model))
    return open_embedder(request.model, options);
  if (!classifies(request.model)) return open_scored(request.model, options, request.examples);
  const std::shared_ptr<Predictor> predictor = open_predictor(request.model, options, kRows);
  return [predictor](const std::vector<std::string>& inputs) { predictor->answer(inputs, 1); };
}

std::vector<std::string> read_lines(const CalibrationRequest& request) {
  if (is_folder(request.examples))
    fail_user("'", request.examples, "' is a folder; this model reads text: --calibrate names a file");
  std::vector<std::string> lines;
  const auto add = [&](const std::string& line) {
    if (std::ssize(lines) < request.most && line.find_first_not_of(" \t") != line.npos) lines.push_back(line);
  };
  if (has_records(request.examples) && classifies(request.model) && !is_run_of(request.model, TaskKind::kImages)) {
    const OpenedTextClassifier opened = open_text_classifier(request.model);
    text_task(opened).for_each_text(request.examples, opened.config.data, opened.pairs, add);
    return lines;
  }
  LineReader reader(request.examples);
  for (std::string line; std::ssize(lines) < request.most && reader.next(line);) add(line);
  return lines;
}

std::vector<std::string> read_examples(const CalibrationRequest& request) {
  if (!is_run_of(request.model, TaskKind::kImages) || !is_folder(request.examples)) return read_lines(request);
  std::vector<std::string> images = find_images(request.examples);
  if (std::ssize(images) <= request.most) return images;
  // From all classes, whose folders follow each other.
  return mapped(request.most, [&](int64_t i) { return images[i * std::ssize(images) / request.most]; });
}

void check_examples(const CalibrationRequest& request, int64_t count) {
  const std::string name = "'" + request.examples + "'";
  if (count == 0) fail_user(name, " holds no examples to calibrate on");
  if (count < kFewestExamples)
    fail_user(name, " holds ", count, count == 1 ? " example" : " examples", "; calibration needs at least ",
        kFewestExamples, ", and some hundreds are better");
}
}  // namespace

StaticScales calibrate(const CalibrationRequest& request) {
  const std::string name = "'" + request.model + "'";
  if (is_packed(request.model)) fail_user(name, " is packed: quantize the folder it was made of, then pack that");
  if (is_gguf(request.model))
    fail_user(name, " is a file of llama.cpp: quantize the folder that `linnet convert` makes of it");
  if (!file_exists(request.model)) fail_user("there is no folder ", name);
  folder_quantization(request.model, "int8");  // user error for networks of ONNX files
  if (const auto scales = read_static_scales(request.model))
    fail_user(name, " is quantized already (by ", scales->method, "): quantize the model it was made of");
  const std::vector<std::string> examples = read_examples(request);
  check_examples(request, std::ssize(examples));
  const auto observer = std::make_shared<ActivationObserver>();
  InferenceOptions options;
  options.threads = request.threads, options.quantize = "none", options.observer = observer;
  options.keep = request.keep;  // only checks that every pattern matches a parameter
  open_model(request, options)(examples);
  StaticScales scales{.method = enum_name(request.method),
      .examples = std::ssize(examples),
      .keep = request.keep,
      .input_scales = observer->scales(request.method)};
  std::erase_if(scales.input_scales, [&](const auto& scale) { return matches_any(scale.first, request.keep); });
  if (scales.input_scales.empty())
    fail_user(name,
        " has no linear layer or convolution of at least 16 features from 32 numbers or more that is not kept in fp32: "
        "there is nothing to quantize");
  return scales;
}

void save_quantized(const std::string& model, const StaticScales& scales, const std::string& out) {
  if (std::error_code problem; !fs::equivalent(model, out, problem)) {
    if (file_exists(out) && !(fs::is_directory(out) && fs::is_empty(out))) fail_user("'", out, "' exists already");
    copy_without_records(model, out);
  }
  write_static_scales(out, scales);
}
}  // namespace linnet
