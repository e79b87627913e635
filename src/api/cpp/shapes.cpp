#include <algorithm>
#include <numeric>
#include "api/cpp/helpers.h"
#include "engine/ir/op.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/movement/movement.h"
#include "linnet/math.h"
#include "models/nn/trace.h"

namespace linnet {
Tensor arange(int64_t count, DType dtype, SourceLine where) {
  if (count < 1 || count > INT32_MAX || (dtype != DType::kF32 && dtype != DType::kI32))
    fail_user(
        where, ": arange: ", count, " numbers of type ", dtype_name(dtype), "; there are at least one, f32 or i32");
  Trace& trace = Trace::current();
  const auto numbers = [&]<class T>(DType type) {
    std::vector<T> values(count);
    std::iota(values.begin(), values.end(), T{0});
    return literal(trace.graph(), {type, {count}}, values.data(), where);
  };
  if (dtype == DType::kI32) return numbers.template operator()<int32_t>(DType::kI32);
  return cast(At(numbers.template operator()<float>(DType::kF32), where), trace.options().dtype);
}

namespace {
// In x's graph and element type, so that tests of ops can use it too.
Tensor positions(At x, int64_t count, double first) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), static_cast<float>(first));
  const DType dtype = is_float(x.value.type().dtype) ? x.value.type().dtype : DType::kF32;
  return cast(At(literal(*graph_of(x), {DType::kF32, {count}}, values.data(), x.where), x.where), dtype);
}

// [to, from]: the weight of each of `from` pixels in each of `to`.
std::vector<float> resize_shares(int64_t from, int64_t to, Interpolation how) {
  std::vector<float> shares(from * to);
  for (int64_t i = 0; i < to; ++i) {
    float* row = shares.data() + i * from;
    if (how == Interpolation::kNearest) {
      row[i * from / to] = 1;
      continue;
    }
    const double center = (static_cast<double>(i) + 0.5) * static_cast<double>(from) / static_cast<double>(to) - 0.5;
    const double at = std::clamp(center, 0.0, static_cast<double>(from - 1));
    const auto low = static_cast<int64_t>(at), high = std::min(low + 1, from - 1);
    row[low] += static_cast<float>(1 - (at - static_cast<double>(low)));
    row[high] += static_cast<float>(at - static_cast<double>(low));
  }
  return shares;
}

Tensor resize_axis(At x, int64_t to, Interpolation how) {
  const int64_t from = x.value.dim(1);
  if (from == to) return x.value;
  const std::vector<float> shares = resize_shares(from, to, how);
  const auto at = [&](Tensor value) { return At(value, x.where); };
  const Tensor given = literal(*graph_of(x), {DType::kF32, {to, from}}, shares.data(), x.where);
  const Tensor last = permute(x, {0, 2, 1});
  const DType dtype = x.value.type().dtype;
  return permute(at(matmul(at(last), cast(at(given), dtype), false, true)), {0, 2, 1});
}
}  // namespace

Tensor tril(At x, int64_t diagonal) {
  const int64_t rows = checked_size(x, -2, "tril"), columns = checked_size(x, -1, "tril");
  const At row(reshape(At(positions(x, rows, static_cast<double>(diagonal)), x.where), {rows, 1}), x.where);
  const Tensor seen = greater_equal(row, positions(x, columns, 0));
  return where(At(seen, x.where), x.value, zeros(x.value, {}));
}

Tensor sequence_mask(At lengths, int64_t size) {
  Shape shape = lengths.value.shape();
  if (size < 1 || lengths.value.type().dtype != DType::kI32)
    fail_shape(
        lengths, "sequence_mask: lengths ", lengths.value.type(), " and size ", size, ", expected i32 and at least 1");
  shape.push_back(1);
  const Tensor counts = reshape(At(cast(lengths, DType::kF32), lengths.where), shape);
  return greater(At(counts, lengths.where), positions(lengths, size, 0));
}

Tensor pad(At x, int axis, int64_t before, int64_t after, double value) {
  checked_size(x, axis, "pad");
  if (before < 0 || after < 0)
    fail_shape(x, "pad: by ", before, " and ", after, " elements, which must not be negative");
  std::vector<Tensor> parts;
  const auto fill_with = [&](int64_t count) {
    TensorType type = x.value.type();
    type.shape.set(axis, count);
    if (count > 0) parts.push_back(fill(*graph_of(x), type, value, x.where));
  };
  fill_with(before);
  parts.push_back(x.value);
  fill_with(after);
  return parts.size() == 1 ? x.value : concat(parts, axis, x.where);
}

Tensor upsample(At x, int64_t factor) {
  const auto at = [&](Tensor value) { return At(value, x.where); };
  const Shape s = x.value.shape();
  if (s.rank() != 4 || factor < 1)
    fail_shape(x, "upsample: ", s, " by ", factor, ", expected [N, H, W, C] and at least 1");
  const Tensor apart = reshape(x, {s[0], s[1], 1, s[2], 1, s[3]});
  const Tensor repeated = broadcast_to(at(apart), {s[0], s[1], factor, s[2], factor, s[3]});
  return reshape(at(repeated), {s[0], s[1] * factor, s[2] * factor, s[3]});
}

Tensor resize(At x, int64_t height, int64_t width, Interpolation how) {
  const Shape s = x.value.shape();
  if (s.rank() != 4 || height < 1 || width < 1 || !is_float(x.value.type().dtype))
    fail_shape(x, "resize: ", x.value.type(), " to ", height, " x ", width,
        ", expected floats [N, H, W, C] and at least 1 x 1");
  const auto at = [&](Tensor value) { return At(value, x.where); };
  const Tensor rows = resize_axis(at(reshape(x, {s[0], s[1], s[2] * s[3]})), height, how);
  const Tensor columns = resize_axis(at(reshape(at(rows), {s[0] * height, s[2], s[3]})), width, how);
  return reshape(at(columns), {s[0], height, width, s[3]});
}
}  // namespace linnet
