#include <algorithm>
#include "base/fail.h"
#include "base/packed_files.h"
#include "models/families/sentence_embedder.h"
#include "models/families/static_scales.h"
#include "models/nn/forward.h"
#include "models/nn/model_file.h"
#include "models/nn/parameter_file.h"
#include "serving/loaded/row_worker.h"
#include "tasks/texts/text_classifier.h"
#include "training/run/pretrained_run.h"
#include "training/run/run_folder.h"

namespace linnet {
namespace {
constexpr int64_t kRows = 16;  // texts computed at once

// From a model folder, or a run of a masked language model.
SentenceEmbedder open_sentences(const std::string& folder, const ModelLoad& options) {
  const WeightQuantization quantization = folder_quantization(folder, options.quantize, options.keep);
  const std::vector<AdapterFolder> adapters = parse_adapters(options.adapters);
  const RunFolder run(folder);
  if (!run.has_config()) return SentenceEmbedder(folder, kRows, options.threads, quantization, adapters);
  const Config config = run.load_config();
  if (task_kind(config) != TaskKind::kMaskedLanguage && config.data.task != "embeddings")
    fail_user("run '", folder, "' embeds no sentences: it learned ", task_row(config).description,
        "; a run of embeddings or of a masked language model does");
  refuse_adapters(folder, adapters);
  return SentenceEmbedder(open_run_model(folder), read_sentence_pooling(model_description(folder)), kRows,
      options.threads, quantization, weights_of(folder));
}

class Embedder : public RowModel {
 public:
  Embedder(const std::string& folder, const ModelLoad& options)
      : embedder_(open_sentences(folder, options)),
        tokenizer_(RunFolder(folder).has_config() ? open_run_tokenizer(folder) : load_pretrained_tokenizer(folder)),
        prompts_(read_sentence_prompts(folder)) {
    width = static_cast<size_t>(embedder_.width()), is_normalized = embedder_.is_normalized();
    vocab_size = embedder_.vocab_size(), max_tokens = embedder_.max_tokens();
  }
  std::string prompt(const std::string& name) const override { return prompts_.of(name); }
  RowText encode(const std::string& text, const std::string* pair) const override {
    if (pair) fail_user("the model embeds single texts, and two were given");
    return {tokenizer_->encode(text, {.max_length = max_tokens, .offsets = false}).ids};
  }
  int64_t padded_length(int64_t tokens) const override { return embedder_.padded_length(tokens); }
  std::vector<float> compute(const std::vector<RowText>& texts) override {
    std::vector<std::vector<int32_t>> tokens;
    for (const RowText& text : texts) tokens.push_back(text.tokens);
    return embedder_.embed(tokens);
  }

