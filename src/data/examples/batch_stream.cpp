#include "data/examples/batch_stream.h"
#include <condition_variable>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <vector>
#include "base/error.h"
#include "base/thread_pool.h"
#include "base/timeline.h"

namespace linnet {

// The worker alone touches `order` and the buffers that are not handed out; everything under "shared" is guarded by the
// mutex. Batches are numbered from the last seek on; batch n lies in buffer n modulo the number of buffers.
struct BatchStream::State {
  State(const PairDataset& dataset, const Buckets& buckets, uint64_t seed, int prefetch_depth)
      : dataset(dataset), buckets(buckets), seed(seed), order(dataset, buckets) {
    if (prefetch_depth < 1) fail_internal("batch stream: prefetch_depth must be at least 1");
    for (int i = 0; i <= prefetch_depth; ++i) buffers.emplace_back(buckets);
    worker = start_thread([this] { run(); });
  }
  ~State() {
    {
      const std::lock_guard lock(mutex);
      stopping = true;
    }
    work_to_do.notify_one();
    worker.join();
  }

  void run();
  void fill(BatchBuffer& buffer, BatchCursor& cursor);
  void move(const BatchCursor& target);
  const PairBatch& next();
  int64_t in_use() const { return filled - taken + (taken > 0 ? 1 : 0); }  // the batch taken last is still held

  const PairDataset& dataset;
  const Buckets buckets;
  const uint64_t seed;
  BatchOrder order;
  int64_t ordered_epoch = -1;
  BatchCursor share;  // of the caller: the share, and where it was last moved to
  std::vector<BatchBuffer> buffers;

  // Shared.
  std::mutex mutex;
  std::condition_variable work_to_do, batch_ready;
  BatchCursor cursor;  // of the batch to fill next
  uint64_t seeks = 0;  // tells the worker that what it was filling is no longer wanted
  int64_t filled = 0, taken = 0;
  std::exception_ptr failure;  // of the batch to fill next
  bool stopping = false;

  std::thread worker;
};

void BatchStream::State::run() {
  Timeline::name_thread("batches");
  const int64_t capacity = static_cast<int64_t>(buffers.size());
  std::unique_lock lock(mutex);
  for (;;) {
    work_to_do.wait(lock, [&] { return stopping || (!failure && in_use() < capacity); });
    if (stopping) return;
    const uint64_t wanted = seeks;
    BatchCursor here = cursor;
    BatchBuffer& buffer = buffers[filled % capacity];
    std::exception_ptr caught;
    lock.unlock();
    try {
      fill(buffer, here);
    } catch (...) {
      caught = std::current_exception();
    }
    lock.lock();
    if (wanted != seeks) continue;
    if (caught) {
      failure = caught;
    } else {
      ++filled;
      cursor = here;
    }
    batch_ready.notify_one();
  }
}

// Moves the cursor on.
void BatchStream::State::fill(BatchBuffer& buffer, BatchCursor& here) {
  const HostSpan span("fill batch");
  here.check(order.batch_count());
  const auto taken = here.take([this](int64_t) { return order.batch_count(); });
  if (ordered_epoch != taken.epoch) {
    order.shuffle(seed, taken.epoch);
    ordered_epoch = taken.epoch;
  }
  static_cast<BatchPosition&>(buffer.batch()) = taken.position;
  buffer.fill(dataset, buckets, order.bucket(taken.index), order.pairs(taken.index));
}

void BatchStream::State::move(const BatchCursor& target) {
  {
    const std::lock_guard lock(mutex);
    cursor = target;
    ++seeks;
    filled = taken = 0;
    failure = nullptr;
  }
  work_to_do.notify_one();
}

const PairBatch& BatchStream::State::next() {
  std::unique_lock lock(mutex);
  batch_ready.wait(lock, [&] { return filled > taken || failure; });
  if (filled == taken) std::rethrow_exception(failure);
  const PairBatch& batch = buffers[taken % static_cast<int64_t>(buffers.size())].batch();
  ++taken;
  lock.unlock();
  work_to_do.notify_one();
  return batch;
}

BatchStream::BatchStream(const PairDataset& dataset, const Buckets& buckets, uint64_t seed, int prefetch_depth)
    : state_(std::make_unique<State>(dataset, buckets, seed, prefetch_depth)) {}
BatchStream::~BatchStream() = default;

void BatchStream::seek(int64_t epoch, int64_t index) {
  state_->share.set(epoch, index);
  state_->move(state_->share);
}
void BatchStream::take_share(BatchShare share) {
  state_->share.take_share(share);
  state_->move(state_->share);
}
int64_t BatchStream::shape_count() const { return state_->buckets.size(); }
const PairBatch& BatchStream::next() { return state_->next(); }
int64_t BatchStream::batches_per_epoch() const { return state_->order.batch_count(); }

size_t BatchStream::buffer_bytes() const {
  return buffer_bytes(state_->buckets, static_cast<int>(state_->buffers.size()) - 1);
}
size_t BatchStream::buffer_bytes(const Buckets& buckets, int prefetch_depth) {
  return static_cast<size_t>(prefetch_depth + 1) * BatchBuffer::bytes(buckets);
}
size_t BatchStream::order_bytes() const { return state_->order.bytes(); }

EvaluationBatches::EvaluationBatches(const PairDataset& dataset, const Buckets& buckets)
    : dataset_(dataset), buckets_(buckets), order_(dataset, buckets), buffer_(buckets) {}

const PairBatch& EvaluationBatches::at(int64_t index) {
  if (index < 0 || index >= size()) fail_internal("evaluation batch " + std::to_string(index) + " does not exist");
  buffer_.fill(dataset_, buckets_, order_.bucket(index), order_.pairs(index));
  buffer_.batch().index = index;
  buffer_.batch().last_of_epoch = index + 1 == size();
  return buffer_.batch();
}

}  // namespace linnet
