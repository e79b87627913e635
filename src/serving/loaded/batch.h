// Answers many requests to one model in order, as lines of text or JSON.
#pragma once
#include "serving/loaded/loaded_model.h"

namespace linnet {
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

// Reads the next line; empty at the end.
using NextLine = std::function<std::optional<std::string>()>;
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
}  // namespace linnet
