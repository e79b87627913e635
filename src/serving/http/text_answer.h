// The answer to a text request, built from events of the model's thread: whole at the end, or as a stream.
#pragma once
#include <chrono>
#include "serving/http/api_answer.h"
#include "serving/http/http.h"
#include "serving/loaded/text_worker.h"

namespace linnet {
class TextAnswer : public std::enable_shared_from_this<TextAnswer> {
 public:
  struct Form {
    AnswerHead head = {};
    bool stream = false, include_usage = false;
    std::vector<std::string> functions = {};  // functions that a text may call
    // Formats a whole answer; empty: as OpenAI.
    std::function<std::string(const std::vector<AnswerChoice>&, const TokenUsage&)> whole = {};
  };
  // Receives metrics, in the model's thread.
  struct Sink {
    std::function<void(double seconds)> first_token = {};
    std::function<void(HttpExchange&, const TokenUsage&)> done = {};
  };

  TextAnswer(std::shared_ptr<HttpExchange> exchange, Form form, Sink sink)
      : exchange_(std::move(exchange)), form_(std::move(form)), sink_(std::move(sink)) {}

  const std::shared_ptr<HttpExchange>& exchange() const { return exchange_; }

  // Events for an order whose samples are the choices from `first_choice`. Their texts begin with `echo`.
  TextEvents events(int64_t first_choice, int64_t prompt_tokens, const std::string& echo);
  void skip(int64_t choice);   // leaves a choice empty
  void finish_empty();         // leaves all choices empty
  void expect(int64_t texts);  // call before any order is submitted

  void add_order(int64_t order);
  std::vector<int64_t> orders() const;
  // Ends the texts early: the client left, or they took too long.
  void abort(HttpAbort why);

 private:
  void make_room(int64_t choice);
  void begin_stream();
  void write_piece(int64_t choice, const std::string& piece, const WrittenToken* token);
  void hear(int64_t choice, const std::string& piece, const WrittenToken* token);
  void finish(int64_t choice, TextOutcome&& outcome);
  void finish_all();

  const std::shared_ptr<HttpExchange> exchange_;
  const Form form_;
  const Sink sink_;
  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();

  mutable std::mutex mutex_;
  std::vector<AnswerChoice> choices_;
  std::vector<std::string> echoes_;
  std::vector<std::string> pending_;  // held-back text that may become a call, for streams with functions
  std::vector<bool> begun_;           // choices whose first event was written
  std::vector<int64_t> orders_;
  TokenUsage usage_;
  int64_t left_ = 0;
  bool heard_ = false, streaming_ = false, timed_out_ = false;
  std::string error_;
  bool bad_request_ = false;
};
}  // namespace linnet
