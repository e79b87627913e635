// Operators that choose elements by indices. All of them are lookups in a table of rows (ops/embedding), whose gradient
// adds up what was chosen several times.
#include <algorithm>
#include <limits>
#include <numeric>

#include "onnx/compose.h"
#include "onnx/operators.h"
#include "engine/ops/argmax/argmax.h"
#include "engine/ops/cross_entropy/cross_entropy.h"
#include "engine/ops/embedding/embedding.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"

namespace linnet {
namespace {

using compose::E;
using compose::elementwise;
using compose::Ref;

constexpr int64_t kMostTopK = 64;

// Indices into an axis of `size`, negative ones counted from its end, as i32. Inputs of the graph (token ids) are taken
// as they are: a wrong one is an error when the network runs.
Tensor row_ids(OnnxCall& call, size_t operand, int64_t size) {
  const TracedValue& indices = call.in(operand);
  if (indices.known) {
    std::vector<double> values = indices.known->values();
    for (double& value : values) {
      if (value < 0) value += static_cast<double>(size);
      if (value < 0 || value >= static_cast<double>(size))
        call.fail("index " + std::to_string(static_cast<int64_t>(value)) + " of an axis of " + std::to_string(size));
    }
    return cast(call.constant(known_numbers(OnnxElement::kInt64, indices.shape(), values)), DType::kI32);
  }
  if (indices.tensor.type().dtype == DType::kI32) return indices.tensor;
  const Tensor from_start = elementwise(call, {call.tensor(operand)}, [=](E& e, const std::vector<Ref>& x) {
    const Ref shifted = e.apply(Scalar::kAdd, x[0], e.constant(static_cast<double>(size)));
    return e.apply(Scalar::kSelect, e.apply(Scalar::kGreater, e.constant(0), x[0]), shifted, x[0]);
  });
  return cast(from_start, DType::kI32);
}

void gather(OnnxCall& call) {
  const Shape shape = call.shape(), indices = call.shape(1);
  const int axis = call.axis(call.integer("axis", 0), shape.rank());
  if (shape.rank() + indices.rank() - 1 > kMaxRank) call.fail("the result has too many axes");
  if (call.is_known(1) && indices.rank() <= 1) {  // often a slice
    std::vector<int64_t> locations = call.ints(1);
    for (int64_t& location : locations) {
      if (location < 0) location += shape[axis];
      if (location < 0 || location >= shape[axis]) call.fail("an index outside of axis " + std::to_string(axis));
    }
    const Tensor taken = compose::take(call.tensor(0), axis, locations);
    if (indices.rank() == 1) return call.set(taken);
    Shape without;
    for (int i = 0; i < shape.rank(); ++i)
      if (i != axis) without.push_back(shape[i]);
    return call.set(reshape(taken, without));
  }
  std::vector<int> order{axis};
  for (int i = 0; i < shape.rank(); ++i)
    if (i != axis) order.push_back(i);
  const Tensor table = compose::move_axes(call.tensor(0), order);
  const Tensor ids = row_ids(call, 1, shape[axis]);
  const int64_t width = shape.elements() / std::max<int64_t>(shape[axis], 1);
  const Tensor rows = embedding(reshape(table, {shape[axis], width}), ids);  // [indices..., width]
  Shape apart = indices;
  for (int i = 1; i < table.shape().rank(); ++i) apart.push_back(table.dim(i));
  // The axes of the indices take the place of `axis`.
  std::vector<int> back;
  for (int i = 0; i < axis; ++i) back.push_back(indices.rank() + i);
  for (int i = 0; i < indices.rank(); ++i) back.push_back(i);
  for (int i = axis; i < shape.rank() - 1; ++i) back.push_back(indices.rank() + i);
  call.set(compose::move_axes(reshape(rows, apart), back));
}

// One element for each index: the elements of x in a row are a table of width 1.
Tensor elements_at(Tensor x, Tensor locations, const Shape& shape) {
  const int64_t count = x.shape().elements();
  return reshape(embedding(reshape(x, {count, 1}), reshape(locations, {locations.shape().elements()})), shape);
}

// f64: where element (i, j, ...) of `shape` begins in a tensor with these strides, the index of `axis` left out.
Tensor places_without(OnnxCall& call, const Shape& shape, const Shape& strides, int axis) {
  std::vector<double> locations;
  std::vector<int64_t> index(static_cast<size_t>(shape.rank()));
  for (int64_t i = 0; i < shape.elements(); ++i) {
    double location = 0;
    for (int a = 0; a < shape.rank(); ++a)
      if (a != axis) location += static_cast<double>(index[static_cast<size_t>(a)] * strides[a]);
    locations.push_back(location);
    for (int a = shape.rank(); a-- > 0;) {
      if (++index[static_cast<size_t>(a)] < shape[a]) break;
      index[static_cast<size_t>(a)] = 0;
    }
  }
  return call.constant(known_numbers(OnnxElement::kInt64, shape, locations));
}

// i32: the locations of the elements that indices along one axis choose.
Tensor element_places(OnnxCall& call, size_t operand, const Shape& of, int axis) {
  const Shape shape = call.shape(operand);
  const Shape strides = dense_strides(of);
  const Tensor along = cast(row_ids(call, operand, of[axis]), DType::kF64);
  const auto stride = static_cast<double>(strides[axis]);
  const Tensor locations =
      elementwise(call, {along, places_without(call, shape, strides, axis)}, [=](E& e, const std::vector<Ref>& x) {
        return e.apply(Scalar::kAdd, e.apply(Scalar::kMul, x[0], e.constant(stride)), x[1]);
      });
  return cast(locations, DType::kI32);
}

void gather_elements(OnnxCall& call) {
  const Shape shape = call.shape();
  const int axis = call.axis(call.integer("axis", 0), shape.rank());
  if (call.shape(1).rank() != shape.rank()) call.fail("indices with another number of axes");
  call.set(elements_at(call.tensor(0), element_places(call, 1, shape, axis), call.shape(1)));
}

void gather_nd(OnnxCall& call) {
  const Shape shape = call.shape(), indices = call.shape(1);
  const auto batch = static_cast<int>(call.integer("batch_dims", 0));
  const int depth = static_cast<int>(indices[-1]);
  if (batch < 0 || batch + depth > shape.rank() || batch >= indices.rank()) call.fail("indices do not fit the data");
  const std::vector<int64_t> given = call.ints(1);
  const int64_t rows = shape.elements(0, batch + depth), width = shape.elements(batch + depth, shape.rank());
  const int64_t batches = shape.elements(0, batch);
  const auto tuples = static_cast<int64_t>(given.size()) / std::max(depth, 1);
  std::vector<double> locations;
  for (int64_t t = 0; t < tuples; ++t) {
    int64_t location = t / std::max<int64_t>(tuples / std::max<int64_t>(batches, 1), 1);
    for (int d = 0; d < depth; ++d) {
      int64_t index = given[static_cast<size_t>(t * depth + d)];
      const int64_t size = shape[batch + d];
      if (index < 0) index += size;
      if (index < 0 || index >= size) call.fail("an index outside of the data");
      location = location * size + index;
    }
    locations.push_back(static_cast<double>(location));
  }
  const Tensor ids = cast(call.constant(known_numbers(OnnxElement::kInt64, {tuples}, locations)), DType::kI32);
  Shape result;
  for (int i = 0; i + 1 < indices.rank(); ++i) result.push_back(indices[i]);
  for (int i = batch + depth; i < shape.rank(); ++i) result.push_back(shape[i]);
  call.set(reshape(embedding(reshape(call.tensor(0), {rows, width}), ids), result));
}

// Writes rows of `updates` [n, width] over rows `locations` of data [rows, width]; later ones count, or are joined.
void scatter_rows(OnnxCall& call, Tensor data, Tensor updates, const std::vector<int64_t>& locations,
                  const Shape& result) {
  const int64_t rows = data.dim(0);
  const std::string how = call.text("reduction", "none");
  if (how != "none" && how != "add" && how != "mul" && how != "max" && how != "min")
    call.fail("reduction \"" + how + "\"");
  const Tensor both = locations.empty() ? data : compose::join({data, updates}, 0);
  // Each row of the result is a row of `both`; with a reduction, repeats are joined round by round.
  std::vector<std::vector<int64_t>> rounds(1);
  for (int64_t row = 0; row < rows; ++row) rounds[0].push_back(row);
  std::vector<size_t> used(static_cast<size_t>(rows));
  for (size_t i = 0; i < locations.size(); ++i) {
    const auto location = static_cast<size_t>(locations[i]);
    const auto from = rows + static_cast<int64_t>(i);
    if (how == "none") {
      rounds[0][location] = from;
      continue;
    }
    const size_t round = ++used[location];
    if (round >= rounds.size()) rounds.emplace_back(static_cast<size_t>(rows), -1);
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
    const bool is_double = y.type().dtype == DType::kF64;
    const Tensor mask =
        call.constant(known_numbers(is_double ? OnnxElement::kDouble : OnnxElement::kFloat, {rows, 1}, has));
    const Scalar function = how == "add"   ? Scalar::kAdd
                            : how == "mul" ? Scalar::kMul
                            : how == "max" ? Scalar::kMax
                                           : Scalar::kMin;
    y = elementwise(call, {y, compose::take(both, 0, from), mask}, [=](E& e, const std::vector<Ref>& x) {
      return e.apply(Scalar::kSelect, x[2], e.apply(function, x[0], x[1]), x[0]);
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
  std::vector<int64_t> locations;
  for (int64_t t = 0; t < indices.elements() / std::max(depth, 1); ++t) {
    int64_t location = 0;
    for (int d = 0; d < depth; ++d) {
      int64_t index = given[static_cast<size_t>(t * depth + d)];
      if (index < 0) index += shape[d];
      if (index < 0 || index >= shape[d]) call.fail("an index outside of the data");
      location = location * shape[d] + index;
    }
    locations.push_back(location);
  }
  const auto count = static_cast<int64_t>(locations.size());
  if (call.shape(2).elements() != count * width) call.fail("updates do not fit the indices");
  scatter_rows(call, reshape(call.tensor(0), {rows, width}), reshape(call.tensor(2), {count, width}), locations, shape);
}

void scatter_elements(OnnxCall& call) {
  const Shape shape = call.shape(), indices = call.shape(1);
  const int axis = call.axis(call.integer("axis", 0), shape.rank());
  if (indices.rank() != shape.rank() || call.shape(2) != indices) call.fail("indices and updates do not fit the data");
  const std::vector<int64_t> given = call.ints(1);
  const Shape strides = dense_strides(shape);
  std::vector<int64_t> index(static_cast<size_t>(shape.rank())), locations;
  for (size_t i = 0; i < given.size(); ++i) {
    int64_t along = given[i] < 0 ? given[i] + shape[axis] : given[i];
    if (along < 0 || along >= shape[axis]) call.fail("an index outside of the data");
    int64_t location = 0;
    for (int a = 0; a < shape.rank(); ++a) location += (a == axis ? along : index[static_cast<size_t>(a)]) * strides[a];
    locations.push_back(location);
    for (int a = shape.rank(); a-- > 0;) {
      if (++index[static_cast<size_t>(a)] < indices[a]) break;
      index[static_cast<size_t>(a)] = 0;
    }
  }
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
  std::vector<double> classes;
  for (int64_t i = 0; i < depth; ++i) classes.push_back(static_cast<double>(i));
  Shape column = indices;
  column.push_back(1);
  const Tensor row = call.constant(known_numbers(OnnxElement::kInt64, {depth}, classes));
  const auto size = static_cast<double>(depth);
  Tensor y = elementwise(call, {reshape(whole, column), row}, [=](E& e, const std::vector<Ref>& x) {
    const Ref shifted = e.apply(Scalar::kAdd, x[0], e.constant(size));
    const Ref index = e.apply(Scalar::kSelect, e.apply(Scalar::kGreater, e.constant(0), x[0]), shifted, x[0]);
    return e.apply(Scalar::kSelect, e.apply(Scalar::kEqual, index, x[1]), e.constant(values[1]), e.constant(values[0]));
  });
  call.set(0, compose::axis_from_end(y, axis), call.element(2));
}

template <int sign>
void arg_extreme(OnnxCall& call) {
  const Shape shape = call.shape();
  const int axis = call.axis(call.integer("axis", 0), shape.rank());
  const bool last = call.integer("select_last_index", 0) != 0, keep = call.integer("keepdims", 1) != 0;
  Tensor x = compose::axis_to_end(call.tensor(0), axis);
  const int64_t size = shape[axis];
  if (sign < 0) x = x * -1.0;
  if (last) {
    std::vector<int64_t> backward(static_cast<size_t>(size));
    std::iota(backward.rbegin(), backward.rend(), 0);
    x = compose::take(x, shape.rank() - 1, backward);
  }
  Tensor y = cast(argmax_last(x), DType::kF64);
  if (last)
    y = elementwise(call, {y}, [=](E& e, const std::vector<Ref>& v) {
      return e.apply(Scalar::kSub, e.constant(static_cast<double>(size - 1)), v[0]);
    });
  if (keep) {
    Shape kept = shape;
    kept.set(axis, 1);
    y = reshape(y, kept);
  }
  call.set(0, y, OnnxElement::kInt64);
}

// The k largest or smallest along an axis, one after the other: what was chosen is left out of the next choice.
void top_k(OnnxCall& call) {
  const Shape shape = call.shape();
  const int axis = call.axis(call.integer("axis", -1), shape.rank());
  const int64_t size = shape[axis];
  const auto k = static_cast<int64_t>(call.opset() < 10 ? call.integer("k", 0) : call.number(1, 0));
  const bool largest = call.integer("largest", 1) != 0;
  call.integer("sorted", 1);  // the results are sorted either way
  if (k < 1 || k > size || k > kMostTopK)
    call.fail("k = " + std::to_string(k) + "; 1 to " + std::to_string(std::min(size, kMostTopK)) + " is possible");
  const Tensor x = compose::axis_to_end(call.tensor(0), axis);
  std::vector<double> numbers(static_cast<size_t>(size));
  std::iota(numbers.begin(), numbers.end(), 0.0);
  const bool is_double = x.type().dtype == DType::kF64;
  const Tensor places =
      call.constant(known_numbers(is_double ? OnnxElement::kDouble : OnnxElement::kFloat, {size}, numbers));
  const double lowest = is_double ? -std::numeric_limits<double>::max() : -std::numeric_limits<float>::max();
  Tensor left = elementwise(call, {largest ? x : x * -1.0}, [=](E& e, const std::vector<Ref>& v) {
    return e.apply(Scalar::kMax, v[0], e.constant(lowest));  // infinity stands for what was chosen
  });
  std::vector<Tensor> values, indices;
  Shape one = x.shape();
  one.set(-1, 1);
  for (int64_t i = 0; i < k; ++i) {
    const Tensor index = cast(reshape(argmax_last(left), one), x.type().dtype);
    indices.push_back(index);
    const Tensor chosen = elementwise(call, {x, places, index}, [](E& e, const std::vector<Ref>& v) {
      return e.apply(Scalar::kSelect, e.apply(Scalar::kEqual, v[1], v[2]), v[0], e.constant(0));
    });
    values.push_back(compose::sum_last(chosen));
    left = elementwise(call, {left, places, index}, [](E& e, const std::vector<Ref>& v) {
      return e.apply(Scalar::kSelect, e.apply(Scalar::kEqual, v[1], v[2]),
                     e.constant(-std::numeric_limits<double>::infinity()), v[0]);
    });
  }
  const int last = x.shape().rank() - 1;
  call.set(compose::axis_from_end(compose::join(values, last), axis));
  call.set(1, compose::axis_from_end(compose::join(indices, last), axis), OnnxElement::kInt64);
}

}  // namespace

void add_index_operators(std::vector<OnnxOperatorRow>& rows) {
  const OnnxOperatorRow list[] = {
      {"ArgMax", arg_extreme<1>},
      {"ArgMin", arg_extreme<-1>},
      {"Gather", gather},
      {"GatherElements", gather_elements},
      {"GatherND", gather_nd, "indices must be known"},
      {"OneHot", one_hot_operator, "depth and values must be known"},
      {"Scatter", scatter_elements, "indices must be known"},
      {"ScatterElements", scatter_elements, "indices must be known"},
      {"ScatterND", scatter_nd, "indices must be known"},
      {"TopK", top_k, "k must be known, at most 64"},
  };
  rows.insert(rows.end(), std::begin(list), std::end(list));
}

}  // namespace linnet
