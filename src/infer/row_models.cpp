#include <algorithm>

#include "base/error.h"
#include "infer/row_worker.h"
#include "kernels/isa.h"
#include "pretrained/sentence_embedder.h"
#include "pretrained/static_scales.h"
#include "tasks/classification/classification_task.h"
#include "tasks/classifier.h"
#include "tasks/inference.h"
#include "text/pretrained_tokenizer.h"

namespace linnet {
namespace {

constexpr int64_t kRows = 16;  // texts that are computed at once

class Embedder : public RowModel {
 public:
  Embedder(const std::string& folder, const RowOptions& options)
      : tokenizer_(load_pretrained_tokenizer(folder)),
        embedder_(folder, kRows, options.threads, folder_quantization(folder, options.quantize, options.keep),
                  parse_adapters(options.adapters)) {}
  const std::vector<std::string>& classes() const override { return classes_; }
  size_t width() const override { return static_cast<size_t>(embedder_.width()); }
  std::vector<int32_t> encode(const std::string& text) const override {
    return tokenizer_->encode(text, {.max_length = embedder_.max_tokens(), .offsets = false}).ids;
  }
  int64_t padded_length(int64_t tokens) const override { return embedder_.padded_length(tokens); }
  std::vector<float> compute(const std::vector<std::vector<int32_t>>& texts) override { return embedder_.embed(texts); }

 private:
  const std::vector<std::string> classes_;
  std::unique_ptr<PretrainedTokenizer> tokenizer_;
  SentenceEmbedder embedder_;
};

class RowClassifier : public RowModel {
 public:
  RowClassifier(const std::string& folder, const RowOptions& options)
      : opened_(open_text_classifier(folder, parse_adapters(options.adapters))) {
    apply({.threads = options.threads, .device = options.device, .quantize = options.quantize, .keep = options.keep},
          opened_.config, folder);
    force_isa(opened_.config.train.isa);
    opened_.config.data.batch_size = kRows;
    session_ = std::make_unique<ClassificationSession>(opened_.config, opened_.model.as<TextClassifier>(),
                                                       opened_.classes, false);
    opened_.take_weights_into(*session_);
  }
  const std::vector<std::string>& classes() const override { return opened_.classes; }
  size_t width() const override { return opened_.classes.size(); }
  std::vector<int32_t> encode(const std::string& text) const override {
    return opened_.tokenizer->encode(text, {.max_length = session_->lengths.back(), .offsets = false}).ids;
  }
  int64_t padded_length(int64_t tokens) const override {
    return *std::ranges::lower_bound(session_->lengths, std::min(tokens, session_->lengths.back()));
  }
  std::vector<float> compute(const std::vector<std::vector<int32_t>>& texts) override {
    LabelledSequences data;
    data.tokens = texts;
    data.labels.assign(texts.size(), -1);
    const std::vector<double> rows = softmax_rows(session_->logits(data), classes().size());
    return {rows.begin(), rows.end()};
  }

 private:
  OpenedTextClassifier opened_;
  std::unique_ptr<ClassificationSession> session_;
};

}  // namespace

std::unique_ptr<RowModel> open_embedder(const std::string& folder, const RowOptions& options) {
  if (options.device != "cpu") fail_user("embeddings are computed on the CPU: leave --device out");
  return std::make_unique<Embedder>(folder, options);
}

std::unique_ptr<RowModel> open_row_classifier(const std::string& folder, const RowOptions& options) {
  return std::make_unique<RowClassifier>(folder, options);
}

}  // namespace linnet
