#include "models/families/kept_blocks.h"
#include <cstring>
#include "base/error.h"
#include "engine/kernels/quantized/file_blocks.h"
#include "formats/gguf_file.h"

namespace linnet {
namespace {

// The tensors of a parameter's rows, from the top.
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

std::map<std::string, PackedShape> parameters_in_blocks(const std::string& folder) {
  const PretrainedModel model = open_pretrained(folder);
  const WeightFiles files(folder);
  const ParameterLayout layout(*model.module);
  const std::vector<BoundRow> rows = bind_names(model.names, layout);
  const TensorMatch match(model, rows, files, !model.fresh.empty());
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
        fail_user("'" + matched->weight->file->path() + "': tensor " + matched->weight->entry->name +
                  " holds values that are not numbers (NaN)");
      std::memcpy(to, from, bytes);
    }
    matched->weight->file->drop_pages();
  }
}

}  // namespace linnet
