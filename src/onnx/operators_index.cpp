// Selection by indices, as lookups in a table of rows (ops/embedding), whose gradient sums repeated ones.
#include <algorithm>
#include <map>
#include "engine/ops/embedding/embedding.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/reduce/reduce.h"
#include "onnx/compose.h"

namespace linnet {
namespace {
// Indices of an axis of `size` as i32, negative ones counted from its end.
Tensor row_ids(OnnxCall& call, size_t operand, int64_t size) {
  const TracedValue& indices = call.in(operand);
  if (indices.known) {
    std::vector<double> values = indices.known->values();
    for (double& value : values) {
      if (value < 0) value += static_cast<double>(size);
      if (value < 0 || value >= static_cast<double>(size))
        call.fail("index ", static_cast<int64_t>(value), " of an axis of ", size);
    }
    const std::vector<int32_t> ids(values.begin(), values.end());
    return literal(call.graph(), {DType::kI32, indices.shape()}, ids.data());
  }
  const auto from_end = [length = static_cast<double>(size)](Number x) { return select(0 > x, x + length, x); };
  return cast(elementwise(call, {call.tensor(operand)}, from_end), DType::kI32);
}

// Negative indices count from the end.
int64_t index_of(const OnnxCall& call, int64_t index, int64_t size) {
  if (index < 0) index += size;
  if (index < 0 || index >= size) call.fail("an index outside of the data");
  return index;
}

void gather(OnnxCall& call) {
  const Shape shape = call.shape(), indices = call.shape(1);
  const int axis = call.axis_of(0);
  if (shape.rank() + indices.rank() - 1 > kMaxRank) call.fail("the result has too many axes");
  if (call.is_known(1) && indices.rank() <= 1) {  // often a slice
    std::vector<int64_t> locations = call.ints(1);
    for (int64_t& location : locations) location = index_of(call, location, shape[axis]);
    const Tensor taken = compose::take(call.tensor(0), axis, locations);
    if (indices.rank() == 1) return call.set(taken);
    Shape without;
    for (int i = 0; i < shape.rank(); ++i)
      if (i != axis) without.push_back(shape[i]);
    return call.set(reshape(taken, without));
  }
  const Tensor table = compose::axis_to_front(call.tensor(0), axis);
  const Tensor ids = row_ids(call, 1, shape[axis]);
  const int64_t width = shape.elements() / std::max<int64_t>(shape[axis], 1);
  const Tensor rows = embedding(reshape(table, {shape[axis], width}), ids);  // [indices..., width]
  const Shape apart = with_axes(indices, Shape(table.shape().sizes().subspan(1)));
  // The indices' axes replace `axis`.
  std::vector<int> back = mapped(axis, [&](int i) { return indices.rank() + i; });
  for (int i = 0; i < indices.rank(); ++i) back.push_back(i);
  for (int i = axis; i < shape.rank() - 1; ++i) back.push_back(indices.rank() + i);
  call.set(compose::move_axes(reshape(rows, apart), back));
}

void gather_elements(OnnxCall& call) {
  const Shape shape = call.shape(), indices = call.shape(1), strides = dense_strides(shape);
  const int axis = call.axis_of(0);
  if (indices.rank() != shape.rank()) call.fail("indices with another number of axes");
  std::vector<double> begins;  // where each index' elements along `axis` begin
  compose::each_index(indices, [&](const std::vector<int64_t>& index) {
    begins.push_back(0);
    for (int a = 0; a < shape.rank(); ++a)
      if (a != axis) begins.back() += static_cast<double>(index_of(call, index[a], shape[a]) * strides[a]);
  });
  const Tensor along = cast(row_ids(call, 1, shape[axis]), DType::kF64);
  const auto stride = static_cast<double>(strides[axis]);
  const Tensor locations = elementwise(call, {along, call.values(indices, begins, DType::kF64)},
      [=](Number index, Number begin) { return index * stride + begin; });
  const Tensor table = reshape(call.tensor(0), {shape.elements(), 1});
  const Tensor rows = embedding(table, reshape(cast(locations, DType::kI32), {indices.elements()}));
  call.set(reshape(rows, indices));
}

void gather_nd(OnnxCall& call) {
  const Shape shape = call.shape(), indices = call.shape(1);
  const auto batch = static_cast<int>(call.integer("batch_dims", 0));
  const int depth = static_cast<int>(indices[-1]);
  if (batch < 0 || batch + depth > shape.rank() || batch >= indices.rank()) call.fail("indices do not fit the data");
  const std::vector<int64_t> known = call.is_known(1) ? call.ints(1) : std::vector<int64_t>();
  const int64_t rows = shape.elements(0, batch + depth), width = shape.elements(batch + depth, shape.rank());
  const int64_t tuples = indices.elements(0, indices.rank() - 1);
  std::vector<double> begins;  // of each tuple: its row, where indices are known, else that of its batch
  for (int64_t t = 0; t < tuples; ++t) {
    int64_t row = t / indices.elements(batch, indices.rank() - 1);
    for (int d = 0; d < depth && !known.empty(); ++d)
      row = row * shape[batch + d] + index_of(call, known[t * depth + d], shape[batch + d]);
    begins.push_back(static_cast<double>(row));
  }
  Tensor row = call.values({tuples}, begins, DType::kF64);
  for (int d = 0; d < depth && known.empty(); ++d) {
    const Tensor given = reshape(call.tensor(1, DType::kF64), {tuples, depth});
    const auto size = static_cast<double>(shape[batch + d]);
    row = elementwise(call, {row, reshape(slice(given, 1, d, 1), {tuples})},
        [=](Number row, Number index) { return row * size + select(0 > index, index + size, index); });
  }
  const Shape result = with_axes(leading_axes(indices), Shape(shape.sizes().subspan(batch + depth)));
  call.set(reshape(embedding(reshape(call.tensor(0), {rows, width}), cast(row, DType::kI32)), result));
}

// Writes rows of `updates` [n, width] over rows `locations` of data [rows, width]; repeats overwrite or reduce.
void scatter_rows(
    OnnxCall& call, Tensor data, Tensor updates, const std::vector<int64_t>& locations, const Shape& result) {
  const int64_t rows = data.dim(0);
  static const std::map<std::string, std::optional<Scalar>> reductions{{"none", std::nullopt}, {"add", Scalar::kAdd},
      {"mul", Scalar::kMul}, {"max", Scalar::kMax}, {"min", Scalar::kMin}};
  const auto how = reductions.find(call.text("reduction", "none"));
  if (how == reductions.end()) call.fail("reduction \"", call.text("reduction", ""), "\"");
  const Tensor both = locations.empty() ? data : compose::join({data, updates}, 0);
  // Each result row is a row of `both`; with a reduction, repeats are reduced in rounds.
  std::vector<std::vector<int64_t>> rounds{numbers_below<int64_t>(rows)};
  std::vector<size_t> used(rows);
  for (size_t i = 0; i < locations.size(); ++i) {
    const auto location = static_cast<size_t>(locations[i]);
    const auto from = rows + static_cast<int64_t>(i);
    if (!how->second) {
      rounds[0][location] = from;
      continue;
    }
    const size_t round = ++used[location];
    if (round >= rounds.size()) rounds.emplace_back(rows, -1);
    rounds[round][location] = from;
  }
  Tensor y = compose::take(both, 0, rounds[0]);
  for (size_t round = 1; round < rounds.size(); ++round) {
    std::vector<int64_t> from = rounds[round];
    std::vector<double> has;
    for (size_t row = 0; row < from.size(); ++row) {
      has.push_back(from[row] >= 0 ? 1 : 0);
      if (from[row] < 0) from[row] = 0;
    }
    const Tensor mask = call.values({rows, 1}, has, y.type().dtype);
    y = elementwise(call, {y, compose::take(both, 0, from), mask}, [&](Number y, Number update, Number has) {
      return select(has, formula::apply(*how->second, {y, update}), y);
    });
  }
  call.set(reshape(y, result));
}

void scatter_nd(OnnxCall& call) {
  const Shape shape = call.shape(), indices = call.shape(1);
  const int depth = static_cast<int>(indices[-1]);
  if (depth > shape.rank()) call.fail("indices do not fit the data");
  const int64_t rows = shape.elements(0, depth), width = shape.elements(depth, shape.rank());
  const std::vector<int64_t> given = call.ints(1);
  const std::vector<int64_t> locations = mapped(indices.elements() / std::max(depth, 1), [&](int64_t t) {
    int64_t row = 0;
    for (int d = 0; d < depth; ++d) row = row * shape[d] + index_of(call, given[t * depth + d], shape[d]);
    return row;
  });
  const auto count = static_cast<int64_t>(locations.size());
  if (call.shape(2).elements() != count * width) call.fail("updates do not fit the indices");
  scatter_rows(call, reshape(call.tensor(0), {rows, width}), reshape(call.tensor(2), {count, width}), locations, shape);
}

void scatter_elements(OnnxCall& call) {
  const Shape shape = call.shape(), indices = call.shape(1);
  const int axis = call.axis_of(0);
  if (indices.rank() != shape.rank() || call.shape(2) != indices) call.fail("indices and updates do not fit the data");
  const std::vector<int64_t> given = call.ints(1);
  const Shape strides = dense_strides(shape);
  std::vector<int64_t> locations;
  compose::each_index(indices, [&](const std::vector<int64_t>& index) {
    const int64_t along = index_of(call, given[locations.size()], shape[axis]);
    int64_t location = 0;
    for (int a = 0; a < shape.rank(); ++a)
      location += (a == axis ? along : index_of(call, index[a], shape[a])) * strides[a];
    locations.push_back(location);
  });
  scatter_rows(call, reshape(call.tensor(0), {shape.elements(), 1}), reshape(call.tensor(2), {indices.elements(), 1}),
      locations, shape);
}

void one_hot_operator(OnnxCall& call) {
  const double depth_given = call.number(1, 0);
  const std::vector<double> values = call.numbers(2);
  constexpr double kMostDepth = 1 << 24;
  if (!(depth_given >= 1 && depth_given <= kMostDepth)) call.fail("a depth that is not between 1 and 2^24");
  if (values.size() != 2) call.fail("values are two: for off and for on");
  const auto depth = static_cast<int64_t>(depth_given);
  const Shape indices = call.shape();
  const int axis = call.axis(call.integer("axis", -1), indices.rank() + 1);
  if (indices.rank() + 1 > kMaxRank) call.fail("the result has too many axes");
  const Tensor whole = call.tensor(0, DType::kF64);
  const auto size = static_cast<double>(depth);
  const Tensor classes = call.locations(depth, DType::kF64);
  const Tensor y = elementwise(call, {reshape(whole, with_axes(indices, {1})), classes}, [&](Number index, Number c) {
    return select(equal(select(0 > index, index + size, index), c), values[1], values[0]);
  });
  call.set(0, compose::axis_from_end(y, axis), call.element(2));
}

template <int sign> void arg_extreme(OnnxCall& call) {
  const Shape shape = call.shape();
  const int axis = call.axis_of(0);
  const bool last = call.flag("select_last_index"), keep = call.flag("keepdims", true);
  Tensor x = compose::axis_to_end(call.tensor(0), axis);
  const int64_t size = shape[axis];
  if (sign < 0) x = x * -1.0;
  if (last) x = compose::reversed(x, shape.rank() - 1);
  Tensor y = cast(argmax_last(x), DType::kF64);
  if (last) y = elementwise(call, {y}, [=](Number y) { return static_cast<double>(size - 1) - y; });
  if (keep) y = reshape(y, with_size(shape, axis, 1));
  call.set(0, y, OnnxElement::kInt64);
}

void top_k(OnnxCall& call) {
  const int axis = call.axis_of(-1);
  const int64_t size = call.shape()[axis];
  const auto k = static_cast<int64_t>(call.opset() < 10 ? call.integer("k", 0) : call.number(1, 0));
  const bool largest = call.flag("largest", true);
  call.integer("sorted", 1);  // results are always sorted
  if (k < 1 || k > size) call.fail("k = ", k, "; 1 to ", size, " is possible");
  const Tensor x = compose::axis_to_end(call.tensor(0), axis);
  const auto first = [&](bool flat) { return argsort_last(x, largest, flat, k); };
  const Tensor places = first(true), values = embedding(reshape(x, {x.shape().elements(), 1}), places);
  call.set(compose::axis_from_end(reshape(values, places.shape()), axis));
  call.set(1, compose::axis_from_end(cast(first(false), DType::kF64), axis), OnnxElement::kInt64);
}
}  // namespace

OnnxOperatorRows index_operators() {
  return {
      {"ArgMax", arg_extreme<1>},
      {"ArgMin", arg_extreme<-1>},
      {"Gather", gather},
      {"GatherElements", gather_elements},
      {"GatherND", gather_nd},
      {"OneHot", one_hot_operator, "depth and values must be known", {1, 2}},
      {"Scatter", scatter_elements, "indices must be known"},
      {"ScatterElements", scatter_elements, "indices must be known"},
      {"ScatterND", scatter_nd, "indices must be known"},
      {"TopK", top_k, "k must be known"},
  };
}
}  // namespace linnet
