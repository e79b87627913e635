// A model that writes: loaded once, its memory planned for a list of requests.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "generate/engine.h"
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

// Writes several requests at once, those that follow beside the one that is asked for. A request gives the same text
// whatever else is written.
class TextGeneration : public TextWriter {
 public:
  // Loads the model. User error, which names the request, for a prompt that does not fit.
  TextGeneration(const std::string& folder, const std::vector<TextRequest>& requests);

  std::vector<WrittenText> write(size_t request, const TextListener& hear) override;
  const std::vector<int32_t>& prompt(size_t request) const override { return jobs_[request].prompt; }

 private:
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
    bool is_chat = false, log_probabilities = false;
    std::vector<Text> texts = {};  // while the engine has it
  };
  CausalOptions plan() const;
  void begin(Job& job);
  void begin_ahead();
  void collect();

  OpenedLanguageModel opened_;
  const TextGenerationOptions options_;
  std::vector<Job> jobs_;
  ParameterLayout layout_;
  Store store_;
  std::optional<Engine> engine_;
  std::map<RequestId, Text*> writing_;  // what the engine has
  size_t ahead_ = 0;                    // the next job to begin before it is asked for
  ThreadPool pool_;
};

}  // namespace linnet
