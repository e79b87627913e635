// A model that writes texts, opened for use: requests become jobs of its tokens, and an engine runs them.
// TextGeneration (text_generation.h) is for decoder-only models, SourceGeneration (source_generation.h) for
// encoder-decoders.
//
//   const std::unique_ptr<TextModel> model = open_text_model(folder, options);
//   const TextJob job = model->prepare(request);
//   model->plan(std::span(&job, 1), 1);                          // or plan_resident(), for any later job
//   model->engine().submit(model->engine_request(job, 0));
//
// prepare() may be called from several threads at once; the engine belongs to one thread.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>
#include "generation/engine.h"
#include "models/nn/model_store.h"
#include "models/nn/parameter_file.h"
#include "tasks/generation/generation_choice.h"
#include "tasks/generation/text_request.h"
#include "tasks/text_coder.h"
#include "training/run/pretrained_run.h"

namespace linnet {

// A request as the engine takes it.
struct TextJob {
  std::vector<int32_t> prompt;
  GenerationChoice choice;
  std::vector<int32_t> begin = {};  // see GenerateSettings
  std::vector<std::string> stops;
  bool log_probabilities = false;
  std::shared_ptr<const TextGrammar> grammar = {};  // see GenerateSettings
  std::shared_ptr<const TokenTexts> texts = {};
  int64_t adapter = -1;                                  // see GenerateRequest
  std::function<std::unique_ptr<TextFlow>()> flow = {};  // decodes a text as it comes
};

// What a model that stays loaded has room for.
struct TextRoom {
  int64_t slots = 8;       // texts at once
  int64_t beams = 0;       // the most of a request; 0: 1, or what the model's own configuration asks for
  int64_t max_length = 0;  // tokens of a text, of a decoder-only model with its prompt; 0: at most kResidentLength
};
constexpr int64_t kResidentLength = 2048;

class TextModel {
 public:
  virtual ~TextModel() = default;

  // User error, which names the request, for a prompt that does not fit, or settings that the model does not have. It
  // warns of what the model's author asks for and Linnet does not do.
  TextJob prepare(const TextRequest& request, bool warn = false) const;
  // The same where the text is to be translated: what is not said is as `linnet translate` has it for a run, and as the
  // model's author says for a model folder.
  virtual TextJob prepare_translation(const TextRequest& request) const { return prepare(request); }
  // The texts of tokens, one by one: of what the model writes.
  virtual std::string decode(const std::vector<int32_t>& tokens) const = 0;
  virtual std::string piece_of(int32_t token) const = 0;
  virtual bool has_chat_template() const = 0;
  // Whether it answers a source (an encoder-decoder) instead of going on from a prompt.
  virtual bool answers() const = 0;

  // Plans and takes the memory for these jobs, whose texts are written `samples` times, then loads the weights. Once.
  void plan(std::span<const TextJob> jobs, int64_t samples);
  // The same for any job whose text is within the limits. A job gives the tokens that it gives when planned alone.
  // kLater: check_weights() is called before a text counts.
  void plan_resident(const TextRoom& options, WeightCheck check = WeightCheck::kNow);
  // User error when the weights of a packed model are not those that were packed, or its file lost pages since. They
  // are compared once, so that this can be called after every step.
  void check_weights() const;

  Engine& engine() { return *engine_; }
  ThreadPool& pool() { return pool_; }
  // After planning: tokens that a text may have, of a decoder-only model with its prompt, and the most beams.
  int64_t room() const { return room_; }
  int64_t beams() const { return engine_->beams(); }

  // A sample of a job, without a listener.
  GenerateRequest engine_request(const TextJob& job, uint64_t sample) const;

 protected:
  // Cache, threads, device and precision of the weights are those of `options`.
  TextModel(const std::string& folder, const TextGenerationOptions& options);
  virtual TextJob prepare_job(const TextRequest& request, bool warn) const = 0;
  virtual void plan_jobs(std::span<const TextJob> jobs, int64_t samples) = 0;
  virtual void plan_any(const TextRoom& options) = 0;
  virtual void allocate_draft() {}
  // `folder`: of the model, which may be packed with quantized weights.
  // `draft`: for an engine of a decoder-only model; allocate_draft() is called when it has been planned.
  template <class Model, class Options, class... Draft>
  void load(const std::string& folder, Model& model, const Options& plan, const LoadWeights& weights,
            const Draft&... draft) {
    layout_.emplace(model, std::span<const ParameterGroup>(), quantization_);
    const SharedRegions shared = declare_model(store_, *layout_);
    engine_.emplace(model, *layout_, store_, shared, plan, draft...);
    allocate_draft();
    allocate(folder, weights);
    room_ = plan.max_length;
  }
  // The parameters of an allocated store: mapped from a packed model where they can be, or by `weights`.
  void fill(const std::string& folder, const ParameterLayout& layout, Store& store, const LoadWeights& weights);
  // Texts that are written at once: all samples of a job, and several jobs, `most` if there are so many.
  static int64_t texts_at_once(int64_t jobs, int64_t samples, int64_t most);

  const TextGenerationOptions options_;
  const WeightQuantization quantization_;
  const std::vector<AdapterFolder> adapters_;
  std::vector<int32_t> never_;  // tokens that are not written
  bool slides_ = false;         // a sampled text goes on where the cache is full
  ThreadPool pool_;

 private:
  void allocate(const std::string& folder, const LoadWeights& weights);

  std::optional<ParameterLayout> layout_;
  Store store_;
  std::optional<Engine> engine_;
  int64_t room_ = 0;
  WeightCheck check_ = WeightCheck::kNow;
  std::vector<std::unique_ptr<const ParameterFile>> packed_;  // whose pages may lie in the store
};

// Cache, threads and device are those of `options`. The others: of a folder that is known to go on from prompts, or to
// answer them (T5, Marian, a run of translation).
std::unique_ptr<TextModel> open_decoder_model(const std::string& folder, const TextGenerationOptions& options);
std::unique_ptr<TextModel> open_source_model(const std::string& folder, const TextGenerationOptions& options);
std::unique_ptr<TextModel> open_text_model(const std::string& folder, const TextGenerationOptions& options);

}  // namespace linnet
