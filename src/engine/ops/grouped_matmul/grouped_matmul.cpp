#include <algorithm>
#include <cstring>
#include <numeric>
#include "engine/kernels/gemm/gemm.h"
#include "engine/kernels/parallel.h"
#include "engine/ops/embedding/embedding.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/reduce/reduce.h"

namespace linnet {
namespace {
void expect_rows(const TensorType& x, const TensorType& choice) {
  expect(is_float(x.dtype) && x.shape.rank() == 2 && choice.dtype == DType::kI32 && choice.shape.rank() == 1 &&
             x.shape[0] > 0 && choice.shape[0] % x.shape[0] == 0,
      "got rows ", x, " and choices ", choice);
}

std::vector<TensorType> infer_grouped_matmul(const InferArgs& args) {
  const auto& attrs = args.attrs.as<GroupedMatmulAttrs>();
  const TensorType &x = args.in[0], &weights = args.in[1];
  expect_rows(x, args.in[2]);
  expect(
      weights.dtype == x.dtype && weights.shape.rank() == 2 && attrs.groups > 0 && weights.shape[0] % attrs.groups == 0,
      "got weights ", weights, " of ", attrs.groups, " groups");
  const int64_t rows = weights.shape[0] / attrs.groups, columns = weights.shape[1];
  expect(x.shape[1] == (attrs.transposed ? columns : rows), "got ", x, " and weights ", weights);
  return {{x.dtype, {args.in[2].shape[0], attrs.transposed ? rows : columns}}};
}

std::vector<TensorType> infer_grouped_matmul_grad(const InferArgs& args) {
  const auto& attrs = args.attrs.as<GroupedMatmulAttrs>();
  expect_inputs(args, size_t{3} + attrs.accumulate);
  expect_rows(args.in[0], args.in[2]), expect_rows(args.in[1], args.in[2]);
  const TensorType out{args.in[0].dtype, {attrs.groups * args.in[0].shape[1], args.in[1].shape[1]}};
  expect(args.in[1].dtype == out.dtype, "got ", args.in[0], " and ", args.in[1]);
  if (attrs.accumulate) expect(args.in[3] == out, "accumulator of type ", args.in[3]);
  return {out};
}

std::vector<Tensor> grouped_matmul_gradient(const GradientArgs& args) {
  const auto& attrs = args.attrs<GroupedMatmulAttrs>();
  const Tensor x = args.in[0], choice = args.in[2], dy = args.out_grad[0];
  const int64_t rows = x.dim(0), width = x.dim(1), times = choice.dim(0) / rows;
  std::vector<Tensor> gradients(3);
  if (args.wanted[0]) {
    gradients[0] = grouped_matmul(At(dy, args.node.where), args.in[1], choice,
        {.groups = attrs.groups, .transposed = !attrs.transposed, .exact = attrs.exact});
    if (times > 1)
      gradients[0] = reshape(sum_to(reshape(gradients[0], {times, rows, width}), {1, rows, width}), {rows, width});
  }
  if (args.wanted[1])
    gradients[1] =
        args.graph.add_one(kGroupedMatmulGrad, std::array{attrs.transposed ? dy : x, attrs.transposed ? x : dy, choice},
            GroupedMatmulAttrs{.groups = attrs.groups, .exact = attrs.exact}, args.node.where);
  return gradients;
}

// Copies its weight for each row, unless there is only one.
std::vector<Tensor> decompose_grouped_matmul(const DecomposeArgs& args) {
  const auto& attrs = args.attrs<GroupedMatmulAttrs>();
  const Tensor x = args.in[0], weights = args.in[1], choice = args.in[2];
  const int64_t rows = weights.dim(0) / attrs.groups, columns = weights.dim(1), count = choice.dim(0);
  std::vector<Tensor> repeated(count / x.dim(0), x);
  const Tensor all = joined(repeated, 0);
  if (attrs.groups == 1) return {matmul(all, weights, false, attrs.transposed)};
  const Tensor chosen = embedding(reshape(weights, {attrs.groups, rows * columns}), choice);
  const Tensor product =
      matmul(reshape(all, {count, 1, x.dim(1)}), reshape(chosen, {count, rows, columns}), false, attrs.transposed);
  return {reshape(product, {count, product.dim(2)})};
}

Attrs with_precision(const Attrs& old, Precision precision) {
  return old.as<GroupedMatmulAttrs>().exact ? old : set_precision<GroupedMatmulAttrs>(old, precision);
}

StorageRule grouped_matmul_storage(const Node& node) {
  if (node.attrs.as<GroupedMatmulAttrs>().exact) return {};
  return {.in = {Storage::kReduced, Storage::kReduced}, .out = {Storage::kAny}};
}

StorageRule grouped_matmul_grad_storage(const Node& node) {
  StorageRule rule = grouped_matmul_storage(node);
  rule.in.resize(3, Storage::kF32);
  if (node.attrs.as<GroupedMatmulAttrs>().accumulate) rule.in.push_back(Storage::kAsResult);
  return rule;
}

double grouped_matmul_flops(const FlopsArgs& args) {  // each row is multiplied once
  const auto& weights = args.node.op == &kGroupedMatmul ? args.in[1].shape : args.out[0].shape;
  const int64_t choices = args.in[2].shape[0], groups = args.attrs<GroupedMatmulAttrs>().groups;
  return 2.0 * static_cast<double>(choices) * static_cast<double>(weights.elements() / groups);
}

// A larger group is several products, so that the memory of all sizes is known.
constexpr int64_t kRowsAtOnce = 512;

void check_choices(const TensorView& choice, int64_t groups) {
  for (int64_t i = 0; i < choice.elements(); ++i)
    if (const int32_t group = choice.as<const int32_t>()[i]; group < 0 || group >= groups)
      fail_user("row ", i, " chooses weight ", group, " of ", groups);
}

void run_grouped_matmul_reference(const KernelArgs& args) {
  const auto& attrs = args.attrs<GroupedMatmulAttrs>();
  const TensorView &x = args.in[0], &weights = args.in[1], &y = args.out[0];
  const int64_t rows = weights.shape()[0] / attrs.groups, columns = weights.shape()[1], inner = x.shape()[1];
  check_choices(args.in[2], attrs.groups);
  for_float(y.type.dtype, [&]<class T>() {
    for (int64_t m = 0; m < y.shape()[0]; ++m) {
      const T *from = x.as<T>() + m % x.shape()[0] * inner,
              *weight = weights.as<T>() + args.in[2].as<int32_t>()[m] * rows * columns;
      for (int64_t j = 0; j < y.shape()[1]; ++j) {
        double sum = 0;
        for (int64_t i = 0; i < inner; ++i)
          sum += static_cast<double>(from[i]) * weight[attrs.transposed ? j * columns + i : i * columns + j];
        y.as<T>()[m * y.shape()[1] + j] = static_cast<T>(sum);
      }
    }
  });
}

void run_grouped_matmul_grad_reference(const KernelArgs& args) {
  const auto& attrs = args.attrs<GroupedMatmulAttrs>();
  const TensorView &a = args.in[0], &b = args.in[1], &dw = args.out[0];
  const int64_t rows = a.shape()[1], columns = b.shape()[1];
  check_choices(args.in[2], attrs.groups);
  for_float(dw.type.dtype, [&]<class T>() {
    for (int64_t i = 0; i < dw.elements(); ++i) dw.as<T>()[i] = attrs.accumulate ? args.in[3].as<T>()[i] : T(0);
    for (int64_t m = 0; m < args.in[2].elements(); ++m) {
      const T *left = a.as<T>() + m % a.shape()[0] * rows, *right = b.as<T>() + m % b.shape()[0] * columns;
      T* sums = dw.as<T>() + args.in[2].as<int32_t>()[m] * rows * columns;
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < columns; ++j) sums[i * columns + j] += left[i] * right[j];
    }
  });
}

bool supports_grouped_matmul(const KernelQuery& query) {  // as for ops/matmul
  if (all_f32(query)) return true;
  const auto& attrs = query.attrs<GroupedMatmulAttrs>();
  const bool rounds =
      attrs.precision == Precision::kBf16 || (query.in[0].dtype == DType::kBF16 && query.in[1].dtype == DType::kBF16);
  return all_f32_or_bf16(query) && gemm_has_bf16() && rounds && !attrs.independent_rows;
}

// The workspace: which rows choose each weight, two blocks of gathered rows, and a product's own.
class Groups {
 public:
  // left, right: types with the rows that are gathered.
  Groups(
      std::byte* workspace, const TensorType& choice, int64_t groups, const TensorType& left, const TensorType& right)
      : count_(choice.shape.elements()), groups_(groups), at_once_(std::min(count_, kRowsAtOnce)), regions_(workspace),
        ends_(regions_.take<int32_t>(count_ + groups_ + 1)), left_(take_rows(left)), right_(take_rows(right)) {}

