#include "training/trainer/range_pieces.h"

#include <algorithm>
#include <string_view>

#include "base/error.h"

namespace linnet {
namespace {

bool is_of_head(std::string_view name) {
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    if (part == "head" || part == "lm_head" || part == "classifier") return true;
    begin = end + 1;
  }
  return false;
}

bool is_matrix(const ParameterSpec& spec) {
  return spec.shape.rank() == 2 && std::min(spec.shape[0], spec.shape[1]) > 1;
}

RangePiece piece_of(const ParameterSpec& spec, int64_t offset, int64_t count, bool is_matrix) {
  return {offset, count, is_matrix, spec.weight_decay, is_matrix ? spec.shape[0] : 0, is_matrix ? spec.shape[1] : 0};
}

// Calls visit(spec, offset in the range, count) for what the range has of each parameter.
template <class Visit>
void for_parameters(const ParameterLayout& layout, const TrainedRange& range, const Visit& visit) {
  for (const auto& [spec, offset] : layout.parameters()) {
    const int64_t first = std::max(offset, range.offset),
                  end = std::min(offset + spec.shape.elements(), range.offset + range.count);
    if (first < end) visit(spec, first - range.offset, end - first);
  }
}

void expect_whole(const ParameterSpec& spec, int64_t count) {
  if (count != spec.shape.elements()) fail_internal(spec.name + " is updated as a whole and was divided");
}

int64_t elements(const std::vector<RangePiece>& pieces, bool matrices) {
  int64_t count = 0;
  for (const RangePiece& piece : pieces) count += piece.is_matrix == matrices ? piece.count : 0;
  return count;
}

}  // namespace

std::vector<RangePiece> layer_matrices(const ParameterLayout& layout, const TrainedRange& range) {
  std::vector<RangePiece> pieces;
  for_parameters(layout, range, [&](const ParameterSpec& spec, int64_t offset, int64_t count) {
    const bool of_layer = is_matrix(spec) && !spec.table && !is_of_head(spec.name);
    if (of_layer) expect_whole(spec, count);
    if (!of_layer && !pieces.empty() && !pieces.back().is_matrix)
      pieces.back().count += count;
    else
      pieces.push_back(piece_of(spec, offset, count, of_layer));
  });
  return pieces;
}

std::vector<RangePiece> tensors_of(const ParameterLayout& layout, const TrainedRange& range) {
  std::vector<RangePiece> pieces;
  for_parameters(layout, range, [&](const ParameterSpec& spec, int64_t offset, int64_t count) {
    expect_whole(spec, count);
    pieces.push_back(piece_of(spec, offset, count, is_matrix(spec)));
  });
  return pieces;
}

int64_t matrix_elements(const std::vector<RangePiece>& pieces) { return elements(pieces, true); }
int64_t other_elements(const std::vector<RangePiece>& pieces) { return elements(pieces, false); }

}  // namespace linnet
