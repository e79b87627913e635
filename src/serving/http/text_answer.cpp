#include "serving/http/text_answer.h"

namespace linnet {
void TextAnswer::make_room(int64_t choice) {
  const auto size = static_cast<size_t>(choice + 1);
  if (choices_.size() < size) choices_.resize(size), echoes_.resize(size), pending_.resize(size), begun_.resize(size);
}

TextEvents TextAnswer::events(int64_t first_choice, int64_t prompt_tokens, const std::string& echo) {
  usage_.prompt += prompt_tokens;
  TextEvents events;
  const auto location = [=, self = shared_from_this()](int64_t sample) {
    self->make_room(first_choice + sample);
    self->echoes_[first_choice + sample] = echo;
    return first_choice + sample;
  };
  events.token = [self = shared_from_this(), location](
                     int64_t sample, const std::string& piece, const WrittenToken* token) {
    const std::lock_guard lock(self->mutex_);
    self->hear(location(sample), piece, token);
  };
  events.finished = [self = shared_from_this(), location](int64_t sample, TextOutcome&& outcome) {
    const std::lock_guard lock(self->mutex_);
    self->finish(location(sample), std::move(outcome));
  };
  return events;
}

void TextAnswer::skip(int64_t choice) {
  const std::lock_guard lock(mutex_);
  make_room(choice);
  choices_[choice].end = TextEnd::kEndToken;
}

void TextAnswer::finish_empty() {
  const std::lock_guard lock(mutex_);
  finish_all();
}

void TextAnswer::expect(int64_t texts) {
  const std::lock_guard lock(mutex_);
  left_ = texts;
}

void TextAnswer::add_order(int64_t order) {
  const std::lock_guard lock(mutex_);
  orders_.push_back(order);
}

std::vector<int64_t> TextAnswer::orders() const {
  const std::lock_guard lock(mutex_);
  return orders_;
}

void TextAnswer::abort(HttpAbort why) {
  const std::lock_guard lock(mutex_);
  timed_out_ = why == HttpAbort::kTimeout;
}

void TextAnswer::begin_stream() {
  if (streaming_) return;
  streaming_ = true;
  exchange_->begin_stream({.type = "text/event-stream; charset=utf-8", .headers = {{"Cache-Control", "no-store"}}});
}

void TextAnswer::hear(int64_t choice, const std::string& piece, const WrittenToken* token) {
  if (!heard_ && sink_.first_token)
    sink_.first_token(std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count());
  heard_ = true;
  if (!form_.stream) return;
  if (form_.functions.empty()) return write_piece(choice, piece, token);
  std::string& pending = pending_[choice];
  pending += piece;
  const size_t certain = certain_content(pending);
  write_piece(choice, pending.substr(0, certain), token);
  pending.erase(0, certain);
}

void TextAnswer::write_piece(int64_t choice, const std::string& piece, const WrittenToken* token) {
  begin_stream();
  const auto i = static_cast<size_t>(choice);
  std::string events;
  if (!begun_[i]) {
    begun_[i] = true;
    if (form_.head.is_chat) events += format_role_event(form_.head, choice);
    if (!echoes_[i].empty()) events += format_piece_event(form_.head, choice, echoes_[i], nullptr);
  }
  if (!piece.empty() || token) events += format_piece_event(form_.head, choice, piece, token);
  exchange_->write(std::move(events));
}

void TextAnswer::finish(int64_t choice, TextOutcome&& outcome) {
  AnswerChoice& done = choices_[choice];
  if (!outcome.error.empty()) error_ = outcome.error, bad_request_ = outcome.bad_request;
  done.text = echoes_[choice] + outcome.text.text;
  done.end = outcome.text.end;
  done.has_tokens = !outcome.tokens.empty();
  done.tokens = std::move(outcome.tokens);
  usage_.written += std::ssize(outcome.text.tokens) + (outcome.text.end_token >= 0 ? 1 : 0);
  std::string& pending = pending_[choice];
  if (!form_.functions.empty()) {
    TextWithCalls found = find_tool_calls(done.text, form_.functions);
    // Streams: drops the calls from the held-back text.
    pending.resize(pending.size() - std::min(pending.size(), done.text.size() - found.content.size()));
    done.text = std::move(found.content), done.calls = std::move(found.calls);
  }
  if (form_.stream && error_.empty() && !timed_out_) {
    if (!begun_[choice] || !pending.empty()) write_piece(choice, pending, nullptr);
    if (!done.calls.empty()) exchange_->write(format_calls_event(form_.head, choice, done.calls));
    exchange_->write(format_end_event(form_.head, choice, done));
  }
  if (--left_ == 0) finish_all();
}

void TextAnswer::finish_all() {
  if (sink_.done) sink_.done(*exchange_, usage_);
  if (timed_out_ || !error_.empty()) {
    const ApiError error(timed_out_     ? 408
                         : bad_request_ ? 422
                                        : 500,
        timed_out_ ? "the text was not finished within the server's limit of time" : error_);
    if (!streaming_) return exchange_->respond(error_response(error));
    exchange_->write(format_event(error_body(error)));
    return exchange_->end_stream();
  }
  if (!form_.stream)
    return exchange_->respond(
        {.body = (form_.whole ? form_.whole(choices_, usage_) : format_answer(form_.head, choices_, usage_)) + "\n"});
  if (form_.include_usage) exchange_->write(format_usage_event(form_.head, usage_));
  exchange_->write(kDoneEvent);
  exchange_->end_stream();
}
}  // namespace linnet
