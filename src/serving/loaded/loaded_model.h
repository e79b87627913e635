// A model that answers texts, loaded once and used from any thread.
#pragma once
#include "base/json.h"
#include "serving/loaded/row_worker.h"
#include "serving/loaded/text_worker.h"

namespace linnet {
enum class ModelKind { kLanguage, kTranslation, kClassifier, kEmbedder, kSpans };
const char* model_kind_name(ModelKind kind);  // "language"...

// `folder`: a run or a model folder. User error for one that answers no texts, such as an image classifier.
ModelKind model_kind(const std::string& folder);

// Labels words, or finds answers to questions in texts. Thread-safe.
class SpanModel {
 public:
  virtual ~SpanModel() = default;
  virtual bool takes_questions() const = 0;  // texts are a question, a tab, and its context
  // `linnet predict`'s JSON answer for each text; for answers the `top` likeliest.
  virtual std::vector<Json> find(const std::vector<std::string>& texts, int64_t top) = 0;
};

struct LoadedModelOptions : ModelLoad {
  TextRoom text;  // of a language model or a translator
  TextWorkerLimits limits;
  // kLater, for packed language models and translators: the first token comes sooner, and damaged weights fail the
  // first text. Others are checked when opened.
  WeightCheck check = WeightCheck::kNow;
  // Opens a kSpans model; empty: refuses them.
  std::function<std::unique_ptr<SpanModel>(const std::string& folder, const LoadedModelOptions&)> open_spans = {};
};

// One of `text`, `rows` and `spans` is set.
struct LoadedModel {
  std::string folder;
  ModelKind kind;
  std::unique_ptr<TextWorker> text;
  std::unique_ptr<RowWorker> rows;
  std::unique_ptr<SpanModel> spans;
};
std::unique_ptr<LoadedModel> open_loaded_model(const std::string& folder, const LoadedModelOptions& options);
}  // namespace linnet
