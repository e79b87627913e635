// A trained range, or the part of it that a rank updates, cut into what Muon and Adafactor update each by itself:
// matrices, and the runs of other parameters between them. A part may cut such a run, but no matrix and, for Adafactor,
// no tensor.
#pragma once
#include <vector>

#include "models/nn/parameter_layout.h"
#include "engine/ops/optimizer/optimizer.h"

namespace linnet {

struct RangePiece {
  int64_t offset, count;  // in the range
  bool is_matrix;
  bool decays;            // of a piece that is one tensor: has weight decay
  int64_t rows, columns;  // of a matrix
};

// Matrices of layers: two axes of at least two elements, no table of an embedding and not the head, whose name has a
// part "head", "lm_head" or "classifier".
std::vector<RangePiece> layer_matrices(const ParameterLayout& layout, const TrainedRange& range);

// Each tensor by itself; matrices are all that have two axes of at least two elements.
std::vector<RangePiece> tensors_of(const ParameterLayout& layout, const TrainedRange& range);

// The pieces of each kind, side by side.
int64_t matrix_elements(const std::vector<RangePiece>& pieces);
int64_t other_elements(const std::vector<RangePiece>& pieces);

}  // namespace linnet
