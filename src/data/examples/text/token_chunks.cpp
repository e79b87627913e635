#include "data/examples/text/token_chunks.h"
#include <algorithm>
#include <bit>
#include <map>
#include <numeric>
#include "base/fail.h"
#include "base/hash.h"

namespace linnet {
namespace {

constexpr uint64_t kOffsets = 0x6f66667365747300u, kOrders = 0x6f72646572730000u;  // two streams of one seed

constexpr int64_t kDropEvery = 256;  // batches between which pages of a mapped file stay

// Row `row` of the batch: `count` <= length inputs from `first` on, each with the token behind it as target.
void fill_row(const TokenStream& stream, const ChunkOptions& options, int64_t row, int64_t first, int64_t count,
              const TokenBatch& batch) {
  const int64_t at = row * options.length;
  int32_t *tokens = batch.tokens + at, *targets = batch.targets + at;
  if (count > 0) {
    int32_t next = 0;
    stream.read(first, count, tokens);
    stream.read(first + count, 1, &next);
    std::copy_n(tokens + 1, count - 1, targets);
    targets[count - 1] = next;
  }
  std::fill(tokens + count, tokens + options.length, 0);
  std::fill(targets + count, targets + options.length, -1);
  if (!batch.starts) return;
  if (!options.separator_ends) std::replace(targets, targets + count, options.separator, -1);
  for (int64_t t = 0, start = 0; t < options.length; ++t) {
    if (t < count && tokens[t] == options.separator) start = t;
    batch.starts[at + t] = static_cast<int32_t>(start);
    batch.positions[at + t] = static_cast<int32_t>(t - start);
  }
}

}  // namespace

uint64_t epoch_key(uint64_t seed, uint64_t use, int64_t epoch) {
  return mix64(mix64(seed + 0x9e3779b97f4a7c15u) ^ use ^ mix64(static_cast<uint64_t>(epoch)));
}

ShuffledIndex::ShuffledIndex(int64_t count, uint64_t key) : count_(static_cast<uint64_t>(count)), key_(key) {
  half_bits_ = std::max(1, (static_cast<int>(std::bit_width(count_ > 0 ? count_ - 1 : 0)) + 1) / 2);
}

int64_t ShuffledIndex::operator()(int64_t i) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  auto value = static_cast<uint64_t>(i);
  do {
    uint64_t left = value >> half_bits_, right = value & mask;
    for (uint64_t round = 0; round < 4; ++round) {
      const uint64_t mixed = left ^ (mix64(key_ + right + (round << 56)) & mask);
      left = right, right = mixed;
    }
    value = left << half_bits_ | right;
  } while (value >= count_);
  return static_cast<int64_t>(value);
}

std::vector<BatchInput> token_inputs(const ChunkOptions& options, bool packed) {
  const size_t bytes = static_cast<size_t>(options.rows * options.length) * sizeof(int32_t);
  std::vector<BatchInput> inputs{{"tokens", bytes}, {"targets", bytes}};
  if (packed) inputs.insert(inputs.end(), {{"positions", bytes}, {"starts", bytes}});
  return inputs;
}

TokenBatch token_arrays(OwnedBatch& batch) {
  TokenBatch arrays{batch.data(0), batch.data(1)};
  if (batch.batch.arrays.size() > 2) arrays.positions = batch.data(2), arrays.starts = batch.data(3);
  return arrays;
}

TrainingChunks::TrainingChunks(const TokenStream& stream, const ChunkOptions& options, uint64_t seed, bool packed)
    : stream_(stream), options_(options), seed_(seed), owned_(token_inputs(options, packed)) {
  const int64_t usable = stream.size() - 1;  // inputs that have a target
  if (usable < options.length)
    fail_user("the training text has ", stream.size(), " tokens, and one chunk takes ", options.length + 1,
              ": it takes more text, or a smaller --set context=N");
  max_offset_ = std::min(options.length - 1, usable - options.length);
  chunks_ = (usable - max_offset_) / options.length;
  batches_ = std::max<int64_t>(1, chunks_ / options.rows);  // a rest of rows waits for the next epoch's cut
}

