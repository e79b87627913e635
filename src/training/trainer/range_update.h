// How the parameters of one trained range become new ones: what its optimizer keeps between steps, and the nodes of an
// update. Elementwise optimizers are one node over the flat buffer. Those that see a matrix as a whole (Muon,
// Adafactor) are composed of other ops, a piece of the buffer at a time; the pieces lie where they did, so that nothing
// is copied.
#pragma once
#include <optional>
#include <string>
#include <vector>
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

// The parameters of a range as its update reads them, [range.count] in fp32, and what becomes of its result.
Tensor range_parameters(Graph& graph, const TrainedRange& range, const RangeGradient& gradient);
void update_parameters(Graph& graph, Tensor old, Tensor next, const RangeGradient& gradient);

// Adds the states of a range to the graph as inputs, and updates them.
void update_range(Graph& graph, const ParameterLayout& layout, const TrainedRange& range, const OptimizerAttrs& common,
                  const RangeGradient& gradient);

// Of elementwise optimizers: `state(name)` is an input of the graph.
template <class State>
OptimizerState optimizer_state(const OptimizerAttrs& attrs, const State& state) {
  OptimizerState s{state(state::kParameters), state(state::kMoment1), {}, {}};
  if (attrs.kind == OptimizerAttrs::Kind::kAdam) s.moment2 = state(state::kMoment2);
  if (attrs.ema_decay > 0) s.ema = state(state::kAverage);
  return s;
}
void update_moments(Graph& graph, const OptimizerState& state, const OptimizerState& next);  // and the average

// A trained range, or the part of it that a rank updates, cut into what Muon and Adafactor update each by itself:
// matrices, and the runs of other parameters between them. A part may cut such a run, but no matrix and, for Adafactor,
// no tensor.

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

// Of the pieces that are no matrices, side by side.
int64_t other_elements(const std::vector<RangePiece>& pieces);

}  // namespace linnet
