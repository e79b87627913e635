// The answer to a request that writes texts, put together from what the model's thread tells: whole at the end, or as a
// stream of events while the texts grow.
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
    std::vector<std::string> functions = {};  // that a text may call
    // The body of a whole answer; empty: OpenAI's.
    std::function<std::string(const std::vector<AnswerChoice>&, const TokenUsage&)> whole = {};
  };
  // Where figures go. Called in the model's thread.
  struct Sink {
    std::function<void(double seconds)> first_token = {};
    std::function<void(HttpExchange&, const TokenUsage&)> done = {};
  };

  TextAnswer(std::shared_ptr<HttpExchange> exchange, Form form, Sink sink)
      : exchange_(std::move(exchange)), form_(std::move(form)), sink_(std::move(sink)) {}

  const std::shared_ptr<HttpExchange>& exchange() const { return exchange_; }

  // What an order tells; its samples are the choices from `first_choice`. `echo` begins their texts.
  TextEvents events(int64_t first_choice, int64_t prompt_tokens, const std::string& echo);
  void skip(int64_t choice);   // a choice that stays empty
  void finish_empty();         // all are
  void expect(int64_t texts);  // before any order is given

  void add_order(int64_t order);
  std::vector<int64_t> orders() const;
  // The texts end early, and nobody reads them, or they took too long.
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
  std::vector<std::string> pending_;  // of a stream with functions: what may become a call
  std::vector<bool> begun_;           // choices whose first event was written
  std::vector<int64_t> orders_;
  TokenUsage usage_;
  int64_t left_ = 0;
  bool heard_ = false, streaming_ = false, timed_out_ = false;
  std::string error_;
  bool bad_request_ = false;
};

}  // namespace linnet