const Batch& TrainingChunks::next() {
  if (++made_ % kDropEvery == 0) stream_.drop_pages();
  const auto taken = cursor_.take([this](int64_t) { return batches_; });
  const auto offset =
      static_cast<int64_t>(epoch_key(seed_, kOffsets, taken.epoch) % static_cast<uint64_t>(max_offset_ + 1));
  const ShuffledIndex order(chunks_, epoch_key(seed_, kOrders, taken.epoch));
  for (int64_t row = 0; row < options_.rows; ++row) {
    const int64_t chunk = taken.index * options_.rows + row;
    const bool exists = chunk < chunks_;
    fill_row(stream_, options_, row, exists ? offset + order(chunk) * options_.length : 0, exists ? options_.length : 0,
             token_arrays(owned_));
  }
  static_cast<BatchPosition&>(owned_.batch) = taken.position;
  return owned_.batch;
}

int64_t scoring_batches(const TokenStream& stream, const ChunkOptions& options) {
  const int64_t targets = std::max<int64_t>(0, stream.size() - 1), each = options.rows * options.length;
  return (targets + each - 1) / each;
}

void fill_scoring_batch(const TokenStream& stream, const ChunkOptions& options, int64_t index,
                        const TokenBatch& batch) {
  const int64_t targets = stream.size() - 1;
  for (int64_t row = 0; row < options.rows; ++row) {
    const int64_t first = (index * options.rows + row) * options.length;
    fill_row(stream, options, row, std::min(first, targets), std::clamp<int64_t>(targets - first, 0, options.length),
             batch);
  }
}

PackedRows::PackedRows(const std::vector<TargetedTokens>& data, const ChunkOptions& options, uint64_t seed)
    : data_(data), options_(options), seed_(seed), owned_(token_inputs(options, true)) {
  if (data.empty()) fail_user("there are no examples");
  std::vector<size_t> order(data.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater{}, [&](size_t i) { return data[i].tokens.size(); });
  std::multimap<size_t, size_t> rows_by_room;
  for (const size_t i : order) {
    const size_t size = data[i].tokens.size(), length = static_cast<size_t>(options.length);
    if (size > length) fail_internal("a sequence is longer than a row");
    const auto fits = rows_by_room.lower_bound(size);
    size_t row = rows_.size(), room = length;
    if (fits == rows_by_room.end()) rows_.emplace_back();
    else room = fits->first, row = fits->second, rows_by_room.erase(fits);
    rows_[row].push_back(i);
    rows_by_room.emplace(room - size, row);
  }
}

template <class Order>
void PackedRows::fill(int64_t first, const Order& order) {
  const TokenBatch arrays = token_arrays(owned_);
  const int64_t all = options_.rows * options_.length;
  std::fill_n(arrays.tokens, all, 0);
  std::fill_n(arrays.targets, all, -1);
  for (int64_t row = 0; row < options_.rows; ++row) {
    int64_t at = 0;
    const int64_t offset = row * options_.length;
    if (first + row < row_count())
      for (const size_t i : rows_[static_cast<size_t>(order(first + row))]) {
        const std::vector<int32_t>&tokens = data_[i].tokens, &targets = data_[i].targets;
        std::ranges::copy(tokens, arrays.tokens + offset + at);
        std::ranges::copy(targets, arrays.targets + offset + at);
        const int64_t end = at + std::ssize(tokens);
        for (int64_t t = at; t < end; ++t) {
          arrays.starts[offset + t] = static_cast<int32_t>(at);
          arrays.positions[offset + t] = static_cast<int32_t>(t - at);
        }
        at = end;
      }
    for (int64_t t = at; t < options_.length; ++t) {  // padding, a sequence of its own
      arrays.starts[offset + t] = static_cast<int32_t>(at);
      arrays.positions[offset + t] = static_cast<int32_t>(t - at);
    }
  }
}

const Batch& PackedRows::next() {
  const auto taken = cursor_.take([this](int64_t) { return batches_per_epoch(); });
  const ShuffledIndex shuffled(row_count(), mix64(mix64(seed_ + 1) + static_cast<uint64_t>(taken.epoch)));
  static_cast<BatchPosition&>(owned_.batch) = taken.position;
  fill(taken.index * options_.rows, shuffled);
  return owned_.batch;
}

const Batch& PackedRows::ordered_batch(int64_t index) {
  fill(index * options_.rows, [](int64_t row) { return row; });
  return owned_.batch;
}

}  // namespace linnet
