#include "data/examples/text/packed_rows.h"
#include <algorithm>
#include <map>
#include <numeric>
#include "base/error.h"
#include "base/hash.h"

namespace linnet {

PackedRows::PackedRows(const std::vector<TargetedTokens>& data, const ChunkOptions& options, uint64_t seed)
    : data_(data), options_(options), seed_(seed), buffer_(options, true) {
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
  const TokenBatch arrays = buffer_.arrays();
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
  static_cast<BatchPosition&>(buffer_.batch()) = taken.position;
  fill(taken.index * options_.rows, shuffled);
  return buffer_.batch();
}

const Batch& PackedRows::ordered_batch(int64_t index) {
  fill(index * options_.rows, [](int64_t row) { return row; });
  return buffer_.batch();
}

}  // namespace linnet
