#include "data/examples/batch.h"
#include <algorithm>
#include <string>
#include <string_view>
#include "base/error.h"

namespace linnet {

std::span<const int32_t> Batch::ids(const char* name) const {
  const auto found = std::ranges::find(arrays, std::string_view(name), &BatchArray::name);
  if (found == arrays.end()) fail_internal("a batch without " + std::string(name));
  return {reinterpret_cast<const int32_t*>(found->bytes.data()), found->bytes.size() / sizeof(int32_t)};
}

OwnedBatch::OwnedBatch(std::vector<BatchInput> inputs) : inputs_(std::move(inputs)) {
  for (const BatchInput& input : inputs_) {
    memory_.emplace_back(input.bytes);
    batch.arrays.push_back({input.name, memory_.back()});
  }
}

void OwnedBatch::resize(size_t input, size_t bytes) {
  if (bytes > inputs_[input].bytes)
    fail_internal(std::string("a batch with too large an array ") + inputs_[input].name);
  batch.arrays[input].bytes = std::span(memory_[input]).first(bytes);
}

BatchPosition BatchSource::next_rows(std::span<int32_t>) { fail_internal("these batches are no rows of device data"); }

void BatchCursor::take_share(BatchShare share) {
  if (share.count < 1 || share.first < 0 || share.index(share.count - 1) >= share.group)
    fail_internal("batches " + std::to_string(share.first) + " to " + std::to_string(share.index(share.count - 1)) +
                  " of a group of " + std::to_string(share.group));
  share_ = share;
  set(0, 0);
}

void BatchCursor::seek(int64_t epoch, int64_t index, int64_t batches) {
  BatchCursor sought = *this;
  sought.set(epoch, index);
  sought.check(batches);
  *this = sought;
}

void BatchCursor::check(int64_t batches) const {
  if (epoch_ < 0 || index_ < 0 || index_ >= batches)
    fail_user("batch " + std::to_string(index_) + " of epoch " + std::to_string(epoch_) +
              " does not exist: an epoch has " + std::to_string(batches) +
              " batches; were the training data or the batch options changed?");
}

}  // namespace linnet
