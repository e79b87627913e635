#include "serving/loaded/row_worker.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/start_thread.h"

namespace linnet {

RowWorker::RowWorker(std::unique_ptr<RowModel> model, int64_t waiting)
    : model_(std::move(model)), limit_(waiting), thread_(start_thread([this] { work(); })) {}

RowWorker::~RowWorker() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

bool RowWorker::submit(std::vector<std::vector<int32_t>> texts, Finished finished) {
  const std::lock_guard lock(mutex_);
  const auto count = std::ssize(texts);
  if (texts_ > 0 && texts_ + count > limit_) return false;
  texts_ += count;
  orders_.push_back({std::move(texts), std::move(finished)});
  wake_.notify_one();
  return true;
}

int64_t RowWorker::waiting() const {
  const std::lock_guard lock(mutex_);
  return texts_;
}

void RowWorker::work() {
  for (;;) {
    std::vector<Order> orders;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return !orders_.empty() || stop_; });
      if (orders_.empty()) return;
      orders.swap(orders_);
    }
    int64_t count = 0;
    for (const Order& order : orders) count += std::ssize(order.texts);
    compute(std::move(orders));
    const std::lock_guard lock(mutex_);
    texts_ -= count;
  }
}

// Texts that are padded to one length are computed together, so that the padding of a text follows from itself alone.
void RowWorker::compute(std::vector<Order> orders) {
  struct Location {
    size_t order, text;
  };
  std::map<int64_t, std::vector<Location>> by_length;
  for (size_t i = 0; i < orders.size(); ++i)
    for (size_t j = 0; j < orders[i].texts.size(); ++j)
      by_length[model_->padded_length(std::ssize(orders[i].texts[j]))].push_back({i, j});
  std::vector<RowOutcome> outcomes(orders.size());
  const size_t width = model_->width();
  for (size_t i = 0; i < orders.size(); ++i) outcomes[i].rows.resize(orders[i].texts.size() * width);
  for (const auto& [length, locations] : by_length) {
    std::vector<std::vector<int32_t>> texts;
    for (const Location& location : locations) texts.push_back(orders[location.order].texts[location.text]);
    try {
      const std::vector<float> rows = model_->compute(texts);
      for (size_t k = 0; k < locations.size(); ++k)
        std::copy_n(rows.begin() + static_cast<std::ptrdiff_t>(k * width), width,
                    outcomes[locations[k].order].rows.begin() + static_cast<std::ptrdiff_t>(locations[k].text * width));
    } catch (const std::exception& error) {
      for (const Location& location : locations) outcomes[location.order].error = error.what();
    }
  }
  for (size_t i = 0; i < orders.size(); ++i) orders[i].finished(std::move(outcomes[i]));
}

}  // namespace linnet
