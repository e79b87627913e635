// Many requests to one model, answered in their order: lines of text, or lines of JSON.
#pragma once
#include "serving/loaded/loaded_model.h"

namespace linnet {

// One line of output for each line of input that is not blank (of text: for every line).
//
// JSON lines have "text" (a language model's "prompt", "messages" or "tokens", with settings, as of `linnet generate
// --jsonl`) and "id", which the answer repeats. Answers have "request", the number of the line's request from 0, and
//
//   language      what `linnet generate --jsonl` writes
//   translation   "translation"
//   classifier    "label", "probability"
//   embedder      "embedding"
//   any           "error" where the request is wrong
//
// Lines of text give a text (line ends inside as "\n"), a translation, label and probability with a tab between, or
// numbers with blanks between.
struct BatchOptions {
  bool json = false;
  TextGenerationOptions text;  // of language models and translators
  int64_t skip = 0;            // requests at the beginning that are answered already
  std::string name;            // of the input, for messages
  size_t ahead = 256;          // requests that may be under way; 0: each is answered before the next is read
};

// Reads the next line; nothing at the end.
using NextLine = std::function<std::optional<std::string>()>;
// Takes an answer without its line end.
using TakeAnswer = std::function<void(const std::string& answer)>;

struct BatchCounts {
  int64_t answers = 0;
  int64_t refused = 0;  // answers with "error"
};

// A request that is wrong: in JSON its answer has "error", which names the line; a line of text is a user error, and
// the answers to those before it are given first. It ends early, with the answers so far, when `stopped` says so.
BatchCounts answer_batch(LoadedModel& model, const BatchOptions& options, const NextLine& next, const TakeAnswer& take,
                         const std::function<bool()>& stopped);

}  // namespace linnet