 private:
  SentenceEmbedder embedder_;  // before the tokenizer: it reports unsuitable folders
  std::unique_ptr<PretrainedTokenizer> tokenizer_;
  const SentencePrompts prompts_;
};

// Computes in fp32, or with the quantized weights, like text models, whatever a run was trained with.
class RowClassifier : public RowModel {
 public:
  RowClassifier(const std::string& folder, const ModelLoad& options)
      : opened_(open_text_classifier(folder, parse_adapters(options.adapters))), problem_(opened_.problem()),
        lengths_(text_lengths(opened_.config, opened_.model.as<TextClassifier>())) {
    if (opened_.model.head == ModelHead::kTokenClasses || opened_.model.head == ModelHead::kSpans)
      fail_user("'", folder, "' labels words or finds answers; `linnet predict` does that");
    classes = opened_.outputs, width = classes.size();
    vocab_size = opened_.tokenizer->vocab_size(), max_tokens = lengths_.back();
    is_reranker = problem_ == TextProblem::kNumbers && width == 1 && takes(true);
    auto& model = opened_.model.as<TextClassifier>();
    std::vector<Forward::Function> functions;
    for (const bool pairs : {false, true})
      for (const int64_t length : lengths_) {
        if (!takes(pairs)) continue;
        functions.emplace_back([&model, length, pairs](Trace& trace) {
          const TensorType ids{DType::kI32, {kRows, length}};
          const Tensor tokens = trace.input("tokens", ids), lengths = trace.input("lengths", {DType::kI32, {kRows}});
          trace.graph().output("logits", model.logits(tokens, lengths, pairs ? trace.input("types", ids) : Tensor{}));
        });
      }
    const int threads = options.threads > 0 ? options.threads : static_cast<int>(opened_.config.train.threads);
    forward_.emplace(*opened_.model.module, functions,
        ForwardOptions{.threads = threads,
            .quantization = folder_quantization(folder, options.quantize, options.keep, options.device),
            .device = options.device,
            .pack_weights = !is_packed(folder)});  // as in SentenceEmbedder
    packed_ = ParameterFile::open(folder);
    if (packed_ && forward_->load(*packed_)) return;
    forward_->load([&](const ParameterTarget& parameters) { opened_.weights()(forward_->layout(), parameters); });
  }
  RowText encode(const std::string& text, const std::string* pair) const override {
    if (!takes(pair != nullptr))
      fail_user(pair ? "the model reads single texts, and two were given" : "the model reads two texts at a time");
    const EncodeOptions options{.max_length = max_tokens, .offsets = false};
    if (!pair) return {opened_.tokenizer->encode(text, options).ids};
    Encoding encoding = opened_.tokenizer->encode_pair(text, *pair, options);
    return {std::move(encoding.ids), {encoding.segments.begin(), encoding.segments.end()}};
  }
  int64_t padded_length(int64_t tokens) const override {
    return *std::ranges::lower_bound(lengths_, std::min(tokens, max_tokens));
  }
  std::vector<float> compute(const std::vector<RowText>& texts) override {
    std::vector<float> logits;
    for (size_t first = 0; first < texts.size(); first += kRows)
      add_logits(std::span(texts).subspan(first, std::min<size_t>(kRows, texts.size() - first)), logits);
    if (packed_) packed_->check_weights();
    if (problem_ == TextProblem::kSeveralClasses)
      for (float& logit : logits) logit = static_cast<float>(sigmoid(logit));
    if (problem_ != TextProblem::kOneClass) return logits;
    const std::vector<double> rows = softmax_rows(logits, width);
    return {rows.begin(), rows.end()};
  }

 private:
  // A run takes its training format. Folders do not say, except those that judge pairs.
  bool takes(bool pairs) const { return pairs ? opened_.pairs || !opened_.is_run : !opened_.pairs; }

  void add_logits(std::span<const RowText> texts, std::vector<float>& logits) {
    size_t longest = 1;
    for (const RowText& text : texts) longest = std::max(longest, text.tokens.size());
    const bool pairs = !texts[0].segments.empty();
    const auto shape = std::ranges::lower_bound(lengths_, static_cast<int64_t>(longest));
    const auto length = static_cast<size_t>(*shape);
    std::vector<int32_t> tokens(kRows * length, 0), types = tokens;
    std::vector<int32_t> lengths(kRows, 1);  // unused rows have one token each
    for (size_t row = 0; row < texts.size(); ++row) {
      const auto begin = static_cast<std::ptrdiff_t>(row * length);
      std::ranges::copy(texts[row].tokens, tokens.begin() + begin);
      std::ranges::copy(texts[row].segments, types.begin() + begin);
      lengths[row] = static_cast<int32_t>(texts[row].tokens.size());
    }
    forward_->set("tokens", tokens);
    forward_->set("lengths", lengths);
    if (pairs) forward_->set("types", types);
    const auto function = static_cast<size_t>(shape - lengths_.begin()) + (pairs && takes(false) ? lengths_.size() : 0);
    const auto found = forward_->run(function).output("logits");
    logits.insert(logits.end(), found.begin(), found.begin() + (texts.size() * width));
  }

  OpenedTextClassifier opened_;
  const TextProblem problem_;
  const std::vector<int64_t> lengths_;
  std::optional<Forward> forward_;
  std::unique_ptr<const ParameterFile> packed_;  // its pages may be the parameters
};
}  // namespace

void RowModel::check(const std::vector<int32_t>& tokens) const {
  for (const int32_t token : tokens)
    if (token >= vocab_size) fail_user("there is no token ", token, "; the model has ", vocab_size);
  if (std::ssize(tokens) > max_tokens)
    fail_user("a text has ", tokens.size(), " tokens, and the model takes ", max_tokens);
}

std::unique_ptr<RowModel> open_embedder(const std::string& folder, const ModelLoad& options) {
  if (options.device != "cpu") fail_user("embeddings are computed on the CPU: leave --device out");
  return std::make_unique<Embedder>(folder, options);
}

std::unique_ptr<RowModel> open_row_classifier(const std::string& folder, const ModelLoad& options) {
  return std::make_unique<RowClassifier>(folder, options);
}
}  // namespace linnet
