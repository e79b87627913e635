// Handles requests for models: checks their text, submits it to the models' workers, and answers with what they write.
#include <algorithm>
#include <ctime>
#include <random>
#include "base/fail.h"
#include "base/text.h"
#include "models/families/sentence_embedder.h"
#include "serving/http/service.h"
#include "tasks/texts/text_classifier.h"

namespace linnet {
namespace {
constexpr const char* kTooMany = "too many requests wait; try again in a moment";

template <class... Parts> [[noreturn]] void fail_api(int status, const char* param, const Parts&... parts) {
  throw ApiError(status, text_of_parts(parts...), param);
}

uint64_t random_seed() {
  std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) | device();
}

// What `call` returns. Its errors are the request's.
template <class Call> auto checked(int status, const char* param, const Call& call) {
  try {
    return call();
  } catch (const Error& error) {
    fail_api(status, param, error.what());
  }
}
}  // namespace

// All errors are the request's.
TextJob Service::prepare(const ServedModel& model, const TextRequest& request, bool translation) const {
  const TextModel& writer = model.resident->text->model();
  TextJob job =
      checked(422, "", [&] { return translation ? writer.prepare_translation(request) : writer.prepare(request); });
  const int64_t most = options_.max_tokens > 0 ? std::min(options_.max_tokens, writer.room()) : writer.room();
  const auto prompt = static_cast<int64_t>(job.prompt.size());
  if (prompt >= writer.room() + (writer.answers() ? 1 : 0))
    throw ApiError(422,
        text_of_parts(request.where, " has ", prompt, " tokens, and the server takes ", writer.room(),
            writer.answers() ? "" : ", the text it writes included"),
        "", "context_length_exceeded");
  if (request.options.max_tokens && *request.options.max_tokens > most)
    fail_api(
        422, "max_tokens", "max_tokens is ", *request.options.max_tokens, ", and the server writes at most ", most);
  job.choice.max_tokens = std::min(job.choice.max_tokens, most);
  if (const int64_t beams = writer.beams(); job.choice.beams > beams)
    fail_api(422, "beam", "a search of ", job.choice.beams, " beams is more than the ", beams,
        " that the server has room for (linnet serve --beam)");
  return job;
}

void Service::submit(const Model& model, std::vector<TextOrder> orders, const std::shared_ptr<TextAnswer>& answer,
    const std::string& client) {
  TextWorker& worker = *model->resident->text;
  const int64_t texts = sum_of<int64_t>(orders, &TextOrder::samples);
  const int64_t room = worker.load().slots + options_.resident.limits.waiting;
  if (texts > room)
    fail_api(422, "", "the request asks for ", texts, " texts, and at most ", room, " run and wait at once");
  answer->expect(texts);
  std::vector<int64_t> numbers;
  if (!worker.submit(std::move(orders), client, [&](int64_t number) { numbers.push_back(number); }))
    fail_api(429, "", kTooMany);
  answer->exchange()->on_abort([answer, numbers, weak = std::weak_ptr(model)](HttpAbort why) {
    answer->abort(why);
    if (const Model still = weak.lock())
      for (const int64_t number : numbers) still->resident->text->cancel(number);
  });
}

void Service::write_text(TextCall call, const Call& from) {
  const Model model = find(call.model, {ModelKind::kLanguage, ModelKind::kTranslation});
  if (call.is_chat && !model->resident->text->model().has_chat_template())
    fail_api(400, "messages", "the model \"", model->name, "\" has no chat template; /v1/completions takes a prompt");
  TextAnswer::Form form{.choices = call.requests.size() * static_cast<size_t>(call.samples),
      .stream = call.stream,
      .include_usage = call.include_usage,
      .functions = call.functions};
  form.head = {.id = (call.is_chat ? "chatcmpl-" : "cmpl-") + from.to->id(),
      .model = model->name,
      .created = std::time(nullptr),
      .is_chat = call.is_chat};
  const auto answer = std::make_shared<TextAnswer>(from.to, form, metrics_);
  std::vector<TextOrder> orders;
  int64_t choice = 0;
  for (TextRequest& request : call.requests) {
    if (!call.seed_given) request.options.seed = random_seed();
    request.options.log_probabilities = call.alternatives >= 0;
    TextOrder order{.job = prepare(*model, request), .samples = call.samples, .alternatives = call.alternatives};
    if (order.job.choice.beams > 1 && call.alternatives >= 0)
      fail_api(400, "logprobs", "probabilities of tokens are for sampling, not for a search");
    order.events = answer->events(choice, order, call.echo ? request.prompt : "");
    choice += call.samples;
    orders.push_back(std::move(order));
  }
  submit(model, std::move(orders), answer, from.client);
}

