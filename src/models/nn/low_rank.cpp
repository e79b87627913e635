#include "models/nn/low_rank.h"
#include <cmath>
#include <span>
#include <vector>
#include "base/fail.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"
#include "models/nn/trace.h"

namespace linnet {
// U(-1 / sqrt(in), 1 / sqrt(in)) for A, as PEFT draws it.
LowRank::Adapter::Adapter(
    Module& layer, const std::string& part, int64_t first_row, int64_t rows, int64_t in, int64_t rank)
    : first_row(first_row),
      rows(rows), a{&layer, "lora_A." + part, {rank, in}, uniform_init(1 / std::sqrt(static_cast<double>(in)))},
      b{&layer, "lora_B." + part, {rows, rank}, constant_init(0)} {}

int64_t LowRank::Set::rank() const {
  int64_t sum = 0;
  for (const Adapter& adapter : adapters) sum += adapter.b.spec().shape[1];
  return sum;
}

void LowRank::add(Module& layer, const std::string& part, int64_t first_row, int64_t rows, int64_t in, int64_t rank,
    double scale, int64_t set) {
  if (sets_.empty() || sets_.back().index != set) sets_.push_back({set, scale});
  std::deque<Adapter>& adapters = sets_.back().adapters;
  if (!adapters.empty() && first_row < adapters.back().first_row + adapters.back().rows)
    fail_internal("adapters of ", layer.path(), " are not in the order of their rows");
  adapters.emplace_back(layer, part, first_row, rows, in, rank);
}

namespace {
Tensor joined(At where, std::span<const Tensor> parts, int axis) {
  return parts.size() == 1 ? parts[0] : concat(At(parts[0], where.where), parts.subspan(1), axis);
}

Tensor choice_input(Graph& graph) {
  for (const GraphInput& input : graph.inputs())
    if (input.name == kAdapterChoice) return {&graph, input.value};
  fail_internal("the graph has no input that chooses among the sets of adapters");
}
}  // namespace

Tensor LowRank::operator()(At x, int64_t out) const {
  std::vector<Tensor> downs, ups;
  for (const Set& set : sets_) {
    for (const Adapter& adapter : set.adapters) downs.push_back(adapter.a);
    ups.push_back(up(x, out, set));
  }
  const Tensor narrow = matmul(x, joined(x, downs, 0), false, true);
  const bool chosen = sets_.front().index != kAlways;
  const Tensor scaled = chosen ? At(narrow, x.where) * chosen_scales(x) : At(narrow, x.where) * sets_.front().scale;
  return matmul(At(scaled, x.where), joined(x, ups, 1), false, true);
}

Tensor LowRank::chosen_scales(At x) const {
  Graph& graph = Trace::current().graph();
  const Tensor choice = choice_input(graph);
  const int64_t rows = choice.dim(0);
  std::vector<Tensor> parts;
  for (const Set& set : sets_) {
    const Tensor column = slice(At(choice, x.where), 1, set.index, 1);  // [rows, 1]
    parts.push_back(At(column, x.where) * fill(graph, {choice.type().dtype, {rows, set.rank()}}, set.scale));
  }
  const Tensor scales = joined(x, parts, 1);
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
    rows.push_back(joined(x, parts, 1));
    row = adapter.first_row + adapter.rows, column += width;
  }
  if (row < out) rows.push_back(zeros(out - row, columns));
  return joined(x, rows, 0);
}
}  // namespace linnet
