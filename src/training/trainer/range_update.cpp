#include "training/trainer/range_update.h"
#include "base/fail.h"
#include "engine/ops/dropout/dropout.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/formula.h"
#include "engine/ops/quantized/quantized.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/plan/store.h"

namespace linnet {
namespace {
using Kind = OptimizerAttrs::Kind;

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

template <class Visit>
void for_parameters(const ParameterLayout& layout, const TrainedRange& range, const Visit& visit) {
  for (const auto& [spec, offset] : layout.parameters()) {
    const int64_t first = std::max(offset, range.offset),
                  end = std::min(offset + spec.shape.elements(), range.offset + range.count);
    if (first < end) visit(spec, first - range.offset, end - first);
  }
}

int64_t other_elements(const std::vector<RangePiece>& pieces) {
  return sum_of<int64_t>(pieces, [](const RangePiece& piece) { return piece.is_matrix ? 0 : piece.count; });
}

void expect_whole(const ParameterSpec& spec, int64_t count) {
  if (count != spec.shape.elements()) fail_internal(spec.name, " is updated as a whole and was divided");
}

// The parameters of a range, fp32 [range.count], as its update reads them, and where its result goes.
Tensor range_parameters(Graph& graph, const TrainedRange& range, const RangeGradient& gradient) {
  const TensorType flat = gradient.flat.type();
  if (!gradient.packed) return graph.input("parameters" + range.suffix, flat);
  const QuantizedSlot& slot = gradient.packed->slot;
  return reshape(dequantize(graph.input(slot.input(), slot.type()), slot.shape, flat.dtype), flat.shape);
}

void update_parameters(Graph& graph, Tensor old, Tensor next, const RangeGradient& gradient) {
  if (!gradient.packed) return graph.update(old, next);
  const auto& [slot, random] = *gradient.packed;
  graph.update(graph.input(slot.input(), slot.type()),
      round_bf16(next, random, slot.shape, dropout_site(slot.slot.spec.name, "storage")));
}

// An update by one op, which takes all states and gives them anew.
void update_at_once(
    Graph& graph, const TrainedRange& range, const OptimizerAttrs& attrs, const RangeGradient& gradient) {
  const TensorType flat = gradient.flat.type(), codes = moment_codes_type(range.count),
                   scales = moment_scales_type(range.count, flat.dtype);
  std::vector<Tensor> states{range_parameters(graph, range, gradient)};
  const auto add = [&](const char* name, const TensorType& type) {
    states.push_back(graph.input(name + range.suffix, type));
  };
  if (attrs.kind == Kind::kAdam8bit) {
    add("moment1.codes", codes), add("moment1.scales", scales);
    add("moment2.codes", codes), add("moment2.scales", scales);
  } else {
    add(state::kMoment1, flat);
    if (attrs.kind == Kind::kAdam) add(state::kMoment2, flat);
  }
  if (attrs.ema_decay > 0) add(state::kAverage, flat);
  const std::vector<Tensor> next =
      optimizer_step(states, gradient.flat, gradient.squares, gradient.count, gradient.control, attrs);
  update_parameters(graph, states[0], next[0], gradient);
  for (size_t i = 1; i < next.size(); ++i) graph.update(states[i], next[i]);
}

constexpr int kIterations = 5;
constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;
constexpr double kLeastSquare = 1e-30;

Number moved_towards(Number from, Number to, Number share) { return from + (to - from) * share; }

// Operand 0, unchanged, unless operand 3 says that the step is finite.
Number if_finite(FormulaBuilder& f, Number next) {
  const Number old = f[0], is_finite = f[3];
  return select(is_finite, next, old);
}

// m + (1 - momentum) (g - m), where operand 0 is m, 1 the gradient and 2 its factor.
Number next_momentum(FormulaBuilder& f, double momentum) {
  const Number share = f.constant(1 - momentum), factor = f[2], g = f[1] * factor;
  return moved_towards(f[0], g, share);
}

Tensor direction(const Tensor& m, const Tensor& gradient, const UpdateFactors& factors, double momentum) {
  FormulaBuilder f;
  const Number next = next_momentum(f, momentum), factor = f[2], g = f[1] * factor, kept = next * momentum;
  return f.finish(g * (1 - momentum) + kept, std::array{m, gradient, factors.scale});
}

Tensor updated_momentum(const Tensor& m, const Tensor& gradient, const UpdateFactors& factors, double momentum) {
  FormulaBuilder f;
  return f.finish(if_finite(f, next_momentum(f, momentum)), std::array{m, gradient, factors.scale, factors.finite});
}

// old + share (sum * factor - old), or old where the step is not finite.
Tensor next_mean(
    const Tensor& old, const Tensor& sum, double factor, const Tensor& share, const UpdateFactors& factors) {
  FormulaBuilder f;
  const Number scale = f.constant(factor), mean = f[1] * scale, part = f[2];
  return f.finish(if_finite(f, moved_towards(f[0], mean, part)), std::array{old, sum, share, factors.finite});
}

// parameters * (1 - rate * decay) - rate * length * direction, all of one shape but the learning rate, `rate` []. Gives
// the parameters unchanged if the step is not finite.
Tensor stepped(const Tensor& parameters, const Tensor& direction, const Tensor& rate, const UpdateFactors& factors,
    double length, double decay) {
  FormulaBuilder f;
  const Number p = f[0], r = f[2], kept = 1 - r * decay, shrunk = decay == 0 ? p : p * kept;
  const Number u = f[1], step = r * length * u;
  return f.finish(if_finite(f, shrunk - step), std::array{parameters, direction, rate, factors.finite});
}

// step^-decay_power: the share of this step's squares in the second moment.
Tensor fresh_share(const Tensor& control, double decay_power) {
  FormulaBuilder f;
  const Number exponent = f.constant(-decay_power);
  return f.finish(pow(f[0], exponent), std::array{reshape(slice(control, 0, 1, 1), {})});
}

// (gradient * scale)^2 + 1e-30.
Tensor squares_of(const Tensor& gradient, const Tensor& scale) {
  FormulaBuilder f;
  const Number factor = f[1];
  return f.finish(square(f[0] * factor) + kLeastSquare, std::array{gradient, scale});
}

// gradient * scale / sqrt(v) where v = row * column / mean(row).
Tensor direction(const Tensor& gradient, const Tensor& row, const Tensor& column, const Tensor& scale) {
  const int64_t rows = row.shape().elements();
  const Tensor mean = sum_to(row, {}) * (1.0 / static_cast<double>(rows));
  const Tensor by_row = reshape(rsqrt(row), {rows, 1}), by_column = rsqrt(column) * (mean * rsqrt(mean));
  return gradient * scale * by_row * by_column;
}

// Scales the direction to a root mean square of at most 1.
Tensor clipped(const Tensor& u) {
  FormulaBuilder f;
  const Number share = f.constant(1.0 / static_cast<double>(u.shape().elements()));
  const Number mean = f[1] * share, most = max(1, sqrt(mean));
  return f.finish(f[0] / most, std::array{u, sum_to(square(u), {})});
}

// A flat tensor cut along `sizes` and updated piece by piece; empty without a tensor.
struct Parts {
  Parts(const Tensor& whole, const std::vector<int64_t>& sizes) : whole(whole), old(split(whole, 0, sizes)) {}
  Parts(Graph& graph, const std::string& name, DType dtype, const std::vector<int64_t>& sizes) {
    const int64_t count = sum_of<int64_t>(sizes);
    if (count > 0) *this = Parts(graph.input(name, {dtype, {count}}), sizes);
  }
  const Tensor& current() const { return old[next.size()]; }
  void update(Graph& graph) const {
    if (whole.defined()) graph.update(whole, concat(next, 0));
  }
  Tensor whole;
  std::vector<Tensor> old, next;
};

// What Muon and Adafactor update a range with, piece by piece: the parameters and, if asked for, their average.
struct RangeUpdate {
  RangeUpdate(Graph& graph, const std::vector<RangePiece>& pieces, const TrainedRange& range,
      const OptimizerAttrs& attrs, const RangeGradient& gradient)
      : graph(graph), gradient(gradient),
        factors(update_factors(gradient.squares, gradient.count, gradient.control, attrs)),
        rate(reshape(slice(gradient.control, 0, 0, 1), {})), dtype(gradient.flat.type().dtype) {
    for (const RangePiece& piece : pieces) {
      sizes.push_back(piece.count);
      if (!piece.is_matrix) other_sizes.push_back(piece.count);
    }
    parameters.emplace(range_parameters(graph, range, gradient), sizes);
    gradients = split(gradient.flat, 0, sizes);
    if (attrs.ema_decay > 0) average = flat(state::kAverage, range);
  }
  void step(const RangePiece& piece, const Tensor& along, double length, const OptimizerAttrs& attrs) {
    const Tensor next = stepped(parameters->current(), along, rate, factors, attrs.rate_factor * length,
        attrs.rate_factor * (piece.decays ? attrs.weight_decay : 0));
    if (average) average->next.push_back(next_mean(average->current(), next, 1, factors.ema_rest, factors));
    parameters->next.push_back(next);
  }
  Parts flat(const char* name, const TrainedRange& range) const {
    return {graph.input(name + range.suffix, gradient.flat.type()), sizes};
  }
  void finish() const {
    update_parameters(graph, parameters->whole, concat(parameters->next, 0), gradient);
    if (average) average->update(graph);
  }

