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

}  // namespace linnet
