#include <algorithm>
#include <string>
#include <utility>
#include "base/error.h"
#include "data/examples/batch_stream.h"

namespace linnet {
namespace {

// In elements of 4 bytes: source, target in and out, two lengths and the pair's number for each row.
size_t elements(const BatchShape& shape) {
  return static_cast<size_t>(shape.batch * (shape.source_length + 2 * shape.target_length + 3));
}

// Copies the ids and pads the rest of the row.
void write_row(std::span<const TokenId> ids, int32_t* row, int64_t length) {
  std::fill(std::copy(ids.begin(), ids.end(), row), row + length, SpecialTokens{}.pad);
}

constexpr size_t kArrays = 5;

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
  batch_.arrays.reserve(kArrays);
}

size_t BatchBuffer::bytes(const Buckets& buckets) {
  size_t most = 0;
  for (const BatchShape& shape : buckets.shapes()) most = std::max(most, elements(shape));
  return most * sizeof(int32_t);
}

void BatchBuffer::fill(const PairDataset& dataset, const Buckets& buckets, int bucket, std::span<const int32_t> pairs) {
  const BatchShape shape = buckets.shapes()[bucket];
  const int64_t count = static_cast<int64_t>(pairs.size());
  if (count > shape.batch || elements(shape) > storage_.size())
    fail_internal("batch: more pairs than its bucket holds");
  int32_t* next = storage_.data();
  const auto take = [&next](int64_t size) { return std::exchange(next, next + size); };
  int32_t* const source = take(shape.batch * shape.source_length);
  int32_t* const target_in = take(shape.batch * shape.target_length);
  int32_t* const target_out = take(shape.batch * shape.target_length);
  int32_t* const source_lengths = take(shape.batch);
  int32_t* const target_lengths = take(shape.batch);
  int32_t* const rows = take(shape.batch);

  int64_t source_tokens = 0, target_tokens = 0;
  for (int64_t row = 0; row < shape.batch; ++row) {
    const bool used = row < count;
    const int64_t pair = used ? pairs[row] : -1;
    const int64_t source_length = used ? dataset.source_length(pair) : 0;
    const int64_t target_length = used ? dataset.target_length(pair) : 0;
    if (source_length > shape.source_length || target_length > shape.target_length)
      fail_internal("batch: pair " + std::to_string(pair) + " is longer than its bucket");
    using Ids = std::span<const TokenId>;
    write_row(used ? dataset.source(pair) : Ids{}, source + row * shape.source_length, shape.source_length);
    write_row(used ? dataset.target_in(pair) : Ids{}, target_in + row * shape.target_length, shape.target_length);
    write_row(used ? dataset.target_out(pair) : Ids{}, target_out + row * shape.target_length, shape.target_length);
    source_lengths[row] = static_cast<int32_t>(source_length);
    target_lengths[row] = static_cast<int32_t>(target_length);
    rows[row] = static_cast<int32_t>(pair);
    source_tokens += source_length;
    target_tokens += target_length;
  }

  const auto view = [](const int32_t* begin, int64_t size) {
    return std::span<const int32_t>(begin, static_cast<size_t>(size));
  };
  batch_.shape_index = bucket;
  batch_.shape = shape;
  batch_.source = view(source, shape.batch * shape.source_length);
  batch_.source_lengths = view(source_lengths, shape.batch);
  batch_.target_in = view(target_in, shape.batch * shape.target_length);
  batch_.target_out = view(target_out, shape.batch * shape.target_length);
  batch_.target_lengths = view(target_lengths, shape.batch);
  batch_.pairs = view(rows, shape.batch);
  batch_.source_tokens = source_tokens;
  batch_.target_tokens = target_tokens;
  batch_.arrays.clear();
  for (const auto& [name, ids] : {std::pair{"source", batch_.source},
                                  {"source_lengths", batch_.source_lengths},
                                  {"target_in", batch_.target_in},
                                  {"target_out", batch_.target_out},
                                  {"target_lengths", batch_.target_lengths}})
    batch_.arrays.push_back({name, std::as_bytes(ids)});
}

}  // namespace linnet
