#include "models/families/binding.h"
#include <set>
#include "base/fail.h"
#include "engine/kernels/quantized/packed_weight.h"
#include "formats/gguf_file.h"
#include "models/nn/weight_quantization.h"

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

// Where element `i` of a file's tensor lies in ours, of the forms that do not keep the order but kTransposed.
int64_t index_of(const BoundRow& bound, int64_t i) {
  if (bound.row->form == TensorForm::kChannelsFirst) return filter_index(bound.shape, i);
  const int64_t width = bound.shape.elements() / bound.shape[0];
  return stacked_row(bound.row->heads, bound.shape[0], i / width) * width + i % width;
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

std::string and_more(size_t count) { return count > 1 ? " (and " + std::to_string(count - 1) + " more)" : ""; }

std::vector<const MatchedRow*> tensors_of(const TensorMatch& match, const ParameterSlot& slot) {
  std::vector<const MatchedRow*> tensors;
  for (const MatchedRow& matched : match.rows)
    if (matched.bound->spec == &slot.spec && matched.bound->row->role != TensorRole::kCopy) tensors.push_back(&matched);
  return tensors;
}

const std::byte* row_of(const MatchedRow& matched, int64_t row) {
  const TensorForm form = matched.bound->row->form;
  const bool is_as_here = form == TensorForm::kTransposed || form == TensorForm::kByHeads;
  return matched.weight->file->block_row(*matched.weight->entry, row, is_as_here);
}

int64_t rows_of(const MatchedRow& matched) {
  return matched.bound->shape[matched.bound->row->form == TensorForm::kTransposed ? 1 : 0];
}

WeightFormat format_of(const MatchedRow& matched) { return *find_gguf_blocks(matched.weight->entry->form)->format; }

std::optional<PackedShape> in_blocks(const std::vector<const MatchedRow*>& tensors, const Shape& of) {
  if (of.rank() != 2 || tensors.empty()) return {};
  PackedShape shape{.columns = of[1]};
  for (const MatchedRow* matched : tensors) {
    if (!matched->weight || !row_of(*matched, 0)) return {};
    const WeightFormat format = format_of(*matched);
    if (shape.rows == 0) shape.format = format;
    if (shape.tail_rows > 0 || format != shape.format) {
      if (shape.tail_rows == 0) shape.tail_format = format;
      if (format != shape.tail_format || (shape.rows - shape.tail_rows) % PackedShape::kPanel != 0) return {};
      shape.tail_rows += rows_of(*matched);
    }
    shape.rows += rows_of(*matched);
  }
  return shape;
}
}  // namespace

int64_t stacked_row(int64_t heads, int64_t rows, int64_t row) {
  const int64_t size = rows / (3 * heads), head = row / (3 * size), part = row / size % 3;
  return (part * heads + head) * size + row % size;
}

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
          to + stacked_row(bound.row->heads, bound.shape[0], row) * width);
    return;
  }
  if (bound.row->form == TensorForm::kChannelsFirst) {
    std::vector<float> values(elements);
    read_floats(dtype, data, elements, values.data());
    const Shape& in_file = bound.shape;
    return transpose_each(in_file[0], in_file[1], in_file[2] * in_file[3], values.data(), to);
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
    if (std::memcmp(file.data(), ours.data(), float_bytes(count)) != 0) return false;
  }
  return true;
}

TensorMatch::TensorMatch(
    const PretrainedModel& model, const ParameterLayout& layout, const WeightFiles& files, bool new_head)
    : bound(bind_names(model.names, layout)), model_(model), files_(files) {
  const std::string& prefix = model.names.prefix;
  with_prefix = prefix.empty() || std::ranges::any_of(files.weights(), [&](const WeightFiles::Weight& weight) {
    return model_.names.current(weight.name).starts_with(prefix);
  });
  for (const WeightFiles::Weight& weight : files.weights()) {
    const std::string name = table_name(weight.name);
    const auto [other, inserted] = by_name_.emplace(name, &weight);
    if (!inserted)
      fail_user("'", weight.file->path(), "': tensors ", other->second->name, " and ", weight.name,
          " are the same part of the model");
  }
  match(new_head);
  check_missing(new_head);
  check_extra();
}

// Replaces old endings and beginnings, and adds the table's prefix.
std::string TensorMatch::table_name(const std::string& name) const {
  std::string result = model_.names.current(name);
  for (const auto& [old_ending, ending] : model_.names.old_endings)
    if (result.ends_with(old_ending)) result = result.substr(0, result.size() - old_ending.size()) + ending;
  if (with_prefix) return result;
  const std::string prefixed = model_.names.prefix + result;
  return contains(model_.names.rows, prefixed, &NameRow::tensor) ? prefixed : result;
}

