// A model loaded for a list of requests. It also writes the next texts ahead, which does not change any text.
#pragma once
#include "generation/engine.h"
#include "tasks/generation/text_model.h"
#include "tasks/generation/text_request.h"
#include "tasks/text_coder.h"

namespace linnet {
// One text decoded as its tokens come, up to a stop text.
class WrittenRow {
 public:
  explicit WrittenRow(const TextJob& job) : flow_(job.flow()), stops_(job.stops), search_(job.choice.beams > 1) {}

  // The text now certain to belong to the result, often "". What may begin a stop text is held back.
  std::string push(int32_t token) { return stopped_ ? "" : take(flow_->push(token), false); }
  std::string finish(const Continuation& result);    // what is left, all of it for a search
  bool stopped() const { return stopped_; }          // at a stop text, which is not in the result
  const std::string& text() const { return text_; }  // all that push() and finish() returned

 private:
  std::string take(const std::string& piece, bool last);
  size_t held_back() const;  // bytes at the end of pending_ that may begin a stop text

  std::unique_ptr<TextFlow> flow_;
  const std::vector<std::string> stops_;
  const bool search_;  // only knows its text at the end
  std::string text_, pending_;
  bool stopped_ = false;
};

// `go_on`: the writing was not interrupted.
WrittenText written_text(const Continuation& result, const WrittenRow& row, bool go_on);

// Gets the first sample of a text in pieces of whole characters; returns whether to continue.
using TextListener = std::function<bool(const std::string& piece)>;

// Logs what the prefix cache and the draft model saved, if anything.
void log_reuse(const EngineCounts& counts);

class TextWriter {
 public:
  // Loads a decoder-only model or an encoder-decoder (T5, Marian, translation runs). Samples, cache, threads and device
  // are those of the first request. User error naming the request if its prompt does not fit.
  TextWriter(const std::string& folder, const std::vector<TextRequest>& requests);

  // Writes all samples of a request.
  std::vector<WrittenText> write(size_t request, const TextListener& hear);
  EngineCounts counts() const { return model_->engine().counts(); }
  // The prompt as the model's tokens.
  const std::vector<int32_t>& prompt(size_t request) const { return jobs_[request].prompt; }

 private:
  struct Text {  // a sample of a request
    WrittenRow row;
    std::string unheard = {};  // certain, but not yet passed to a listener
    FinishedRequest finished = {};
    bool done = false;
  };

  void begin(size_t job);
  void collect();

  const std::unique_ptr<TextModel> model_;
  const int64_t samples_;
  std::vector<TextJob> jobs_;
  std::vector<std::vector<Text>> texts_;  // of each job in the engine
  std::map<RequestId, Text*> writing_;    // texts in the engine
  size_t ahead_ = 0;                      // the next job to begin early
};
}  // namespace linnet
