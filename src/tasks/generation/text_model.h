// A generating model opened for use: requests become jobs in its tokens, and an engine runs them. text_generation.cpp
// has the decoder-only models and the encoder-decoders.
//
//   const std::unique_ptr<TextModel> model = open_text_model(folder, options);
//   const TextJob job = model->prepare(request);
//   model->plan(std::span(&job, 1), 1);                          // or plan_resident(), for any later job
//   model->engine().submit(model->engine_request(job, 0));
//
// prepare() may be called from several threads at once; the engine belongs to one thread.
#pragma once
#include "generation/engine.h"
#include "models/nn/model_store.h"
#include "models/nn/parameter_file.h"
#include "tasks/generation/text_request.h"
#include "tasks/text_coder.h"
#include "training/run/pretrained_run.h"

namespace linnet {
struct TextJob {
  std::vector<int32_t> prompt;
  GenerationChoice choice;
  std::vector<int32_t> begin = {};  // see GenerateSettings
  std::vector<std::string> stops;
  bool log_probabilities = false;
  std::shared_ptr<const TextGrammar> grammar = {};  // see GenerateSettings
  std::shared_ptr<const TokenTexts> texts = {};
  int64_t adapter = -1;                                  // see GenerateRequest
  std::function<std::unique_ptr<TextFlow>()> flow = {};  // decodes a text token by token
};

// Limits of a model that stays loaded.
struct TextRoom {
  int64_t slots = 8;       // texts at once
  int64_t beams = 0;       // most of a request; 0: 1, or the model's own configuration
  int64_t max_length = 0;  // tokens of a text, for decoder-only models with its prompt; 0: at most kResidentLength
};
constexpr int64_t kResidentLength = 2048;

class TextModel {
 public:
  virtual ~TextModel() = default;

  // User error naming the request if the prompt does not fit or the model does not support a setting. `warn`: of
  // settings by the model's author that Linnet does not support.
  TextJob prepare(const TextRequest& request, bool warn = false) const;
  // The same for translations; defaults are those of `linnet translate` for runs, of the author for model folders.
  virtual TextJob prepare_translation(const TextRequest& request) const { return prepare(request); }
  virtual std::string piece_of(int32_t token) const = 0;
  virtual bool has_chat_template() const = 0;
  // Whether it answers a source (an encoder-decoder) instead of continuing a prompt.
  virtual bool answers() const = 0;

  // Plans and allocates for these jobs, each with `samples` texts, then loads the weights. Call it once.
  virtual void plan(std::span<const TextJob> jobs, int64_t samples) = 0;
  // The same for any jobs within the limits, with the same tokens. kLater: call check_weights() before a text counts.
  void plan_resident(const TextRoom& options, WeightCheck check = WeightCheck::kNow);
  // User error if a packed model's weights are not those that were packed, or its file has lost pages since. Compares
  // the weights once, so it can be called after every step.
  void check_weights() const;

  Engine& engine() { return *engine_; }
  ThreadPool& pool() { return pool_; }
  // After planning: the most tokens of a text (for decoder-only models with its prompt) and the most beams.
  int64_t room() const { return room_; }
  int64_t beams() const { return engine_->beams(); }

  // One sample of a job, without a listener.
  GenerateRequest engine_request(const TextJob& job, uint64_t sample) const;

 protected:
  // Cache, threads, device and weight precision come from `options`.
  TextModel(const std::string& folder, const TextGenerationOptions& options);
  virtual TextJob prepare_job(const TextRequest& request, bool warn) const = 0;
  virtual void plan_any(const TextRoom& options) = 0;
  virtual void allocate_draft() {}
  // `folder`: the model, which may be packed with quantized weights. `draft`: for a decoder-only engine;
  // allocate_draft() is called when that is planned.
  template <class Model, class Options, class... Draft> void load(
      const std::string& folder, Model& model, const Options& plan, const LoadWeights& weights, const Draft&... draft) {
    layout_.emplace(model, std::span<const ParameterGroup>(), quantization_);
    const SharedRegions shared = declare_model(store_, *layout_);
    engine_.emplace(model, *layout_, store_, shared, plan, draft...);
    allocate_draft();
    allocate(folder, weights);
    room_ = plan.max_length;
  }
  // Fills the parameters of an allocated store: maps them from a packed model if possible, or calls `weights`.
  void fill(const std::string& folder, const ParameterLayout& layout, Store& store, const LoadWeights& weights);
  // Texts written at once: all samples of a job, and up to `most` texts of several jobs.
  static int64_t texts_at_once(int64_t jobs, int64_t samples, int64_t most);

  const TextGenerationOptions options_;
  const WeightQuantization quantization_;
  const std::vector<AdapterFolder> adapters_;
  std::vector<int32_t> never_;  // tokens that are never generated
  bool slides_ = false;         // a sampled text continues when the cache is full
  ThreadPool pool_;

 private:
  void allocate(const std::string& folder, const LoadWeights& weights);

  std::optional<ParameterLayout> layout_;
  Store store_;
  std::optional<Engine> engine_;
  int64_t room_ = 0;
  WeightCheck check_ = WeightCheck::kNow;
  std::vector<std::unique_ptr<const ParameterFile>> packed_;  // files whose pages may be in the store
};

// Cache, threads and device are those of `options`. For folders known to continue or answer prompts (T5, Marian, runs).
std::unique_ptr<TextModel> open_text_model(const std::string& folder, const TextGenerationOptions& options);
}  // namespace linnet