  Graph& graph;
  const RangeGradient& gradient;
  const UpdateFactors factors;
  const Tensor rate;
  const DType dtype;
  std::vector<int64_t> sizes, other_sizes;  // of all pieces; of those that are not matrices
  std::vector<Tensor> gradients;
  std::optional<Parts> parameters, average;
};

// Muon (Jordan et al. 2024): a matrix moves along the semi-orthogonal matrix nearest to its momentum.
//
//   g = gradient * scale,   m += (1 - momentum) (g - m),   u = (1 - momentum) g + momentum m          (Nesterov)
//   x = u / |u|;  five times:  a = x x^T,  x = 3.4445 x + (-4.7750 a + 2.0315 a^2) x
//   parameter = parameter * (1 - rate * weight_decay) - rate * 0.2 sqrt(max(rows, columns)) x
//
// The factor makes the step as long as AdamW's in large models, which take AdamW's learning rate and weight decay (Liu
// et al. 2025, "Muon is Scalable for LLM Training"); small models need three to four times the rate. AdamW updates all
// but layer matrices (training/trainer/range_update.h).
//
// States: "moment1", the momentum of matrices and AdamW's first moment; "moment2.rest", AdamW's second moment.
void update_by_muon(Graph& graph, const std::vector<RangePiece>& pieces, const TrainedRange& range,
    const OptimizerAttrs& attrs, const RangeGradient& gradient) {
  RangeUpdate update(graph, pieces, range, attrs, gradient);
  Parts moment1 = update.flat(state::kMoment1, range);
  OptimizerAttrs adamw = attrs;
  adamw.kind = OptimizerAttrs::Kind::kAdam, adamw.decoupled = true;
  Parts moment2(graph, "moment2.rest" + range.suffix, update.dtype, update.other_sizes);
  for (size_t i = 0; i < pieces.size(); ++i) {
    const RangePiece& piece = pieces[i];
    const Tensor m = moment1.current();
    if (piece.is_matrix) {
      const Tensor u = direction(m, update.gradients[i], update.factors, attrs.momentum);
      const Tensor x = reshape(orthogonal(reshape(u, {piece.rows, piece.columns})), {piece.count});
      moment1.next.push_back(updated_momentum(m, update.gradients[i], update.factors, attrs.momentum));
      update.step(piece, x, 0.2 * std::sqrt(static_cast<double>(std::max(piece.rows, piece.columns))), attrs);
      continue;
    }
    adamw.decay_count = std::clamp<int64_t>(range.decay_count - piece.offset, 0, piece.count);
    const Tensor average = update.average ? update.average->current() : Tensor{};
    const std::vector<Tensor> next =
        optimizer_step(with_defined({update.parameters->current(), m, moment2.current()}, {average}),
            update.gradients[i], gradient.squares, gradient.count, gradient.control, adamw);
    update.parameters->next.push_back(next[0]), moment1.next.push_back(next[1]), moment2.next.push_back(next[2]);
    if (update.average) update.average->next.push_back(next[3]);
  }
  update.finish();
  moment1.update(graph), moment2.update(graph);
}

// Adafactor without a first moment (Shazeer & Stern 2018, algorithms 4 and 5), for each tensor:
//
//   g = gradient * scale,   fresh = step^-decay_power
//   matrices [N, M]:  r += fresh (mean over columns of (g^2 + 1e-30) - r),   c += fresh (mean over rows - c)
//                     v = r c / mean(r)
//   others:           v += fresh (g^2 + 1e-30 - v)
//   u = g / sqrt(v),   u = u / max(1, root mean square of u)
//   parameter = parameter * (1 - rate * weight_decay) - rate * u
//
// The rate is the learning rate; unlike the paper's it is not multiplied by the parameter's root mean square.
//
// States: "moment2.factors", r and c of all matrices in order; "moment2.rest", v of the others.
void update_by_adafactor(Graph& graph, const std::vector<RangePiece>& pieces, const TrainedRange& range,
    const OptimizerAttrs& attrs, const RangeGradient& gradient) {
  RangeUpdate update(graph, pieces, range, attrs, gradient);
  const Tensor fresh = fresh_share(gradient.control, attrs.decay_power), scale = update.factors.scale;
  std::vector<int64_t> factor_sizes;
  for (const RangePiece& piece : pieces)
    if (piece.is_matrix) factor_sizes.insert(factor_sizes.end(), {piece.rows, piece.columns});
  Parts factors(graph, "moment2.factors" + range.suffix, update.dtype, factor_sizes),
      others(graph, "moment2.rest" + range.suffix, update.dtype, update.other_sizes);
  const auto add = [&](Parts& moments, const Tensor& sum, double factor) {
    return moments.next.emplace_back(next_mean(moments.current(), sum, factor, fresh, update.factors));
  };
  for (size_t i = 0; i < pieces.size(); ++i) {
    const RangePiece& piece = pieces[i];
    Tensor u;
    if (piece.is_matrix) {
      const Tensor g = reshape(update.gradients[i], {piece.rows, piece.columns}), squares = squares_of(g, scale);
      const Tensor by_row = reshape(sum_to(squares, {piece.rows, 1}), {piece.rows}),
                   by_column = sum_to(squares, {piece.columns});
      const Tensor row = add(factors, by_row, 1.0 / static_cast<double>(piece.columns)),
                   column = add(factors, by_column, 1.0 / static_cast<double>(piece.rows));
      u = direction(g, row, column, scale);
    } else {
      u = update.gradients[i] * scale * rsqrt(add(others, squares_of(update.gradients[i], scale), 1));
    }
    update.step(piece, reshape(clipped(u), {piece.count}), 1, attrs);
  }
  update.finish();
  factors.update(graph), others.update(graph);
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
  return moment == 2 ? attrs.kind == Kind::kAdam : is_elementwise(attrs) || attrs.kind == Kind::kMuon;
}

std::vector<PackedState> packed_states_of(
    const ParameterLayout& layout, const TrainedRange& range, const OptimizerAttrs& common) {
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
    const auto factors = sum_of<int64_t>(pieces, [](const RangePiece& piece) { return piece.rows + piece.columns; });
    add("moment2.factors", {DType::kF32, {factors}});
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
  if (attrs.kind == Kind::kMuon) return update_by_muon(graph, layer_matrices(layout, range), range, attrs, gradient);
  if (attrs.kind == Kind::kAdafactor)
    return update_by_adafactor(graph, tensors_of(layout, range), range, attrs, gradient);
  update_at_once(graph, range, attrs, gradient);
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

Tensor orthogonal(At x) {
  const bool tall = x.value.dim(0) > x.value.dim(1);  // use the smaller of x x^T and x^T x
  Tensor y = x.value * rsqrt(sum_to(square(x), {}) + 1e-30);
  for (int i = 0; i < kIterations; ++i) {
    const Tensor a = matmul(y, y, tall, !tall);
    const Tensor b = a * kB + matmul(a * kC, a);
    y = y * kA + (tall ? matmul(y, b) : matmul(b, y));
  }
  return y;
}
}  // namespace linnet
