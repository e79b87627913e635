#include "nn/low_rank.h"

#include <cmath>

#include "base/error.h"
#include "nn/trace.h"
#include "ops/movement/movement.h"
#include "ops/pointwise/pointwise.h"

namespace linnet {

// U(-1 / sqrt(in), 1 / sqrt(in)) for A, as PEFT draws it.
LowRank::Adapter::Adapter(Module& layer, const std::string& part, int64_t first_row, int64_t rows, int64_t in,
                          int64_t rank)
    : first_row(first_row),
      rows(rows),
      a{&layer, "lora_A." + part, {rank, in}, uniform_init(1 / std::sqrt(static_cast<double>(in)))},
      b{&layer, "lora_B." + part, {rows, rank}, constant_init(0)} {}

void LowRank::add(Module& layer, const std::string& part, int64_t first_row, int64_t rows, int64_t in, int64_t rank,
                  double scale) {
  if (!adapters_.empty() && first_row < adapters_.back().first_row + adapters_.back().rows)
    fail_internal("adapters of " + layer.path() + " are not in the order of their rows");
  adapters_.emplace_back(layer, part, first_row, rows, in, rank);
  scale_ = scale;
}

Tensor LowRank::operator()(At x, int64_t out) const {
  Tensor down = adapters_[0].a;
  if (adapters_.size() > 1) {
    std::vector<Tensor> more;
    for (size_t i = 1; i < adapters_.size(); ++i) more.push_back(adapters_[i].a);
    down = concat(At(down, x.where), more, 0);
  }
  const Tensor narrow = matmul(x, down, false, true);
  return matmul(At(At(narrow, x.where) * scale_, x.where), up(x, out), false, true);
}

Tensor LowRank::up(At x, int64_t out) const {
  const auto joined = [&](std::span<const Tensor> parts, int axis) {
    return parts.size() == 1 ? parts[0] : concat(At(parts[0], x.where), parts.subspan(1), axis);
  };
  const Tensor& any = x.value;
  int64_t columns = 0;
  for (const Adapter& adapter : adapters_) columns += adapter.b.spec().shape[1];
  const auto zeros = [&](int64_t rows, int64_t count) {
    return fill(Trace::current().graph(), {any.type().dtype, {rows, count}}, 0);
  };
  std::vector<Tensor> rows;
  int64_t row = 0, column = 0;
  for (const Adapter& adapter : adapters_) {
    if (adapter.first_row > row) rows.push_back(zeros(adapter.first_row - row, columns));
    const int64_t width = adapter.b.spec().shape[1], right = columns - column - width;
    std::vector<Tensor> parts;
    if (column > 0) parts.push_back(zeros(adapter.rows, column));
    parts.push_back(adapter.b);
    if (right > 0) parts.push_back(zeros(adapter.rows, right));
    rows.push_back(joined(parts, 1));
    row = adapter.first_row + adapter.rows, column += width;
  }
  if (row < out) rows.push_back(zeros(out - row, columns));
  return joined(rows, 0);
}

}  // namespace linnet