void Service::translate(InputCall call, const Call& from) {
  const Model model = find(call.model, {ModelKind::kTranslation});
  TextAnswer::Form form{.choices = call.texts.size(), .translates = true};
  form.head.model = model->name;
  const auto answer = std::make_shared<TextAnswer>(from.to, form, metrics_);
  std::vector<TextOrder> orders;
  for (size_t i = 0; i < call.texts.size(); ++i) {
    const TextRequest request{.prompt = call.texts[i],
        .options = call.options,
        .where = call.is_list ? "text " + std::to_string(i + 1) : "the text"};
    // Like `linnet translate`: blank text has an empty translation.
    if (request.prompt.find_first_not_of(" \t\r\n") == std::string::npos) continue;
    TextOrder order{.job = prepare(*model, request, true)};
    order.events = answer->events(static_cast<int64_t>(i), order, "");
    orders.push_back(std::move(order));
  }
  if (orders.empty()) return answer->expect(0);
  submit(model, std::move(orders), answer, from.client);
}

void Service::compute_rows(const Model& model, InputCall& call, const Call& from,
    const std::function<std::string(std::vector<float>&& rows, int64_t tokens)>& format) {
  RowWorker& worker = *model->resident->rows;
  const std::string prompt =
      checked(400, "prompt_name", [&] { return call.texts.empty() ? "" : worker.model().prompt(call.prompt); });
  std::vector<RowText> texts;
  checked(422, "input", [&] {
    for (std::vector<int32_t>& tokens : call.tokens) {
      worker.model().check(tokens);
      texts.push_back({std::move(tokens)});
    }
    for (size_t i = 0; i < call.texts.size(); ++i)
      texts.push_back(worker.model().encode(
          prompt + call.texts[i], i < call.pairs.size() && call.pairs[i] ? &*call.pairs[i] : nullptr));
  });
  const auto tokens = sum_of<int64_t>(texts, [](const RowText& text) { return std::ssize(text.tokens); });
  const auto finished = [exchange = from.to, format, tokens](RowOutcome&& outcome) {
    if (!outcome.error.empty()) return exchange->respond(error_response(ApiError(500, outcome.error)));
    exchange->respond({.body = format(std::move(outcome.rows), tokens) + "\n"});
  };
  if (!worker.submit(std::move(texts), finished, from.client)) fail_api(429, "", kTooMany);
  metrics_.add("linnet_prompt_tokens_total", {{"model", model->name}}, static_cast<double>(tokens));
}

void Service::embed(InputCall call, bool openai, const Call& from) {
  const Model model = find(call.model, {ModelKind::kEmbedder});
  const RowModel& embedder = model->resident->rows->model();
  const auto width = static_cast<int64_t>(embedder.width), kept = call.dimensions.value_or(width);
  if (kept > width) fail_api(400, "dimensions", "\"dimensions\" is ", kept, ", and the model gives ", width);
  const bool normalized = embedder.is_normalized || call.normalize;
  compute_rows(model, call, from,
      [=, name = model->name, normalize = call.normalize, base64 = call.base64](
          std::vector<float>&& rows, int64_t tokens) {
        if (normalize) normalize_rows(rows, static_cast<size_t>(width));
        const auto columns = static_cast<size_t>(kept);
        shorten_rows(rows, static_cast<size_t>(width), columns, normalized);
        return openai ? format_openai_embeddings(name, rows, columns, base64, tokens)
                      : format_embeddings(rows, columns);
      });
}

void Service::classify(InputCall call, const Call& from) {
  const Model model = find(call.model, {ModelKind::kClassifier});
  const std::vector<std::string> classes = model->resident->rows->model().classes;
  const auto top = static_cast<size_t>(call.top.value_or(std::ssize(classes)));
  compute_rows(model, call, from,
      [classes, top](std::vector<float>&& rows, int64_t) { return format_classes(rows, classes, top); });
}

void Service::rerank(InputCall call, const Call& from) {
  const Model model = find(call.model, {ModelKind::kClassifier});
  if (!model->resident->rows->model().is_reranker)
    fail_api(400, "model", "model \"", model->name, "\" is no reranker, which gives one number for two texts");
  RankedTexts ranked{.model = model->name, .plain = call.is_list};
  ranked.top = static_cast<size_t>(call.top.value_or(std::ssize(call.texts)));
  if (call.return_texts) ranked.texts = call.pairs;
  compute_rows(model, call, from, [ranked, raw = call.raw_scores](std::vector<float>&& scores, int64_t tokens) {
    if (!raw)
      for (float& score : scores) score = static_cast<float>(sigmoid(score));
    return format_ranks(ranked, scores, tokens);
  });
}

void Service::find_spans(InputCall call, const Call& from) {
  const Model model = find(call.model, {ModelKind::kSpans});
  Predictor& finder = *model->resident->spans;
  std::vector<std::string> texts;
  for (size_t i = 0; i < call.texts.size(); ++i) {
    const bool has_question = i < call.pairs.size() && call.pairs[i];
    if (has_question != finder.takes_pairs())
      fail_api(422, "inputs",
          has_question ? "the model labels the words of texts, and an input has a question"
                       : "the model answers questions: each input is {\"question\": ..., \"context\": ...}");
    texts.push_back(has_question ? with_tab(call.texts[i], *call.pairs[i]) : call.texts[i]);
  }
  model->span_thread->run(
      from.client, [&finder, to = from.to, texts, top = call.top.value_or(1), is_list = call.is_list] {
        answer_errors(to, [&] {
          const std::vector<Answer> found =
              checked(422, "inputs", [&] { return finder.answer(texts, std::min(top, finder.choices())); });
          to->respond({.body = format_spans(mapped(found, &Answer::json), is_list) + "\n"});
        });
      });
}