void TensorMatch::match(bool new_head) {
  for (const BoundRow& row : bound) {
    const auto found = by_name_.find(row.row->tensor);
    rows.push_back({&row, found == by_name_.end() ? nullptr : found->second});
    if (found == by_name_.end()) continue;
    const TensorEntry& entry = *found->second->entry;
    const bool is_replaced = model_.replaced.contains(row.row->tensor);
    if (entry.type.shape != row.shape && (is_replaced || (new_head && row.row->role == TensorRole::kHead))) {
      rows.back().weight = nullptr;  // of another number of tokens or classes: adapters have it, or it is drawn anew
      continue;
    }
    const std::string who = "'" + found->second->file->path() + "': tensor " + entry.name + " is " + entry.text();
    if (entry.type.shape != row.shape) fail_user(who, ", expected the shape ", row.shape.text());
    if (!is_float(entry.dtype)) fail_user(who, ", expected a floating-point type");
  }
}

void TensorMatch::check_missing(bool new_head) {
  std::vector<std::string> missing;
  std::map<std::string, const WeightFiles::Weight*> copies;  // of parameters, under another name of theirs
  for (const MatchedRow& row : rows)
    if (row.weight && row.bound->row->role == TensorRole::kCopy) copies[row.bound->row->parameter] = row.weight;
  for (MatchedRow& matched : rows) {
    if (matched.weight) continue;
    const NameRow& row = *matched.bound->row;
    if (row.role != TensorRole::kRequired && row.role != TensorRole::kHead) continue;
    if (model_.replaced.contains(row.tensor)) continue;
    if (row.role == TensorRole::kHead && new_head) {
      fresh.push_back(row.tensor);
      continue;
    }
    // Some programs write another name of a tied weight.
    if (const auto copy = copies.find(row.parameter); copy != copies.end()) matched.weight = copy->second;
    if (matched.weight) continue;
    const std::string& prefix = model_.names.prefix;
    missing.push_back(!with_prefix && row.tensor.starts_with(prefix) ? row.tensor.substr(prefix.size()) : row.tensor);
  }
  if (missing.empty()) return;
  const std::string where =
      files_.files() == 1 ? files_.weights().empty() ? model_.folder : files_.weights()[0].file->path() : model_.folder;
  fail_user("'", where, "' has no tensor ", missing[0], and_more(missing.size()), ", which a ", model_.architecture,
      " needs");
}

void TensorMatch::check_extra() {
  std::set<std::string> known;
  for (const MatchedRow& matched : rows) known.insert(matched.bound->row->tensor);
  std::vector<const WeightFiles::Weight*> extra;
  for (const auto& [name, weight] : by_name_) {
    if (known.contains(name)) continue;
    const std::string& prefix = model_.names.prefix;
    const std::string bare = !prefix.empty() && name.starts_with(prefix) ? name.substr(prefix.size()) : name;
    if (matches_any(bare, model_.names.computed)) continue;
    if (matches_any(bare, model_.names.other_heads)) unused.push_back(weight->name);
    else extra.push_back(weight);
  }
  if (!extra.empty())
    fail_user("'", extra[0]->file->path(), "': tensor ", extra[0]->name, and_more(extra.size()), " is not part of a ",
        model_.architecture);
}

std::map<std::string, FileDType> TensorMatch::dtypes() const {
  std::map<std::string, FileDType> result;
  for (const MatchedRow& matched : rows) {
    const bool own = matched.weight && table_name(matched.weight->name) == matched.bound->row->tensor;
    if (own) result[matched.bound->row->tensor] = matched.weight->entry->dtype;
  }
  return result;
}

void TensorMatch::fail_different(const MatchedRow& matched) const {
  const NameRow& row = *matched.bound->row;
  const std::string who = "'" + matched.weight->file->path() + "': tensor " + matched.weight->name;
  if (row.role == TensorRole::kConstant) fail_user(who, " is not ", row.constant, " everywhere");
  fail_user(who, " is not the same as the one it is tied to in a ", model_.architecture);
}

std::map<std::string, PackedShape> parameters_in_blocks(const std::string& folder) {
  const PretrainedModel model = open_pretrained(folder);
  const WeightFiles files(folder);
  const ParameterLayout layout(*model.module);
  const TensorMatch match(model, layout, files, !model.fresh.empty());
  std::map<std::string, PackedShape> found;
  for (const ParameterSlot& slot : layout.parameters())
    if (const auto shape = in_blocks(tensors_of(match, slot), slot.spec.shape)) found[slot.spec.name] = *shape;
  return found;
}

void load_blocks(const TensorMatch& match, const ParameterSlot& slot, float* parameters) {
  auto* to = reinterpret_cast<std::byte*>(parameters + slot.offset);
  for (const MatchedRow* matched : tensors_of(match, slot)) {
    const WeightFormat format = format_of(*matched);
    const auto bytes = static_cast<size_t>(file_row_bytes(format, slot.spec.shape[1]));
    for (int64_t row = 0; row < rows_of(*matched); ++row, to += bytes) {
      const std::byte* from = row_of(*matched, row);
      if (!is_finite_row(format, from, slot.spec.shape[1]))
        fail_user("'", matched->weight->file->path(), "': tensor ", matched->weight->entry->name,
            " holds values that are not numbers (NaN)");
      std::memcpy(to, from, bytes);
    }
    matched->weight->file->drop_pages();
  }
}
}  // namespace linnet
