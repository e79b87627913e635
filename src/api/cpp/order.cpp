// Sorting, and sums of rows by index.
#include "api/cpp/helpers.h"
#include "base/error.h"
#include "engine/ir/op.h"
#include "engine/ops/embedding/embedding.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/reduce/reduce.h"
#include "linnet/math.h"

namespace linnet {
namespace {
void check_floats(At x, const char* function) {
  checked_size(x, -1, function);
  if (!is_float(x.value.type().dtype)) fail_shape(x, function, ": got ", x.value.type(), ", expected floats");
}

// The elements of x at these flat indices.
Tensor pick(At x, Tensor places) {
  const Tensor all = reshape(x, {x.value.shape().elements()});
  return gather(At(all, x.where), places);
}
}  // namespace

Tensor argsort(At x, bool descending) {
  check_floats(x, "argsort");
  return argsort_last(x, descending);
}

Tensor sort(At x, bool descending) {
  check_floats(x, "sort");
  return pick(x, argsort_last(x, descending, true));
}

std::pair<Tensor, Tensor> top_k(At x, int64_t count) {
  check_floats(x, "top_k");
  if (count < 1 || count > x.value.dim(-1)) fail_shape(x, "top_k: ", count, " of the last axis of ", x.value.shape());
  const auto first = [&](Tensor order) { return slice(At(order, x.where), -1, 0, count); };
  return {pick(x, first(argsort_last(x, true, true))), first(argsort_last(x, true))};
}

Tensor scatter_add(At values, Tensor ids, int64_t rows) {
  Shape expected = ids.shape();
  expected.push_back(checked_size(values, -1, "scatter_add"));
  if (rows < 1 || ids.type().dtype != DType::kI32 || values.value.shape() != expected)
    fail_shape(values, "scatter_add: values ", values.value.type(), ", ids ", ids.type(), " and ", rows,
        " rows, expected [..., D], i32 [...] and at least 1");
  return graph_of(values)->add_one(
      kEmbeddingGrad, std::array{values.value, ids}, EmbeddingGradAttrs{.vocab_size = rows}, values.where);
}
}  // namespace linnet
