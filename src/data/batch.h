// A batch of sentence pairs as the model's graph takes it: rows of token ids, padded to one of a closed set of shapes,
// with explicit lengths.
#pragma once
#include <compare>
#include <cstdint>
#include <span>

namespace linnet {

struct BatchShape {
  int64_t batch, source_length, target_length;
  auto operator<=>(const BatchShape&) const = default;
};

// Views of a buffer. Rows beyond the pairs have length 0 and pair -1; every id beyond a row's length is pad.
struct Batch {
  int bucket = 0;
  BatchShape shape{};
  int64_t epoch = 0, index = 0;                    // index of this batch in its epoch
  std::span<const int32_t> source;                 // [batch, source_length]
  std::span<const int32_t> source_lengths;         // [batch]
  std::span<const int32_t> target_in, target_out;  // [batch, target_length]
  std::span<const int32_t> target_lengths;         // [batch], of both
  std::span<const int32_t> pairs;                  // [batch] which pair of the dataset each row is
  int64_t source_tokens = 0, target_tokens = 0;    // without padding
  bool last_of_epoch = false;
};

}  // namespace linnet
