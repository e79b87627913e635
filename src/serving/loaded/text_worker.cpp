#include "serving/loaded/text_worker.h"
#include <algorithm>
#include "base/error.h"
#include "engine/kernels/reduce/reduce.h"

namespace linnet {
constexpr int64_t kAhead = 1;

struct TextWorker::Sample {
  int64_t order, index;
  std::shared_ptr<const TextOrder> request;
  std::shared_ptr<const std::string> client;
  WrittenRow row;
  std::vector<WrittenToken> tokens = {};
};

TextEvents HeardText::events() {
  const std::shared_ptr<HeardText> self = shared_from_this();
  const auto token = [self](int64_t, const std::string& piece, const WrittenToken*) {
    if (piece.empty()) return;
    const std::lock_guard lock(self->mutex_);
    self->pieces_.push_back(piece);
    self->changed_.notify_all();
  };
  const auto finished = [self](int64_t, TextOutcome&& outcome) {
    const std::lock_guard lock(self->mutex_);
    self->outcome_ = std::move(outcome);
    self->changed_.notify_all();
  };
  return {token, finished};
}

bool HeardText::next(std::optional<std::string>& piece, std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, patience, [&] { return !pieces_.empty() || outcome_; })) return false;
  piece.reset();
  if (pieces_.empty()) return true;
  piece = std::move(pieces_.front());
  pieces_.pop_front();
  return true;
}

bool HeardText::ended() const {
  const std::lock_guard lock(mutex_);
  return outcome_.has_value();
}

TextWorker::TextWorker(std::unique_ptr<TextModel> model, const TextWorkerLimits& limits)
    : model_(std::move(model)), limits_(limits) {}

TextWorker::~TextWorker() = default;

bool TextWorker::submit(
    std::vector<TextOrder> orders, const std::string& client, const std::function<void(int64_t)>& begin) {
  int64_t texts = 0;
  for (const TextOrder& order : orders) texts += order.samples;
  const std::lock_guard lock(mutex_);
  const int64_t slots = model_->engine().slots() / model_->engine().beams();
  if (texts_ + texts > slots + limits_.waiting * TextWorkerLimits::kClients) return false;
  const auto known = texts_of_.find(client);
  if ((known == texts_of_.end() ? 0 : known->second) + texts > slots + limits_.waiting) return false;
  texts_ += texts, texts_of_[client] += texts;
  const auto name = std::make_shared<const std::string>(client);
  for (TextOrder& order : orders) {
    if (begin) begin(next_order_);
    waiting_.push(client, {next_order_++, std::make_shared<const TextOrder>(std::move(order)), name});
  }
  wake_.notify_one();
  return true;
}

int64_t TextWorker::submit(TextOrder order) {
  int64_t id = -1;
  std::vector<TextOrder> orders;
  orders.push_back(std::move(order));
  submit(std::move(orders), "", [&](int64_t number) { id = number; });
  return id;
}

void TextWorker::cancel(int64_t order) {
  const std::lock_guard lock(mutex_);
  cancelled_.push_back(order);
  wake_.notify_one();
}

TextWorker::Load TextWorker::load() const {
  const std::lock_guard lock(mutex_);
  const int64_t at_once = model_->engine().slots() / model_->engine().beams();
  return {at_once, std::min(texts_, at_once), std::max<int64_t>(0, texts_ - at_once), counts_};
}

void TextWorker::work(const std::stop_token& stop) {
  Engine& engine = model_->engine();
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, stop, [&] { return engine.busy() || !waiting_.empty() || !cancelled_.empty(); });
      if (stop.stop_requested() && waiting_.empty() && !engine.busy()) return;
    }
    try {
      take_orders();
      if (engine.busy()) engine.step(model_->pool());
      {
        const std::lock_guard lock(mutex_);
        counts_ = engine.counts();
      }
      model_->check_weights();
      collect();
    } catch (const Error& error) {  // current texts are lost; the model continues
      fail_all(error.what(), error.kind() == ErrorKind::kUser);
    } catch (const std::exception& error) {
      fail_all(error.what(), false);
    }
  }
}

void TextWorker::take_orders() {
  std::vector<int64_t> cancelled;
  {
    const std::lock_guard lock(mutex_);
    cancelled.swap(cancelled_);
  }
  if (!cancelled.empty()) cancel_orders(cancelled);
  while (std::unique_ptr<Sample> sample = next_sample()) begin(std::move(sample));
}

void TextWorker::cancel_orders(const std::vector<int64_t>& orders) {
  const auto is_cancelled = [&](int64_t order) { return std::ranges::find(orders, order) != orders.end(); };
  std::vector<Waiting> removed;
  {
    const std::lock_guard lock(mutex_);
    waiting_.remove_if([&](const Waiting& waiting) {
      if (!is_cancelled(waiting.id)) return false;
      removed.push_back(waiting);
      return true;
    });
  }
  for (const Waiting& waiting : removed)
    for (int64_t i = waiting.begun; i < waiting.order->samples; ++i) {
      Sample sample{waiting.id, i, waiting.order, waiting.client,
          WrittenRow(waiting.order->job.flow(), waiting.order->job.stops)};
      finish(sample, {.id = -1, .result = {}, .reason = EndReason::kCancelled});
      forget(sample);
    }
  for (const auto& [id, sample] : samples_)
    if (is_cancelled(sample->order)) model_->engine().cancel(id);
}

