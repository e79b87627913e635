#include "training/trainer/range_update.h"
#include <algorithm>
#include <array>
#include "base/error.h"
#include "engine/ops/dropout/dropout.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/optimizer/adam_8bit.h"
#include "engine/ops/quantized/quantized.h"
#include "engine/plan/state_names.h"

namespace linnet {
namespace {

using Kind = OptimizerAttrs::Kind;

void update_by_adam_8bit(Graph& graph, const TrainedRange& range, const OptimizerAttrs& attrs,
                         const RangeGradient& gradient) {
  const TensorType flat = gradient.flat.type(), codes = moment_codes_type(range.count),
                   scales = moment_scales_type(range.count, flat.dtype);
  const auto state = [&](const char* name, const TensorType& type) { return graph.input(name + range.suffix, type); };
  Adam8bitState old{range_parameters(graph, range, gradient), state("moment1.codes", codes),
                    state("moment1.scales", scales),          state("moment2.codes", codes),
                    state("moment2.scales", scales),          {}};
  if (attrs.ema_decay > 0) old.ema = state(state::kAverage, flat);
  const Adam8bitState next =
      adam_8bit_step(old, gradient.flat, gradient.squares, gradient.count, gradient.control, attrs);
  update_parameters(graph, old.parameters, next.parameters, gradient);
  graph.update(old.codes1, next.codes1), graph.update(old.scales1, next.scales1);
  graph.update(old.codes2, next.codes2), graph.update(old.scales2, next.scales2);
  if (old.ema.defined()) graph.update(old.ema, next.ema);
}

bool is_of_head(const std::string& name) {
  return std::ranges::any_of(std::array{".head.", ".lm_head.", ".classifier."},
                             [&](const char* part) { return ("." + name + ".").find(part) != std::string::npos; });
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

int64_t other_elements(const std::vector<RangePiece>& pieces) {
  int64_t count = 0;
  for (const RangePiece& piece : pieces) count += piece.is_matrix ? 0 : piece.count;
  return count;
}

void expect_whole(const ParameterSpec& spec, int64_t count) {
  if (count != spec.shape.elements()) fail_internal(spec.name + " is updated as a whole and was divided");
}

}  // namespace

OptimizerAttrs optimizer_of(const TrainedRange& range, const OptimizerAttrs& common) {
  OptimizerAttrs attrs = common;
  if (range.group.optimizer) {
    attrs = *range.group.optimizer;
    attrs.clip_norm = common.clip_norm, attrs.ema_decay = common.ema_decay;
  }
  if (range.group.weight_decay) attrs.weight_decay = *range.group.weight_decay;
  attrs.rate_factor = range.group.rate_factor;
  attrs.decay_count = range.decay_count;
  return attrs;
}

bool is_elementwise(const OptimizerAttrs& attrs) { return attrs.kind <= Kind::kLion; }

bool has_moment(const OptimizerAttrs& attrs, int moment) {
  if (moment == 2) return attrs.kind == Kind::kAdam;
  return is_elementwise(attrs) || attrs.kind == Kind::kMuon;
}

std::vector<PackedState> packed_states_of(const ParameterLayout& layout, const TrainedRange& range,
                                          const OptimizerAttrs& common) {
  std::vector<PackedState> states;
  const auto add = [&](const char* name, const TensorType& type) {
    if (type.shape.elements() > 0) states.push_back({name + range.suffix, type});
  };
  const OptimizerAttrs attrs = optimizer_of(range, common);
  if (attrs.kind == Kind::kAdam8bit) {
    for (const char* codes : {"moment1.codes", "moment2.codes"}) add(codes, moment_codes_type(range.count));
    for (const char* scales : {"moment1.scales", "moment2.scales"})
      add(scales, moment_scales_type(range.count, DType::kF32));
  } else if (attrs.kind == Kind::kMuon) {
    add("moment2.rest", {DType::kF32, {other_elements(layer_matrices(layout, range))}});
  } else if (attrs.kind == Kind::kAdafactor) {
    const std::vector<RangePiece> pieces = tensors_of(layout, range);
    add("moment2.factors", {DType::kF32, {factor_elements(pieces)}});
    add("moment2.rest", {DType::kF32, {other_elements(pieces)}});
  }
  return states;
}

std::vector<PackedState> packed_states(const ParameterLayout& layout, const OptimizerAttrs& common) {
  std::vector<PackedState> states;
  const auto add_range = [&](const TrainedRange& range) {
    for (PackedState& state : packed_states_of(layout, range, common)) states.push_back(std::move(state));
  };
  for (const TrainedRange& range : layout.ranges()) add_range(range);
  for (const PackedRange& packed : layout.packed_ranges()) {
    add_range(packed.range);
    const OptimizerAttrs attrs = optimizer_of(packed.range, common);
    for (const int moment : {1, 2})
      if (has_moment(attrs, moment))
        states.push_back(
            {"moment" + std::to_string(moment) + packed.range.suffix, {DType::kF32, {packed.range.count}}});
  }
  return states;
}

void update_range(Graph& graph, const ParameterLayout& layout, const TrainedRange& range, const OptimizerAttrs& common,
                  const RangeGradient& gradient) {
  const OptimizerAttrs attrs = optimizer_of(range, common);
  if (attrs.kind == Kind::kAdam8bit) return update_by_adam_8bit(graph, range, attrs, gradient);
  if (attrs.kind == Kind::kMuon) return update_by_muon(graph, layer_matrices(layout, range), range, attrs, gradient);
  if (attrs.kind == Kind::kAdafactor)
    return update_by_adafactor(graph, tensors_of(layout, range), range, attrs, gradient);
  const auto input = [&](const char* name) { return graph.input(name + range.suffix, gradient.flat.type()); };
  OptimizerState old{range_parameters(graph, range, gradient), input(state::kMoment1), {}, {}};
  if (attrs.kind == Kind::kAdam) old.moment2 = input(state::kMoment2);
  if (attrs.ema_decay > 0) old.ema = input(state::kAverage);
  const OptimizerState next =
      optimizer_step(old, gradient.flat, gradient.squares, gradient.count, gradient.control, attrs);
  update_parameters(graph, old.parameters, next.parameters, gradient);
  graph.update(old.moment1, next.moment1);
  if (next.moment2.defined()) graph.update(old.moment2, next.moment2);
  if (next.ema.defined()) graph.update(old.ema, next.ema);
}

Tensor range_parameters(Graph& graph, const TrainedRange& range, const RangeGradient& gradient) {
  const TensorType flat = gradient.flat.type();
  if (!gradient.packed) return graph.input("parameters" + range.suffix, flat);
  const QuantizedSlot& slot = gradient.packed->slot;
  const TensorType packed{DType::kU8, {static_cast<int64_t>(slot.shape.bytes())}};
  return reshape(dequantize(graph.input(slot.input(), packed), slot.shape, flat.dtype), flat.shape);
}

void update_parameters(Graph& graph, Tensor old, Tensor next, const RangeGradient& gradient) {
  if (!gradient.packed) return graph.update(old, next);
  const auto& [slot, random] = *gradient.packed;
  const TensorType packed{DType::kU8, {static_cast<int64_t>(slot.shape.bytes())}};
  graph.update(graph.input(slot.input(), packed),
               round_bf16(next, random, slot.shape, dropout_site(slot.slot.spec.name, "storage")));
}

std::vector<RangePiece> layer_matrices(const ParameterLayout& layout, const TrainedRange& range) {
  std::vector<RangePiece> pieces;
  for_parameters(layout, range, [&](const ParameterSpec& spec, int64_t offset, int64_t count) {
    const bool of_layer = is_matrix(spec) && !spec.table && !is_of_head(spec.name);
    if (of_layer) expect_whole(spec, count);
    if (!of_layer && !pieces.empty() && !pieces.back().is_matrix) pieces.back().count += count;
    else pieces.push_back(piece_of(spec, offset, count, of_layer));
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

}  // namespace linnet
