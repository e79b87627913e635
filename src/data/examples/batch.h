// A batch: named arrays, which of a closed set of shapes they have, and its position in the sequence of all batches.
#pragma once
#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace linnet {

// An array of a batch and the graph input that it is for, which has the same name.
struct BatchArray {
  const char* name;
  std::span<const std::byte> bytes;
};

template <class T>
BatchArray batch_array(const char* name, const T* values, int64_t count) {
  return {name, std::as_bytes(std::span(values, static_cast<size_t>(count)))};
}

// Positions count the batches of an epoch. With several ranks (data/examples/batch_source.h) a position is that of the group of
// batches that the ranks take together: it is the same for all of them.
struct BatchPosition {
  int shape_index = 0;
  int64_t epoch = 0, index = 0;
  bool last_of_epoch = false;
  int64_t next_epoch = 0, next_index = 0;  // of the batch, or group, that follows
};

// The arrays are views: the source that made the batch says how long they are valid.
struct Batch : BatchPosition {
  std::vector<BatchArray> arrays;

  // The values of an array of int32; internal error when the batch has none of that name.
  std::span<const int32_t> ids(const char* name) const;
};

// A graph input that batches fill, and the most bytes that any shape of them takes.
struct BatchInput {
  const char* name;
  size_t bytes;
};

// A batch with memory of its own for its arrays.
class OwnedBatch {
 public:
  explicit OwnedBatch(std::vector<BatchInput> inputs);
  OwnedBatch(const OwnedBatch&) = delete;
  OwnedBatch& operator=(const OwnedBatch&) = delete;
  template <class T = int32_t>
  T* data(size_t input) {
    return reinterpret_cast<T*>(memory_[input].data());
  }
  // How much of an array the batch's shape takes; at first all of it.
  void resize(size_t input, size_t bytes);

  Batch batch;

 private:
  std::vector<BatchInput> inputs_;
  std::vector<std::vector<std::byte>> memory_;
};

// The sizes of a batch of sentence pairs: rows and padded lengths.
struct BatchShape {
  int64_t batch, source_length, target_length;
  auto operator<=>(const BatchShape&) const = default;
};

// A batch of sentence pairs: rows of token ids, padded to a shape, with explicit lengths. Rows beyond the pairs have
// length 0 and pair -1; every id beyond a row's length is pad.
struct PairBatch : Batch {
  BatchShape shape{};
  std::span<const int32_t> source;                 // [batch, source_length]
  std::span<const int32_t> source_lengths;         // [batch]
  std::span<const int32_t> target_in, target_out;  // [batch, target_length]
  std::span<const int32_t> target_lengths;         // [batch], of both
  std::span<const int32_t> pairs;                  // [batch] which pair of the dataset each row is
  int64_t source_tokens = 0, target_tokens = 0;    // without padding
};

}  // namespace linnet
