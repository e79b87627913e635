#include "serving/loaded/row_worker.h"
#include <algorithm>
#include <numeric>

namespace linnet {
bool RowWorker::submit(std::vector<RowText> texts, Finished finished, const std::string& client) {
  const auto count = std::ssize(texts);
  if (count == 0) return finished({}), true;
  const auto order = std::make_shared<Order>(Order{std::move(texts), std::move(finished), client});
  order->outcome.rows.resize(order->texts.size() * model_->width);
  order->by_length.resize(order->texts.size());
  std::iota(order->by_length.begin(), order->by_length.end(), size_t{0});
  std::ranges::stable_sort(order->by_length, {}, [&](size_t text) { return order->texts[text].tokens.size(); });
  const std::lock_guard lock(mutex_);
  int64_t& of_client = texts_of_[client];
  if (of_client > 0 && of_client + count > limit_) return false;
  texts_ += count, of_client += count;
  orders_.push(client, order);
  wake_.notify_one();
  return true;
}

int64_t RowWorker::waiting() const {
  const std::lock_guard lock(mutex_);
  return texts_;
}

void RowWorker::work(const std::stop_token& stop) {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      if (!wake_.wait(lock, stop, [&] { return !orders_.empty(); })) return;
    }
    const Turn turn = next_turn();
    compute(turn);
    for (const auto& [order, text] : turn) {
      if (++order->done < order->texts.size()) continue;
      order->finished(std::move(order->outcome));
      const std::lock_guard lock(mutex_);
      texts_ -= std::ssize(order->texts);
      const auto of_client = texts_of_.find(order->client);
      if ((of_client->second -= std::ssize(order->texts)) == 0) texts_of_.erase(of_client);
    }
  }
}

RowWorker::Turn RowWorker::next_turn() {
  Turn turn;
  const std::lock_guard lock(mutex_);
  while (!orders_.empty() && (turn.size() < kTogether || orders_.front()->client.empty())) {
    const std::shared_ptr<Order>& order = orders_.front();
    turn.emplace_back(order, order->by_length[order->begun++]);
    orders_.end_turn(order->begun == order->texts.size());
  }
  return turn;
}

// Batches texts of one padded length, so that a text's padding only depends on itself.
void RowWorker::compute(const Turn& turn) try {
  std::map<std::pair<int64_t, bool>, Turn> by_length;
  for (const auto& [order, text] : turn) {
    const RowText& row = order->texts[text];
    by_length[{model_->padded_length(std::ssize(row.tokens)), row.segments.empty()}].emplace_back(order, text);
  }
  const size_t width = model_->width;
  for (const auto& [length, alike] : by_length) {
    try {
      std::vector<RowText> texts;
      for (const auto& [order, text] : alike) texts.push_back(order->texts[text]);
      const std::vector<float> rows = model_->compute(texts);
      for (size_t k = 0; k < alike.size(); ++k)
        std::copy_n(rows.begin() + k * width, width, alike[k].first->outcome.rows.begin() + (alike[k].second * width));
    } catch (const std::exception& error) {
      for (const auto& [order, text] : alike) order->outcome.error = error.what();
    }
  }
} catch (const std::exception& error) {
  for (const auto& [order, text] : turn) order->outcome.error = error.what();
}
}  // namespace linnet