TextEvents TextAnswer::events(int64_t first_choice, const TextOrder& order, const std::string& echo) {
  usage_.prompt += std::ssize(order.job.prompt);
  for (int64_t sample = 0; sample < order.samples; ++sample) progress_[first_choice + sample].echo = echo;
  TextEvents events;
  events.token = [self = shared_from_this(), first_choice](
                     int64_t sample, const std::string& piece, const WrittenToken* token) {
    const std::lock_guard lock(self->mutex_);
    self->hear(first_choice + sample, piece, token);
  };
  events.finished = [self = shared_from_this(), first_choice](int64_t sample, TextOutcome&& outcome) {
    const std::lock_guard lock(self->mutex_);
    self->finish(first_choice + sample, std::move(outcome));
  };
  return events;
}

void TextAnswer::expect(int64_t texts) {
  const std::lock_guard lock(mutex_);
  left_ = texts;
  if (texts == 0) finish_all();
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
  if (!std::exchange(heard_, true))
    metrics_.observe("linnet_first_token_seconds", {{"model", form_.head.model}},
        std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count());
  if (!form_.stream) return;
  if (form_.functions.empty()) return write_piece(choice, piece, token);
  std::string& pending = progress_[choice].pending;
  pending += piece;
  const size_t certain = certain_content(pending);
  write_piece(choice, pending.substr(0, certain), token);
  pending.erase(0, certain);
}

void TextAnswer::write_piece(int64_t choice, const std::string& piece, const WrittenToken* token) {
  begin_stream();
  Progress& progress = progress_[choice];
  size_t& offset = choices_[choice].offset;
  std::string events;
  if (!std::exchange(progress.begun, true)) {
    offset = characters_begun(progress.echo);
    if (form_.head.is_chat) events += format_role_event(form_.head, choice);
    if (!progress.echo.empty()) events += format_piece_event(form_.head, choice, progress.echo, nullptr, 0);
  }
  if (!piece.empty() || token) events += format_piece_event(form_.head, choice, piece, token, offset);
  if (token) offset += characters_begun(token->piece);
  exchange_->write(std::move(events));
}

void TextAnswer::finish(int64_t choice, TextOutcome&& outcome) {
  AnswerChoice& done = choices_[choice];
  auto& [echo, pending, begun] = progress_[choice];
  if (!outcome.error.empty()) error_ = outcome.error, bad_request_ = outcome.kind == ErrorKind::kUser;
  done.text = echo + outcome.text.text;
  done.offset = characters_begun(echo);
  done.end = outcome.text.end;
  done.has_tokens = !outcome.tokens.empty();
  done.tokens = std::move(outcome.tokens);
  usage_.written += std::ssize(outcome.text.tokens) + (outcome.text.end_token >= 0 ? 1 : 0);
  if (!form_.functions.empty()) {
    TextWithCalls found = find_tool_calls(done.text, form_.functions);
    // Streams: drops the calls from the held-back text.
    pending.resize(pending.size() - std::min(pending.size(), done.text.size() - found.content.size()));
    done.text = std::move(found.content), done.calls = std::move(found.calls);
  }
  if (form_.stream && error_.empty() && !timed_out_) {
    if (!begun || !pending.empty()) write_piece(choice, pending, nullptr);
    if (!done.calls.empty()) exchange_->write(format_calls_event(form_.head, choice, done.calls));
    exchange_->write(format_end_event(form_.head, choice, done));
  }
  if (--left_ == 0) finish_all();
}

void TextAnswer::finish_all() {
  const std::string& model = form_.head.model;
  metrics_.add("linnet_prompt_tokens_total", {{"model", model}}, static_cast<double>(usage_.prompt));
  metrics_.add("linnet_generated_tokens_total", {{"model", model}}, static_cast<double>(usage_.written));
  exchange_->note(model + ", " + std::to_string(usage_.prompt) + " + " + std::to_string(usage_.written) + " tokens");
  if (timed_out_ || !error_.empty()) {
    const ApiError error(timed_out_     ? 408
                         : bad_request_ ? 422
                                        : 500,
        timed_out_ ? "the text was not finished within the server's limit of time" : error_);
    if (!streaming_) return exchange_->respond(error_response(error));
    exchange_->write(format_event(error_body(error)));
    return exchange_->end_stream();
  }
  if (!form_.stream) {
    const std::string body = form_.translates ? format_translations(mapped(choices_, &AnswerChoice::text))
                                              : format_answer(form_.head, choices_, usage_);
    return exchange_->respond({.body = body + "\n"});
  }
  if (form_.include_usage) exchange_->write(format_usage_event(form_.head, usage_));
  exchange_->write(kDoneEvent);
  exchange_->end_stream();
}
}  // namespace linnet
