#include "models/nn/layers.h"
#include "base/fail.h"
#include "engine/ops/dropout/dropout.h"
#include "engine/ops/embedding/embedding.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/quantized/quantized.h"
#include "models/nn/activation_observer.h"
#include "models/nn/trace.h"

namespace linnet {
Linear::Linear(Module* parent, std::string name, int64_t in, int64_t out, const Initializer& initializer, bool has_bias)
    : Module(parent, std::move(name)), weight{this, "weight", {out, in}, initializer} {
  if (has_bias) bias.emplace(this, "bias", Shape{out}, constant_init(0));
}

void Linear::train_quantized(float step) { input_step.emplace(this, "input_step", Shape{1}, constant_init(step)); }

Tensor Linear::operator()(At x) {
  ModuleScope scope(*this);
  watch_input(weight.spec(), x.value);
  const Tensor product =
      input_step ? matmul(At(fake_quantize(x, *input_step), x.where), round_weight(At(weight, x.where)), false, true)
                 : matmul(x, weight, false, true);
  const Tensor result = bias ? At(product, x.where) + *bias : product;
  if (low_rank.empty()) return result;
  return At(result, x.where) + low_rank(x, weight.spec().shape[0]);
}

LayerNorm::LayerNorm(Module* parent, std::string name, int64_t width, double epsilon, NormKind kind)
    : Module(parent, std::move(name)), kind(kind), epsilon(epsilon) {
  if (kind != NormKind::kBare)
    weight.emplace(this, "weight", Shape{width}, constant_init(kind == NormKind::kRmsPlusOne ? 0 : 1));
  if (kind == NormKind::kLayer) bias.emplace(this, "bias", Shape{width}, constant_init(0));
}

Tensor LayerNorm::operator()(At x) {
  ModuleScope scope(*this);
  const Tensor scale = weight ? weight->tensor() : Tensor{};
  if (kind == NormKind::kRms) return rms_norm(x, scale, epsilon);
  if (kind == NormKind::kRmsPlusOne) return rms_norm(x, At(scale, x.where) + 1, epsilon);
  return layer_norm(x, scale, bias ? bias->tensor() : Tensor{}, epsilon);
}

BatchNorm::BatchNorm(Module* parent, std::string name, int64_t channels, double epsilon, double momentum)
    : Module(parent, std::move(name)), weight{this, "weight", {channels}, constant_init(1)}, bias{this, "bias",
                                                                                                 {channels},
                                                                                                 constant_init(0)},
      running_mean{this, "running_mean", {channels}, constant_init(0)}, running_var{this, "running_var", {channels},
                                                                            constant_init(1)},
      epsilon(epsilon), momentum(momentum) {}

Tensor BatchNorm::operator()(At x) {
  ModuleScope scope(*this);
  const Shape& channels = weight.spec().shape;
  const Trace& trace = Trace::current();
  // A frozen layer does not learn the statistics of other images either.
  if (!trace.options().training || (trace.is_frozen(weight.spec()) && trace.is_frozen(bias.spec()))) {
    // A factor and a summand per channel can join the convolution before them (engine/passes/fuse_convolution.cpp).
    const Tensor factor = rsqrt(running_var.tensor() + epsilon) * weight;
    const Tensor summand = bias.tensor() - running_mean.tensor() * factor;
    return At(x * factor, x.where) + summand;
  }
  const auto count = static_cast<double>(x.value.shape().elements()) / static_cast<double>(channels.elements());
  if (count < 2)
    fail_user("batch normalization of ", x.value.shape().text(), " has one element a channel, of which it cannot ",
        "take the variance", in_scope(path()));
  const BatchNormResult batch = batch_norm(x, weight, bias, epsilon);
  running_mean.update(running_mean.tensor() * (1 - momentum) + batch.mean * momentum);
  running_var.update(running_var.tensor() * (1 - momentum) + batch.variance * (momentum * count / (count - 1)));
  return batch.y;
}

Embedding::Embedding(
    Module* parent, std::string name, int64_t vocab_size, int64_t width, const Initializer& initializer)
    : Module(parent, std::move(name)), weight{this, "weight", {vocab_size, width}, initializer, /*table=*/true} {}

Tensor Embedding::operator()(At ids) {
  ModuleScope scope(*this);
  const Tensor rows = embedding(At(weight, ids.where), ids.value, padding);
  return scale == 1 ? rows : At(rows, ids.where) * scale;
}

Dropout::Dropout(Module* parent, std::string name, float probability)
    : Module(parent, std::move(name)), probability(probability) {
  if (!(probability >= 0 && probability < 1))
    fail_user("dropout \"", path(), "\" has the probability ", probability, ", which is not in [0, 1)");
}

Tensor Dropout::operator()(At x) {
  Trace& trace = Trace::current();
  if (!trace.options().training || probability == 0) return x.value;
  ModuleScope scope(*this);
  return dropout(x, trace.random(), probability, dropout_site(path(), "dropout"));
}

// U(-1 / sqrt(in), 1 / sqrt(in)) for A, as PEFT draws it.
LowRank::Adapter::Adapter(
    Module& layer, const std::string& part, int64_t first_row, int64_t rows, int64_t in, int64_t rank)
    : first_row(first_row),
      rows(rows), a{&layer, "lora_A." + part, {rank, in}, uniform_init(1 / std::sqrt(static_cast<double>(in)))},
      b{&layer, "lora_B." + part, {rows, rank}, constant_init(0)} {}

int64_t LowRank::Set::rank() const {
  return sum_of<int64_t>(adapters, [&](const Adapter& adapter) { return adapter.b.spec().shape[1]; });
}

void LowRank::add(Module& layer, const std::string& part, int64_t first_row, int64_t rows, int64_t in, int64_t rank,
    double scale, int64_t set) {
  if (sets_.empty() || sets_.back().index != set) sets_.push_back({set, scale});
  std::deque<Adapter>& adapters = sets_.back().adapters;
  if (!adapters.empty() && first_row < adapters.back().first_row + adapters.back().rows)
    fail_internal("adapters of ", layer.path(), " are not in the order of their rows");
  adapters.emplace_back(layer, part, first_row, rows, in, rank);
}

Tensor LowRank::operator()(At x, int64_t out) const {
  std::vector<Tensor> downs, ups;
  for (const Set& set : sets_) {
    for (const Adapter& adapter : set.adapters) downs.push_back(adapter.a);
    ups.push_back(up(x, out, set));
  }
  const Tensor narrow = matmul(x, joined(downs, 0, x.where), false, true);
  const bool chosen = sets_.front().index != kAlways;
  const Tensor scaled = chosen ? At(narrow, x.where) * chosen_scales(x) : At(narrow, x.where) * sets_.front().scale;
  return matmul(At(scaled, x.where), joined(ups, 1, x.where), false, true);
}

Tensor LowRank::chosen_scales(At x) const {
  Graph& graph = Trace::current().graph();
  const auto input = graph.find_input(kAdapterChoice);
  if (!input) fail_internal("the graph has no input that chooses among the sets of adapters");
  const Tensor choice{&graph, *input};
  const int64_t rows = choice.dim(0);
  std::vector<Tensor> parts;
  for (const Set& set : sets_) {
    const Tensor column = slice(At(choice, x.where), 1, set.index, 1);  // [rows, 1]
    parts.push_back(At(column, x.where) * fill(graph, {choice.type().dtype, {rows, set.rank()}}, set.scale));
  }
  const Tensor scales = joined(parts, 1, x.where);
  if (x.value.type().shape.rank() == 2) return scales;
  return reshape(At(scales, x.where), {rows, 1, scales.dim(1)});
}

Tensor LowRank::up(At x, int64_t out, const Set& set) {
  const Tensor& any = x.value;
  const int64_t columns = set.rank();
  const auto zeros = [&](int64_t rows, int64_t count) {
    return fill(Trace::current().graph(), {any.type().dtype, {rows, count}}, 0);
  };
  std::vector<Tensor> rows;
  int64_t row = 0, column = 0;
  for (const Adapter& adapter : set.adapters) {
    if (adapter.first_row > row) rows.push_back(zeros(adapter.first_row - row, columns));
    const int64_t width = adapter.b.spec().shape[1], right = columns - column - width;
    std::vector<Tensor> parts;
    if (column > 0) parts.push_back(zeros(adapter.rows, column));
    parts.push_back(adapter.b);
    if (right > 0) parts.push_back(zeros(adapter.rows, right));
    rows.push_back(joined(parts, 1, x.where));
    row = adapter.first_row + adapter.rows, column += width;
  }
  if (row < out) rows.push_back(zeros(out - row, columns));
  return joined(rows, 0, x.where);
}

void merge_low_rank(const Shape& shape, const float* a, const float* b, int64_t rank, double scale,
    const float* magnitude, float* weight) {
  const int64_t in = shape[1];
  std::vector<double> row(in);
  for (int64_t out = 0; out < shape[0]; ++out, weight += in) {
    std::ranges::fill(row, 0);
    for (int64_t r = 0; r < rank; ++r)
      for (int64_t i = 0; i < in; ++i) row[i] += static_cast<double>(b[out * rank + r]) * a[r * in + i];
    double squares = 0;
    for (int64_t i = 0; i < in; ++i) {
      row[i] = weight[i] + scale * row[i];
      squares += row[i] * row[i];
    }
    const double length = magnitude ? magnitude[out] / std::sqrt(squares) : 1;
    for (int64_t i = 0; i < in; ++i) weight[i] = static_cast<float>(length * row[i]);
  }
}
}  // namespace linnet
