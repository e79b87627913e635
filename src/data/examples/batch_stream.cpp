#include "data/examples/batch_stream.h"
#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include "base/error.h"
#include "base/hash.h"

namespace linnet {
namespace {

// In elements of 4 bytes: source, target in and out, and two lengths for each row.
size_t elements(const BatchShape& shape) {
  return static_cast<size_t>(shape.batch * (shape.source_length + 2 * shape.target_length + 2));
}

// Copies the ids and pads the rest of the row.
void write_row(std::span<const TokenId> ids, std::span<int32_t> rows, int64_t row, int64_t length) {
  const auto to = rows.begin() + row * length;
  std::fill(std::ranges::copy(ids, to).out, to + length, SpecialTokens{}.pad);
}

}  // namespace

std::vector<BatchInput> pair_inputs(std::span<const BatchShape> shapes) {
  int64_t rows = 0, source = 0, target = 0;
  for (const BatchShape& shape : shapes) {
    rows = std::max(rows, shape.batch);
    source = std::max(source, shape.batch * shape.source_length);
    target = std::max(target, shape.batch * shape.target_length);
  }
  const auto bytes = [](int64_t count) { return static_cast<size_t>(count) * sizeof(int32_t); };
  return {{"source", bytes(source)},
          {"source_lengths", bytes(rows)},
          {"target_in", bytes(target)},
          {"target_out", bytes(target)},
          {"target_lengths", bytes(rows)}};
}

BatchBuffer::BatchBuffer(const Buckets& buckets) : storage_(bytes(buckets) / sizeof(int32_t)) {
  batch_.arrays.reserve(5);
}

size_t BatchBuffer::bytes(const Buckets& buckets) {
  size_t most = 0;
  for (const BatchShape& shape : buckets.shapes()) most = std::max(most, elements(shape));
  return most * sizeof(int32_t);
}

void BatchBuffer::fill(const PairDataset& dataset, const Buckets& buckets, int bucket, std::span<const int32_t> pairs) {
  const BatchShape shape = buckets.shapes()[bucket];
  const auto [rows, source_length, target_length] = shape;
  const int64_t count = static_cast<int64_t>(pairs.size());
  if (count > rows || elements(shape) > storage_.size()) fail_internal("batch: more pairs than its bucket holds");
  batch_.arrays.clear();
  auto take = [&, next = storage_.data()](const char* name, int64_t size) mutable {
    const std::span<int32_t> values(std::exchange(next, next + size), static_cast<size_t>(size));
    batch_.arrays.push_back({name, std::as_bytes(values)});
    return values;
  };
  const auto source = take("source", rows * source_length), source_lengths = take("source_lengths", rows),
             target_in = take("target_in", rows * target_length), target_out = take("target_out", rows * target_length),
             target_lengths = take("target_lengths", rows);
  batch_.shape_index = bucket;
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t pair = row < count ? pairs[row] : -1;
    const int64_t source_size = pair < 0 ? 0 : dataset.source_length(pair);
    const int64_t target_size = pair < 0 ? 0 : dataset.target_length(pair);
    if (source_size > source_length || target_size > target_length)
      fail_internal("batch: pair " + std::to_string(pair) + " is longer than its bucket");
    using Ids = std::span<const TokenId>;
    write_row(pair < 0 ? Ids{} : dataset.source(pair), source, row, source_length);
    write_row(pair < 0 ? Ids{} : dataset.target_in(pair), target_in, row, target_length);
    write_row(pair < 0 ? Ids{} : dataset.target_out(pair), target_out, row, target_length);
    source_lengths[row] = static_cast<int32_t>(source_size);
    target_lengths[row] = static_cast<int32_t>(target_size);
  }
}

BatchOrder::BatchOrder(const PairDataset& dataset, const Buckets& buckets)
    : bucket_of_(dataset.size()), pairs_(dataset.size()), starts_(buckets.size() + 1, 0), cursors_(buckets.size()) {
  if (dataset.size() > std::numeric_limits<int32_t>::max() || buckets.size() > std::numeric_limits<uint16_t>::max())
    fail_user("too many sentence pairs: " + std::to_string(dataset.size()));
  for (int64_t pair = 0; pair < dataset.size(); ++pair) {
    const int bucket = buckets.find(dataset.source_length(pair), dataset.target_length(pair));
    if (bucket < 0)
      fail_internal("no bucket holds pair " + std::to_string(pair) + " of " +
                    std::to_string(dataset.source_length(pair)) + " and " +
                    std::to_string(dataset.target_length(pair)) + " tokens");
    bucket_of_[pair] = static_cast<uint16_t>(bucket);
    ++starts_[bucket + 1];
  }
  int64_t batches = 0;
  for (int64_t bucket = 0; bucket < buckets.size(); ++bucket) {
    rows_.push_back(buckets.shapes()[bucket].batch);
    batches += (starts_[bucket + 1] + rows_[bucket] - 1) / rows_[bucket];
    starts_[bucket + 1] += starts_[bucket];
  }
  batches_.resize(batches);
  sort();
}

