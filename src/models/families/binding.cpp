#include "models/families/binding.h"
#include <algorithm>
#include <cstring>
#include <map>
#include "base/fail.h"
#include "models/nn/quantized_training.h"

namespace linnet {
namespace {
Shape file_shape(const NameRow& row, Shape shape) {
  if (row.rows > 0) shape.set(0, row.rows);
  switch (row.form) {
    case TensorForm::kSame:
    case TensorForm::kByHeads: return shape;
    case TensorForm::kTransposed: return {shape[1], shape[0]};
    case TensorForm::kOneRow: return {1, shape[0]};
    case TensorForm::kChannelsFirst: return {shape[0], shape[3], shape[1], shape[2]};
  }
  return shape;
}

BoundRow bind_row(const NameRow& row, const ParameterSlot& slot) {
  const Shape& shape = slot.spec.shape;
  if (row.rows > 0 && row.first_row + row.rows > shape[0])
    fail_internal("name table: ", row.tensor, " is beyond the rows of ", row.parameter);
  const int64_t row_elements = shape.rank() > 1 ? shape.elements(1, shape.rank()) : 1;
  return {&row, &slot.spec, slot.offset + row.first_row * row_elements, file_shape(row, shape)};
}

// Checks that every row of every parameter is covered once.
void check_cover(const NameTable& names, const ParameterLayout& layout) {
  std::map<std::string, int64_t> rows;
  for (const NameRow& row : names.rows)
    if (row.role != TensorRole::kCopy && row.role != TensorRole::kConstant) rows[row.parameter] += row.rows;
  for (const ParameterSlot& slot : layout.parameters()) {
    if (!weight_of_input_step(slot.spec.name).empty()) continue;  // of training alone: no folder has it
    const auto found = rows.find(slot.spec.name);
    if (found == rows.end()) fail_internal("name table: nothing for parameter ", slot.spec.name);
    if (found->second != 0 && found->second != slot.spec.shape[0])
      fail_internal("name table: parts of ", slot.spec.name, " have ", found->second, " rows");
  }
}

// The index here of element `i` of a file's filters [out, in, height, width].
int64_t filter_index(const Shape& in_file, int64_t i) {
  const int64_t channels = in_file[1], pixels = in_file[2] * in_file[3];
  const int64_t pixel = i % pixels, channel = i / pixels % channels, filter = i / pixels / channels;
  return (filter * pixels + pixel) * channels + channel;
}

// The row in our [3, heads, size] of row `row` of a file's [heads, 3, size].
int64_t stacked_row(const BoundRow& bound, int64_t row) {
  const int64_t heads = bound.row->heads, size = bound.shape[0] / (3 * heads);
  const int64_t head = row / (3 * size), part = row / size % 3;
  return (part * heads + head) * size + row % size;
}

// Where element `i` of a file's tensor lies in ours, of the forms that do not keep the order but kTransposed.
int64_t index_of(const BoundRow& bound, int64_t i) {
  if (bound.row->form == TensorForm::kChannelsFirst) return filter_index(bound.shape, i);
  const int64_t width = bound.shape.elements() / bound.shape[0];
  return stacked_row(bound, i / width) * width + i % width;
}

bool keeps_order(TensorForm form) { return form == TensorForm::kSame || form == TensorForm::kOneRow; }

void gather(const BoundRow& bound, const float* parameters, int64_t first, int64_t count, float* out) {
  if (!bound.spec) return void(std::fill_n(out, count, bound.row->constant));
  const float* from = parameters + bound.offset;
  if (keeps_order(bound.row->form)) return void(std::copy_n(from + first, count, out));
  if (bound.row->form != TensorForm::kTransposed) {
    for (int64_t i = 0; i < count; ++i) out[i] = from[index_of(bound, first + i)];
    return;
  }
  const int64_t in = bound.shape[0], width = bound.shape[1], end = first + count;
  for (int64_t column = 0; column < width; ++column)
    for (int64_t row = first / width; row < in; ++row) {
      const int64_t at = row * width + column;
      if (at >= end) break;
      if (at >= first) out[at - first] = from[column * in + row];
    }
}
}  // namespace

std::vector<BoundRow> bind_names(const NameTable& names, const ParameterLayout& layout) {
  check_cover(names, layout);
  std::map<std::string, const ParameterSlot*> slots;
  for (const ParameterSlot& slot : layout.parameters()) slots[slot.spec.name] = &slot;
  std::vector<BoundRow> bound;
  for (const NameRow& row : names.rows) {
    if (row.role == TensorRole::kConstant) {
      bound.push_back({&row, nullptr, 0, {row.rows}});
      continue;
    }
    const auto found = slots.find(row.parameter);
    if (found == slots.end()) fail_internal("name table: the model has no parameter ", row.parameter);
    bound.push_back(bind_row(row, *found->second));
  }
  return bound;
}

void read_tensor(const BoundRow& bound, FileDType dtype, const std::byte* data, float* parameters) {
  float* to = parameters + bound.offset;
  const int64_t elements = bound.shape.elements();
  if (keeps_order(bound.row->form)) return read_floats(dtype, data, elements, to);
  if (bound.row->form == TensorForm::kByHeads) {  // without a copy of what may be the largest tensor
    const int64_t width = elements / bound.shape[0];
    for (int64_t row = 0; row < bound.shape[0]; ++row)
      read_floats(dtype, data + static_cast<size_t>(row * width) * file_dtype_size(dtype), width,
          to + stacked_row(bound, row) * width);
    return;
  }
  if (bound.row->form == TensorForm::kChannelsFirst) {
    std::vector<float> values(elements);
    read_floats(dtype, data, elements, values.data());
    for (int64_t i = 0; i < elements; ++i) to[index_of(bound, i)] = values[i];
    return;
  }
  constexpr int64_t kRows = 64;  // of the file at once, so that whole cache lines of the parameter are written
  const int64_t in = bound.shape[0], width = bound.shape[1];
  // An odd number of cache lines, as rows a power of two apart would share a few sets of the cache.
  const int64_t stride = ((width + 15) / 16 | 1) * 16;
  std::vector<float> rows(kRows * stride);
  for (int64_t first = 0; first < in; first += kRows) {
    const int64_t count = std::min(kRows, in - first);
    for (int64_t row = 0; row < count; ++row)
      read_floats(dtype, data + static_cast<size_t>((first + row) * width) * file_dtype_size(dtype), width,
          rows.data() + row * stride);
    for (int64_t column = 0; column < width; ++column)
      for (int64_t row = 0; row < count; ++row) to[column * in + first + row] = rows[row * stride + column];
  }
}

void write_tensor(
    const BoundRow& bound, const float* parameters, FileDType dtype, int64_t first, int64_t count, std::byte* out) {
  std::vector<float> values(count);
  gather(bound, parameters, first, count, values.data());
  write_floats(dtype, values.data(), count, out);
}

bool equals_tensor(const BoundRow& bound, FileDType dtype, const std::byte* data, const float* parameters) {
  constexpr int64_t kPiece = 1 << 16;
  std::vector<float> file(kPiece), ours(kPiece);
  for (int64_t first = 0, total = bound.shape.elements(); first < total; first += kPiece) {
    const int64_t count = std::min(kPiece, total - first);
    read_floats(dtype, data + static_cast<size_t>(first) * file_dtype_size(dtype), count, file.data());
    gather(bound, parameters, first, count, ours.data());
    if (std::memcmp(file.data(), ours.data(), static_cast<size_t>(count) * sizeof(float)) != 0) return false;
  }
  return true;
}
}  // namespace linnet
