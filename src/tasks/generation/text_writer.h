// A model that writes: loaded once, its memory planned for a list of requests. Several requests are written at once,
// those that follow beside the one that is asked for. A request gives the same text whatever else is written.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>
#include "generation/generators.h"
#include "tasks/generation/text_model.h"
#include "tasks/generation/text_request.h"
#include "tasks/text_coder.h"

namespace linnet {

// One text as its tokens come: decoded, and watched for the texts that stop it.

class WrittenRow {
 public:
  WrittenRow(std::unique_ptr<TextFlow> flow, std::vector<std::string> stops)
      : flow_(std::move(flow)), stops_(std::move(stops)) {}

  // The text that is now certain to belong to the result, often "". What may be the beginning of a stop text is held
  // back.
  std::string push(int32_t token) { return stopped_ ? "" : take(flow_->push(token), false); }
  std::string finish() { return stopped_ ? "" : take(flow_->finish(), true); }
  bool stopped() const { return stopped_; }          // a stop text came; the text ends before it
  const std::string& text() const { return text_; }  // all that push() and finish() returned

 private:
  std::string take(const std::string& piece, bool last);
  size_t held_back() const;  // bytes at the end of pending_ that may begin a stop text

  std::unique_ptr<TextFlow> flow_;
  const std::vector<std::string> stops_;
  std::string text_, pending_;
  bool stopped_ = false;
};

// `go_on`: nobody interrupted the writing.
WrittenText written_text(const Continuation& result, const WrittenRow& row, bool go_on);

// Gets the first sample of a text piece by piece, in whole characters; returns whether to go on.
using TextListener = std::function<bool(const std::string& piece)>;

// A line in the log for what the prefix cache and the draft model have spared, if there was something.
void log_reuse(const EngineCounts& counts);

class TextWriter {
 public:
  // Loads the model: of a decoder that goes on from the prompt, or of an encoder-decoder that answers it (T5, Marian,
  // runs of translation). Samples, cache, threads and device are those of the first request. User error, which names
  // the request, for a prompt that does not fit.
  TextWriter(const std::string& folder, const std::vector<TextRequest>& requests);

  // Writes the samples of a request.
  std::vector<WrittenText> write(size_t request, const TextListener& hear);
  EngineCounts counts() const { return model_->engine().counts(); }
  // The tokens that the model gets for a request.
  const std::vector<int32_t>& prompt(size_t request) const { return jobs_[request].prompt; }

 private:
  struct Text {  // a sample of a request
    WrittenRow row;
    std::string unheard = {};  // certain, and not yet given to a listener
    FinishedRequest finished = {};
    bool done = false;
  };

  void begin(size_t job);
  void begin_ahead();
  void collect();

  const std::unique_ptr<TextModel> model_;
  const int64_t samples_;
  std::vector<TextJob> jobs_;
  std::vector<std::vector<Text>> texts_;  // of each job, while the engine has it
  std::map<RequestId, Text*> writing_;    // what the engine has
  size_t ahead_ = 0;                      // the next job to begin before it is asked for
};

}  // namespace linnet