void BatchOrder::sort() {
  std::copy(starts_.begin(), starts_.end() - 1, cursors_.begin());
  for (size_t pair = 0; pair < bucket_of_.size(); ++pair)
    pairs_[cursors_[bucket_of_[pair]]++] = static_cast<int32_t>(pair);
  size_t batch = 0;
  for (size_t bucket = 0; bucket < rows_.size(); ++bucket)
    for (int64_t first = starts_[bucket]; first < starts_[bucket + 1]; first += rows_[bucket])
      batches_[batch++] = {static_cast<int32_t>(bucket), static_cast<int32_t>(first)};
}

void BatchOrder::shuffle(uint64_t seed, int64_t epoch) {
  sort();
  const uint64_t key = mix64(mix64(seed + 0x9e3779b97f4a7c15u) + static_cast<uint64_t>(epoch));
  shuffle_span(std::span(batches_), mix64(key));
  for (size_t bucket = 0; bucket < rows_.size(); ++bucket)
    shuffle_span(std::span(pairs_).subspan(starts_[bucket], starts_[bucket + 1] - starts_[bucket]),
                 mix64(key + bucket + 1));
}

std::span<const int32_t> BatchOrder::pairs(int64_t batch) const {
  const Entry& entry = batches_[batch];
  const int64_t end = std::min<int64_t>(entry.first + rows_[entry.bucket], starts_[entry.bucket + 1]);
  return std::span(pairs_).subspan(entry.first, end - entry.first);
}

size_t BatchOrder::bytes() const {
  return bucket_of_.size() * sizeof(uint16_t) + pairs_.size() * sizeof(int32_t) + batches_.size() * sizeof(Entry);
}

BatchStream::BatchStream(const PairDataset& dataset, const Buckets& buckets, uint64_t seed, int prefetch_depth)
    : dataset_(dataset), buckets_(buckets), seed_(seed), order_(dataset, buckets) {
  for (int i = 0; i <= prefetch_depth; ++i) ring_.push_back({BatchBuffer(buckets), {}});
  const auto plan = [this](int slot) {
    cursor_.check(order_.batch_count());
    ring_[static_cast<size_t>(slot)].taken = cursor_.take([this](int64_t) { return order_.batch_count(); });
    return int64_t{1};
  };
  const auto make = [this](int slot, int64_t, int) { fill(ring_[static_cast<size_t>(slot)]); };
  ahead_.emplace(prefetch_depth + 1, 1, BatchesAhead::Work{plan, make});
}

// By the one worker, batch by batch.
void BatchStream::fill(Slot& slot) {
  const BatchCursor::Taken& taken = slot.taken;
  if (ordered_epoch_ != taken.epoch) {
    order_.shuffle(seed_, taken.epoch);
    ordered_epoch_ = taken.epoch;
  }
  static_cast<BatchPosition&>(slot.buffer.batch()) = taken.position;
  slot.buffer.fill(dataset_, buckets_, order_.bucket(taken.index), order_.pairs(taken.index));
}

void BatchStream::seek(int64_t epoch, int64_t index) {
  ahead_->restart([&] { cursor_.set(epoch, index); });
}

void BatchStream::take_share(BatchShare share) {
  ahead_->restart([&] { cursor_.take_share(share); });
}

EvaluationBatches::EvaluationBatches(const PairDataset& dataset, const Buckets& buckets)
    : dataset_(dataset), buckets_(buckets), order_(dataset, buckets), buffer_(buckets) {}

const Batch& EvaluationBatches::at(int64_t index) {
  if (index < 0 || index >= size()) fail_internal("evaluation batch " + std::to_string(index) + " does not exist");
  buffer_.fill(dataset_, buckets_, order_.bucket(index), order_.pairs(index));
  buffer_.batch().index = index;
  buffer_.batch().last_of_epoch = index + 1 == size();
  return buffer_.batch();
}

}  // namespace linnet