  int64_t at_once() const { return at_once_; }
  size_t size() const { return regions_.size(); }
  std::byte* left() const { return left_; }
  std::byte* right() const { return right_; }
  std::byte* rest() const { return regions_.rest(); }

  // Sorts the rows by their choice, and calls body(group, rows) for up to at_once() rows of a group.
  template <class Body> void each(const TensorView& choice, const Body& body) const {
    check_choices(choice, groups_);
    int32_t* const rows = ends_ + groups_ + 1;
    std::fill_n(ends_, groups_ + 1, 0);
    const int32_t* const chosen = choice.as<const int32_t>();
    for (int64_t m = 0; m < count_; ++m) ++ends_[chosen[m] + 1];
    std::partial_sum(ends_, ends_ + groups_ + 1, ends_);
    for (int64_t m = 0; m < count_; ++m) rows[ends_[chosen[m]]++] = static_cast<int32_t>(m);  // now ends_[g] is g's end
    int64_t first = 0;
    for (int64_t group = 0; group < groups_; ++group)
      for (const int64_t end = ends_[group]; first < end;) {
        const int64_t size = std::min(at_once_, end - first);
        body(group, std::span(rows + first, static_cast<size_t>(size)));
        first += size;
      }
  }

 private:
  std::byte* take_rows(const TensorType& type) {
    return regions_.take<std::byte>(at_once_ * type.shape[1] * static_cast<int64_t>(dtype_size(type.dtype)));
  }

