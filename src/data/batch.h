// A batch of sentence pairs as the model's graph takes it: rows of token ids, padded to one of a closed set of shapes,
// with explicit lengths.
#pragma once
#include <compare>
#include <cstdint>

namespace linnet {

struct BatchShape {
  int64_t batch, source_length, target_length;
  auto operator<=>(const BatchShape&) const = default;
};

}  // namespace linnet
