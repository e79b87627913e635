// What a test reads of a batch after its source has filled the next one.
#pragma once
#include <vector>
#include "data/examples/batch.h"

namespace linnet::testing {
inline std::vector<int32_t> copy_ids(const Batch& batch, const char* name) {
  const auto ids = batch.ids(name);
  return {ids.begin(), ids.end()};
}
}  // namespace linnet::testing
