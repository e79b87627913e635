#include "serving/loaded/text_worker.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/start_thread.h"
#include "engine/kernels/reduce/top_k.h"

namespace linnet {

struct TextWorker::Sample {
  int64_t order, index;
  std::shared_ptr<const TextOrder> request;
  WrittenRow row;
  std::vector<WrittenToken> tokens = {};
};

TextWorker::TextWorker(std::unique_ptr<TextModel> model, const TextWorkerLimits& limits)
    : model_(std::move(model)), limits_(limits), thread_(start_thread([this] { work(); })) {}

TextWorker::~TextWorker() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

int64_t TextWorker::submit(TextOrder order) {
  const std::lock_guard lock(mutex_);
  if (texts_ + order.samples > model_->engine().slots() / model_->engine().beams() + limits_.waiting) return -1;
  texts_ += order.samples;
  const int64_t id = next_order_++;
  orders_.emplace_back(id, std::move(order));
  wake_.notify_one();
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

void TextWorker::work() {
  Engine& engine = model_->engine();
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return engine.busy() || !orders_.empty() || !cancelled_.empty() || stop_; });
      if (stop_ && orders_.empty() && !engine.busy()) return;
    }
    take_orders();
    try {
      if (engine.busy()) engine.step(model_->pool());
      {
        const std::lock_guard lock(mutex_);
        counts_ = engine.counts();
      }
      model_->check_weights();
      collect();
    } catch (const Error& error) {  // the texts of this moment are lost, and the model goes on
      fail_all(error.what(), error.kind() == ErrorKind::kUser);
    } catch (const std::exception& error) {
      fail_all(error.what(), false);
    }
  }
}

// Orders begin before cancellations, as an order may have been cancelled before it was seen here.
void TextWorker::take_orders() {
  std::vector<std::pair<int64_t, TextOrder>> orders;
  std::vector<int64_t> cancelled;
  {
    const std::lock_guard lock(mutex_);
    orders.swap(orders_), cancelled.swap(cancelled_);
  }
  for (auto& [id, order] : orders) begin(id, std::move(order));
  for (const int64_t order : cancelled)
    for (const auto& [id, sample] : samples_)
      if (sample->order == order) model_->engine().cancel(id);
}

void TextWorker::begin(int64_t id, TextOrder taken) {
  const auto order = std::make_shared<const TextOrder>(std::move(taken));
  for (int64_t i = 0; i < order->samples; ++i) {
    auto sample = std::make_unique<Sample>(Sample{id, i, order, WrittenRow(order->job.flow(), order->job.stops)});
    try {
      GenerateRequest request = model_->engine_request(order->job, static_cast<uint64_t>(i));
      request.listener = [this, heard_by = sample.get()](const GeneratedToken& heard) {
        hear(*heard_by, heard);
        return !heard_by->row.stopped();
      };
      samples_[model_->engine().submit(std::move(request))] = std::move(sample);
    } catch (const Error& error) {
      const bool bad_request = error.kind() == ErrorKind::kUser;
      order->events.finished(i, {.error = error.what(), .bad_request = bad_request});
      const std::lock_guard lock(mutex_);
      --texts_;
    }
  }
}

void TextWorker::hear(Sample& sample, const GeneratedToken& heard) {
  if (heard.token < 0) return;  // a search knows its text at its end
  const TextOrder& order = *sample.request;
  if (order.alternatives >= 0) {
    const auto chance = [&](int32_t token) {
      return TokenChance{token, model_->piece_of(token), log_probability_of(heard.logits, token)};
    };
    WrittenToken token{chance(heard.token)};
    if (const int64_t count = std::min(order.alternatives, std::ssize(heard.logits)); count > 0) {
      std::vector<float> values(static_cast<size_t>(count));
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
    const std::lock_guard lock(mutex_);
    --texts_;
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
    const std::lock_guard lock(mutex_);
    --texts_;
  }
}

}  // namespace linnet