// The next text once the engine has slots for it; kAhead more are submitted to begin in the step that frees slots. The
// engine serves in order of submission. Without a client name ("") there is one client, and the engine gets everything.
std::unique_ptr<TextWorker::Sample> TextWorker::next_sample() {
  const std::lock_guard lock(mutex_);
  if (waiting_.empty()) return nullptr;
  Waiting& next = waiting_.front();
  const int64_t ahead = kAhead * slots_of(*next.order);
  if (!next.client->empty() && slots_taken() >= model_->engine().slots() + ahead) return nullptr;
  auto sample = std::make_unique<Sample>(
      Sample{next.id, next.begun, next.order, next.client, WrittenRow(next.order->job.flow(), next.order->job.stops)});
  ++next.begun;
  waiting_.end_turn(sample->index + 1 == sample->request->samples);
  return sample;
}

// An encoder-decoder gives each text the slots of a whole search.
int64_t TextWorker::slots_of(const TextOrder& order) const {
  return model_->answers() ? model_->engine().beams() : order.job.choice.beams;
}

int64_t TextWorker::slots_taken() const {
  int64_t slots = 0;
  for (const auto& [id, sample] : samples_) slots += slots_of(*sample->request);
  return slots;
}

void TextWorker::begin(std::unique_ptr<Sample> sample) {
  const std::shared_ptr<const TextOrder> order = sample->request;
  try {
    GenerateRequest request = model_->engine_request(order->job, static_cast<uint64_t>(sample->index));
    request.listener = [this, heard_by = sample.get()](const GeneratedToken& heard) {
      hear(*heard_by, heard);
      return !heard_by->row.stopped();
    };
    samples_[model_->engine().submit(std::move(request))] = std::move(sample);
  } catch (const std::exception& error) {
    const auto* known = dynamic_cast<const Error*>(&error);
    const bool bad_request = known && known->kind() == ErrorKind::kUser;
    order->events.finished(sample->index, {.error = error.what(), .bad_request = bad_request});
    forget(*sample);
  }
}

// Removes a finished text whose listener was called.
void TextWorker::forget(const Sample& sample) {
  const std::lock_guard lock(mutex_);
  --texts_;
  const auto of_client = texts_of_.find(*sample.client);
  if (--of_client->second == 0) texts_of_.erase(of_client);
}

void TextWorker::hear(Sample& sample, const GeneratedToken& heard) {
  if (heard.token < 0) return;  // a search only knows its text at the end
  const TextOrder& order = *sample.request;
  if (order.alternatives >= 0) {
    const double log_sum = log_sum_exp_of(heard.logits);
    const auto chance = [&](int32_t token) {
      return TokenChance{token, model_->piece_of(token), heard.logits[token] - log_sum};
    };
    WrittenToken token{chance(heard.token)};
    if (const int64_t count = std::min(order.alternatives, std::ssize(heard.logits)); count > 0) {
      std::vector<float> values(count);
      std::vector<int32_t> ids(values.size());
      top_k_rows(1, std::ssize(heard.logits), count, heard.logits.data(), values.data(), ids.data());
      for (const int32_t id : ids) token.likeliest.push_back(chance(id));
    }
    sample.tokens.push_back(std::move(token));
  }
  const std::string piece = sample.row.push(heard.token);
  if (order.events.token)
    order.events.token(sample.index, piece, order.alternatives >= 0 ? &sample.tokens.back() : nullptr);
}

void TextWorker::collect() {
  for (FinishedRequest& finished : model_->engine().take_finished()) {
    const std::unique_ptr<Sample> sample = std::move(samples_.extract(finished.id).mapped());
    finish(*sample, std::move(finished));
    forget(*sample);
  }
}

void TextWorker::finish(Sample& sample, FinishedRequest finished) {
  const TextEvents& events = sample.request->events;
  std::string rest;
  if (sample.request->job.choice.beams > 1)
    for (const int32_t token : finished.result.tokens) rest += sample.row.push(token);
  rest += sample.row.finish();
  if (!rest.empty() && events.token) events.token(sample.index, rest, nullptr);
  const bool whole = finished.reason != EndReason::kCancelled;
  events.finished(sample.index, {written_text(finished.result, sample.row, whole), std::move(sample.tokens)});
}

void TextWorker::fail_all(const std::string& why, bool is_user_error) {
  for (const auto& [id, sample] : samples_) model_->engine().cancel(id);
  model_->engine().take_finished();
  for (const auto& [id, sample] : std::exchange(samples_, {})) {
    sample->request->events.finished(sample->index, {.error = why, .bad_request = is_user_error});
    forget(*sample);
  }
}
}  // namespace linnet