  const int64_t count_, groups_, at_once_;
  Regions regions_;
  int32_t* const ends_;
  std::byte *const left_, *const right_;
};

// Gathers rows m mod R of a matrix.
void gather(const TensorView& from, std::span<const int32_t> rows, std::byte* to, ThreadPool& pool) {
  const int64_t bytes = from.shape()[1] * from.element_size();
  pool.run(std::ssize(rows), [&](int64_t i, int) {
    std::memcpy(
        to + i * bytes, from.as<const std::byte>() + rows[i] % from.shape()[0] * bytes, static_cast<size_t>(bytes));
  });
}

// kSums: of the gradient, whose products are sums over the rows of a group.
template <bool kSums> size_t grouped_matmul_workspace(const KernelQuery& query) {
  const TensorType &left = query.in[0], &right = kSums ? query.in[1] : query.out[0];
  const Groups groups(nullptr, query.in[2], query.attrs<GroupedMatmulAttrs>().groups, left, right);
  const int64_t l = left.shape[1], r = right.shape[1];
  size_t most = 0;
  for (int64_t rows = 1; rows <= groups.at_once(); ++rows)
    most = std::max(most, kSums ? gemm_workspace(1, l, r, rows, query.threads, !all_f32(query))
                                : gemm_workspace(1, rows, r, l, query.threads, !all_f32(query)));
  return groups.size() + most;
}

void run_grouped_matmul(const KernelArgs& args) {
  const auto& attrs = args.attrs<GroupedMatmulAttrs>();
  const TensorView &x = args.in[0], &weights = args.in[1], &y = args.out[0];
  const int64_t rows = weights.shape()[0] / attrs.groups, columns = weights.shape()[1];
  const Groups groups(args.workspace, args.in[2].type, attrs.groups, x.type, y.type);
  groups.each(args.in[2], [&](int64_t group, std::span<const int32_t> chosen) {
    gather(x, chosen, groups.left(), args.pool);
    GemmArgs product{.m = std::ssize(chosen), .n = y.shape()[1], .k = x.shape()[1]};
    product.a = {groups.left(), x.type.dtype == DType::kBF16}, product.lda = product.k;
    product.b = stored(weights) + group * rows * columns, product.ldb = columns, product.trans_b = attrs.transposed;
    product.c = {groups.right(), y.type.dtype == DType::kBF16}, product.ldc = product.n;
    product.precision = is_stored_in_bf16(product) ? Precision::kBf16 : attrs.precision;
    product.independent_rows = attrs.independent_rows;
    gemm(product, groups.rest(), args.pool);
    const int64_t bytes = product.n * y.element_size();
    args.pool.run(product.m, [&](int64_t i, int) {
      std::memcpy(y.as<std::byte>() + chosen[i] * bytes, groups.right() + i * bytes, static_cast<size_t>(bytes));
    });
  });
}

void run_grouped_matmul_grad(const KernelArgs& args) {
  const auto& attrs = args.attrs<GroupedMatmulAttrs>();
  const TensorView &a = args.in[0], &b = args.in[1], &dw = args.out[0];
  const Groups groups(args.workspace, args.in[2].type, attrs.groups, a.type, b.type);
  const int64_t size = a.shape()[1] * b.shape()[1], bytes = size * dw.element_size();
  if (attrs.accumulate) copy_operand(args.in[3], dw);
  int64_t next = 0;  // the first weight whose sums have not begun
  const auto begin = [&](int64_t end) {
    for (; next < end; ++next)
      if (!attrs.accumulate) std::memset(dw.as<std::byte>() + next * bytes, 0, static_cast<size_t>(bytes));
  };
  groups.each(args.in[2], [&](int64_t group, std::span<const int32_t> chosen) {
    begin(group);
    gather(a, chosen, groups.left(), args.pool), gather(b, chosen, groups.right(), args.pool);
    GemmArgs sums{.m = a.shape()[1], .n = b.shape()[1], .k = std::ssize(chosen)};
    sums.a = {groups.left(), a.type.dtype == DType::kBF16}, sums.lda = sums.m, sums.trans_a = true;
    sums.b = {groups.right(), b.type.dtype == DType::kBF16}, sums.ldb = sums.n;
    sums.c = mutable_stored(dw) + group * size, sums.ldc = sums.n;
    sums.accumulate = attrs.accumulate || next > group;
    sums.precision = is_stored_in_bf16(sums) ? Precision::kBf16 : attrs.precision;
    gemm(sums, groups.rest(), args.pool);
    next = std::max(next, group + 1);
  });
  begin(attrs.groups);
}
}  // namespace

