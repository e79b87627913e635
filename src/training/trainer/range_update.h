// The update of one trained range and the states of its optimizer. Elementwise optimizers are one node over the flat
// buffer. Muon and Adafactor, which need whole matrices, are composed of ops on pieces of the buffer, in place.
#pragma once
#include "engine/ops/optimizer/optimizer.h"
#include "models/nn/parameter_layout.h"

namespace linnet {
// An optimizer state other than "moment1", "moment2" and "ema", which have one number for each parameter.
struct PackedState {
  std::string name;  // the graph's input, with the range's suffix
  TensorType type;
};

// The trainer's optimizer with the settings of the range's group.
OptimizerAttrs optimizer_of(const TrainedRange& range, const OptimizerAttrs& common);
bool has_moment(const OptimizerAttrs& attrs, int moment);
std::vector<PackedState> packed_states_of(
    const ParameterLayout& layout, const TrainedRange& range, const OptimizerAttrs& common);
std::vector<PackedState> packed_states(const ParameterLayout& layout, const OptimizerAttrs& common);
// Whether any part of a range can be updated without the rest.
bool is_elementwise(const OptimizerAttrs& attrs);

// A range's matrix that is stored in bf16.
struct PackedParameters {
  QuantizedSlot slot;
  Tensor random;  // [4], for rounding
};

// The gradient of the sum of losses and what else an update needs.
struct RangeGradient {
  Tensor flat;                                  // [range.count]
  Tensor squares, count, control;               // of all ranges; see engine/ops/optimizer/optimizer.h
  std::optional<PackedParameters> packed = {};  // empty: the parameters are an input of the graph, in fp32
};

// Adds the states of a range to the graph as inputs, and updates them.
void update_range(Graph& graph, const ParameterLayout& layout, const TrainedRange& range, const OptimizerAttrs& common,
    const RangeGradient& gradient);

// A part of a trained range that Muon or Adafactor updates by itself: a matrix, or a run of other parameters, which
// ranks may divide; for Adafactor only between tensors.
struct RangePiece {
  int64_t offset, count;  // in the range
  bool is_matrix;
  bool decays;            // for a piece of one tensor: has weight decay
  int64_t rows, columns;  // of a matrix
};

// Matrices of layers: two axes of at least two elements, but neither an embedding table nor the head, whose name has a
// part "head", "lm_head" or "classifier".
std::vector<RangePiece> layer_matrices(const ParameterLayout& layout, const TrainedRange& range);

// Each tensor by itself; matrices are all with two axes of at least two elements.
std::vector<RangePiece> tensors_of(const ParameterLayout& layout, const TrainedRange& range);

// Muon: scales x [rows, columns] to about the nearest semi-orthogonal matrix, with singular values from 0.7 to 1.2.
Tensor orthogonal(At x);
}  // namespace linnet
