// A model that answers texts, loaded once and used from any thread; and the same as one file.
#pragma once
#include "base/json.h"
#include "models/families/pretrained.h"
#include "models/nn/parameter_file.h"
#include "serving/loaded/workers.h"
#include "tasks/predictor.h"

namespace linnet {
enum class ModelKind { kLanguage, kTranslation, kClassifier, kEmbedder, kSpans };
template <>
inline constexpr std::array kEnumNames<ModelKind>{"language", "translation", "classifier", "embedder", "spans"};

struct LoadedModelOptions : ModelLoad {
  TextRoom text;  // of a language model or a translator
  TextWorkerLimits limits;
  // kLater, for packed language models and translators: the first token comes sooner, and damaged weights fail the
  // first text. Others are checked when opened.
  WeightCheck check = WeightCheck::kNow;
  // Opens a kSpans model, whose pairs are a question and its context; empty: refuses them.
  std::function<std::unique_ptr<Predictor>(const std::string& folder, const LoadedModelOptions&)> open_spans = {};
};

// One of `text`, `rows` and `spans` is set.
struct LoadedModel {
  std::string folder;
  ModelKind kind;
  std::unique_ptr<TextWorker> text;
  std::unique_ptr<RowWorker> rows;
  std::unique_ptr<Predictor> spans;  // for one thread
};
std::unique_ptr<LoadedModel> open_loaded_model(const std::string& folder, const LoadedModelOptions& options);

// Answers many requests to one model in order, as lines of text or JSON.
//
// One output line for each input line that is not blank (with text: for every line). JSON requests have "text" (or a
// language model's "prompt", "messages" or "tokens" with settings, as in `linnet generate --jsonl`) and "id", which is
// repeated. Answers have "request", the request's number from 0, and: "error" for a wrong request; the output of
// `linnet generate --jsonl` (language models); "translation" (translation models); "label" and "probability"
// (classifiers); "embedding" (embedders). Plain lines have a text (with "\n" for line ends), a translation, label and
// probability separated by a tab, or numbers separated by blanks.
struct BatchOptions {
  bool json = false;
  TextGenerationOptions text;  // of language models and translators
  int64_t skip = 0;            // initial requests that are answered already
  std::string name;            // of the input, for messages
  size_t ahead = 256;          // requests under way at once; 0: answers each before reading the next
};

// Reads the next line; false at the end.
using NextLine = std::function<bool(std::string& line)>;
// Takes an answer without line end.
using TakeAnswer = std::function<void(const std::string& answer)>;

struct BatchCounts {
  int64_t answers = 0;
  int64_t refused = 0;  // answers with "error"
};

// Wrong JSON requests are answered with "error" naming the line; a wrong line of text is a user error after the answers
// before it. Ends early, with the answers so far, once `stopped` returns true.
BatchCounts answer_batch(LoadedModel& model, const BatchOptions& options, const NextLine& next, const TakeAnswer& take,
    const std::function<bool()>& stopped);

// `linnet pack`: a run or model folder as one file (formats/packed_model.h).
struct PackReport {
  size_t files = 0, tensors = 0;
  uint64_t bytes = 0;   // of the packed file
  std::string weights;  // "int8, 50 of 148 parameters; others F32"
};
// User error without a model, or for quantized weights if it answers no texts. Reads the file back to check it.
PackReport pack_model(const std::string& folder, const std::string& path, const QuantizationWords& words = {});

// The same for a caller's model that answers texts. `load` fills a flat buffer with its parameters.
struct ModelToPack {
  const Module& module;
  std::function<void(const ParameterLayout&, const ParameterTarget&)> load;
  const PretrainedModel* pretrained = nullptr;  // has the model folder's weight types; null: fp32
};
PackReport pack_model(
    const std::string& folder, const std::string& path, const QuantizationWords& words, const ModelToPack& model);
}  // namespace linnet
