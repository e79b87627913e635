// How the parameters of one trained range become new ones: what its optimizer keeps between steps, and the nodes of an
// update. Elementwise optimizers are one node over the flat buffer. Those that see a matrix as a whole (Muon,
// Adafactor) are composed of other ops, a piece of the buffer at a time, where it lies.
#pragma once
#include "engine/ops/optimizer/optimizer.h"
#include "engine/plan/state_names.h"
#include "models/nn/parameter_layout.h"

namespace linnet {

// A state of the optimizer beside "moment1", "moment2" and "ema", which have a number for each parameter.
struct PackedState {
  std::string name;  // of the graphs' input, with the range's suffix
  TensorType type;
};

// The trainer's optimizer with what the group says otherwise.
OptimizerAttrs optimizer_of(const TrainedRange& range, const OptimizerAttrs& common);
// Whether the range's optimizer keeps "moment1" or "moment2".
bool has_moment(const OptimizerAttrs& attrs, int moment);
std::vector<PackedState> packed_states_of(const ParameterLayout& layout, const TrainedRange& range,
                                          const OptimizerAttrs& common);
// Of all ranges.
std::vector<PackedState> packed_states(const ParameterLayout& layout, const OptimizerAttrs& common);
// Whether any part of a range can be updated without the rest.
bool is_elementwise(const OptimizerAttrs& attrs);

// A range's matrix that is stored in bf16.
struct PackedParameters {
  QuantizedSlot slot;
  Tensor random;  // [4], for rounding
};

// The gradient of the sum of losses and what an update needs beside it.
struct RangeGradient {
  Tensor flat;                                  // [range.count]
  Tensor squares, count, control;               // of all ranges; see engine/ops/optimizer/optimizer.h
  std::optional<PackedParameters> packed = {};  // empty: the parameters are an input of the graph, in fp32
};

// Adds the states of a range to the graph as inputs, and updates them.
void update_range(Graph& graph, const ParameterLayout& layout, const TrainedRange& range, const OptimizerAttrs& common,
                  const RangeGradient& gradient);

// A trained range, or the part of it that a rank updates, cut into what Muon and Adafactor update each by itself:
// matrices, and runs of other parameters, which alone a part may cut, for Adafactor only between tensors.
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

// Of Muon: x [rows, columns], scaled to about the nearest semi-orthogonal matrix: singular values between 0.7 and 1.2.
Tensor orthogonal(At x);

}  // namespace linnet
