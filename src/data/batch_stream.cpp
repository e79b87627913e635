#include "data/batch_stream.h"

#include <condition_variable>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "data/batch_buffer.h"
#include "data/batch_order.h"

namespace linnet {

// The worker alone touches `order` and the buffers that are not handed out; everything under "shared" is guarded by the
// mutex. Batches are numbered from the last seek on; batch n lies in buffer n modulo the number of buffers.
struct BatchStream::State {
  struct Place {
    int64_t epoch = 0, index = 0;
  };

  State(const PairDataset& dataset, const Buckets& buckets, uint64_t seed, int prefetch_depth)
      : dataset(dataset), buckets(buckets), seed(seed), order(dataset, buckets) {
    if (prefetch_depth < 1) fail_internal("batch stream: prefetch_depth must be at least 1");
    for (int i = 0; i <= prefetch_depth; ++i) buffers.emplace_back(buckets);
    worker = std::thread([this] { run(); });
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
  void fill(BatchBuffer& buffer, Place place);
  void seek(Place target);
  const Batch& next();
  int64_t in_use() const { return filled - taken + (taken > 0 ? 1 : 0); }  // the batch taken last is still held

  const PairDataset& dataset;
  const Buckets buckets;
  const uint64_t seed;
  BatchOrder order;
  int64_t ordered_epoch = -1;
  std::vector<BatchBuffer> buffers;

  // Shared.
  std::mutex mutex;
  std::condition_variable work_to_do, batch_ready;
  Place place;         // of the batch to fill next
  uint64_t seeks = 0;  // tells the worker that what it was filling is no longer wanted
  int64_t filled = 0, taken = 0;
  std::exception_ptr failure;  // of the batch to fill next
  bool stopping = false;

  std::thread worker;
};

void BatchStream::State::run() {
  const int64_t capacity = static_cast<int64_t>(buffers.size());
  std::unique_lock lock(mutex);
  for (;;) {
    work_to_do.wait(lock, [&] { return stopping || (!failure && in_use() < capacity); });
    if (stopping) return;
    const uint64_t wanted = seeks;
    const Place here = place;
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
      place = buffer.batch().last_of_epoch ? Place{here.epoch + 1, 0} : Place{here.epoch, here.index + 1};
    }
    batch_ready.notify_one();
  }
}

void BatchStream::State::fill(BatchBuffer& buffer, Place here) {
  if (here.epoch < 0 || here.index < 0 || here.index >= order.batch_count())
    fail_user("batch " + std::to_string(here.index) + " of epoch " + std::to_string(here.epoch) +
              " does not exist: an epoch has " + std::to_string(order.batch_count()) +
              " batches; were the training data or the batch options changed?");
  if (ordered_epoch != here.epoch) {
    order.shuffle(seed, here.epoch);
    ordered_epoch = here.epoch;
  }
  buffer.fill(dataset, buckets, order.bucket(here.index), order.pairs(here.index));
  Batch& batch = buffer.batch();
  batch.epoch = here.epoch;
  batch.index = here.index;
  batch.last_of_epoch = here.index + 1 == order.batch_count();
}

void BatchStream::State::seek(Place target) {
  {
    const std::lock_guard lock(mutex);
    place = target;
    ++seeks;
    filled = taken = 0;
    failure = nullptr;
  }
  work_to_do.notify_one();
}

const Batch& BatchStream::State::next() {
  std::unique_lock lock(mutex);
  batch_ready.wait(lock, [&] { return filled > taken || failure; });
  if (filled == taken) std::rethrow_exception(failure);
  const Batch& batch = buffers[taken % static_cast<int64_t>(buffers.size())].batch();
  ++taken;
  lock.unlock();
  work_to_do.notify_one();
  return batch;
}

BatchStream::BatchStream(const PairDataset& dataset, const Buckets& buckets, uint64_t seed, int prefetch_depth)
    : state_(std::make_unique<State>(dataset, buckets, seed, prefetch_depth)) {}
BatchStream::~BatchStream() = default;

void BatchStream::seek(int64_t epoch, int64_t index) { state_->seek({epoch, index}); }
const Batch& BatchStream::next() { return state_->next(); }
int64_t BatchStream::batches_per_epoch() const { return state_->order.batch_count(); }

size_t BatchStream::buffer_bytes() const {
  return buffer_bytes(state_->buckets, static_cast<int>(state_->buffers.size()) - 1);
}
size_t BatchStream::buffer_bytes(const Buckets& buckets, int prefetch_depth) {
  return static_cast<size_t>(prefetch_depth + 1) * BatchBuffer::bytes(buckets);
}
size_t BatchStream::order_bytes() const { return state_->order.bytes(); }

}  // namespace linnet