const OpDef kGroupedMatmul{.name = "grouped_matmul",
    .infer = takes<3, infer_grouped_matmul>,
    .gradient = grouped_matmul_gradient,
    .decompose = decompose_grouped_matmul,
    .storage = grouped_matmul_storage,
    .product = ProductKind::kMatrix,
    .with_precision = with_precision,
    .with_independent_rows = set_member<&GroupedMatmulAttrs::independent_rows>,
    .by_gpu_library = true,  // there is no CUDA kernel yet: a GPU refuses it
    .flops = grouped_matmul_flops};
const OpDef kGroupedMatmulGrad{.name = "grouped_matmul_grad",
    .infer = infer_grouped_matmul_grad,
    .may_overwrite = [](const Node&, int, int input) { return input == 3; },  // the accumulator
    .can_accumulate = [](const Node& node) { return !node.attrs.as<GroupedMatmulAttrs>().accumulate; },
    .with_accumulator = set_member<&GroupedMatmulAttrs::accumulate>,
    .storage = grouped_matmul_grad_storage,
    .product = ProductKind::kMatrix,
    .with_precision = with_precision,
    .by_gpu_library = true,
    .flops = grouped_matmul_flops};

Tensor grouped_matmul(At x, Tensor weights, Tensor choice, const GroupedMatmulAttrs& attrs) {
  return op_result(kGroupedMatmul, x, {weights, choice}, attrs);
}

LINNET_KERNELS(grouped_matmul, {"gemm", run_grouped_matmul, supports_grouped_matmul, grouped_matmul_workspace<false>},
    {"reference", run_grouped_matmul_reference})
LINNET_KERNELS(grouped_matmul_grad,
    {"gemm", run_grouped_matmul_grad, supports_grouped_matmul, grouped_matmul_workspace<true>},
    {"reference", run_grouped_matmul_grad_reference})
}  // namespace linnet
