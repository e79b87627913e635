// A model that writes: loaded once, its memory planned for a list of requests.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "generate/engine.h"
#include "nn/model_store.h"
#include "tasks/generation/generation_choice.h"
#include "tasks/generation/text_request.h"
#include "tasks/generation/written_row.h"

namespace linnet {

// Gets the first sample of a text piece by piece, in whole characters; returns whether to go on.
using TextListener = std::function<bool(const std::string& piece)>;

class TextWriter {
 public:
  virtual ~TextWriter() = default;
  // Writes the samples of a request.
  virtual std::vector<WrittenText> write(size_t request, const TextListener& hear) = 0;
  // The tokens that the model gets for a request.
  virtual const std::vector<int32_t>& prompt(size_t request) const = 0;
};

// Of a decoder that goes on from the prompt, or of an encoder-decoder that answers it (T5, Marian, runs of
// translation). Samples, cache, threads and device are those of the first request.
std::unique_ptr<TextWriter> open_text_writer(const std::string& folder, const std::vector<TextRequest>& requests);

// Writes with an engine: several requests at once, those that follow beside the one that is asked for. A request gives
// the same text whatever else is written.
class EngineWriter : public TextWriter {
 public:
  std::vector<WrittenText> write(size_t request, const TextListener& hear) override;
  const std::vector<int32_t>& prompt(size_t request) const override { return jobs_[request].prompt; }

 protected:
  struct Text {  // a sample of a request
    WrittenRow row;
    std::string unheard = {};  // certain, and not yet given to a listener
    FinishedRequest finished = {};
    bool done = false;
  };
  struct Job {
    std::vector<int32_t> prompt;
    GenerationChoice choice;
    std::vector<std::string> stops;
    bool log_probabilities = false;
    std::function<std::unique_ptr<TextFlow>()> flow = {};  // decodes a text as it comes
    std::vector<Text> texts = {};                          // while the engine has it
  };

  // Samples, cache, threads and device are those of `options`.
  explicit EngineWriter(const TextGenerationOptions& options);
  // Job and request must agree: user error for a stop text that is empty or meant for a search.
  void add(const TextRequest& request, Job job);
  // Plans and takes the memory, then loads the weights. Once, after all jobs have been added.
  template <class Model, class Options>
  void load(Model& model, const Options& plan, const std::function<void(const ParameterLayout&, float*)>& weights) {
    layout_.emplace(model);
    const SharedRegions shared = declare_model(store_, *layout_);
    engine_.emplace(model, *layout_, store_, shared, plan);
    allocate(weights);
  }

  // Texts that are written at once: all samples of a request, and several requests.
  int64_t texts_at_once(int64_t most) const;

  const TextGenerationOptions options_;
  std::vector<Job> jobs_;
  std::vector<int32_t> never_;  // tokens that are not written
  bool slides_ = false;         // a sampled text goes on where the cache is full
  ThreadPool pool_;

 private:
  void allocate(const std::function<void(const ParameterLayout&, float*)>& weights);
  void begin(Job& job);
  void begin_ahead();
  void collect();

  std::optional<ParameterLayout> layout_;
  Store store_;
  std::optional<Engine> engine_;
  std::map<RequestId, Text*> writing_;  // what the engine has
  size_t ahead_ = 0;                    // the next job to begin before it is asked for
};

}  // namespace linnet
