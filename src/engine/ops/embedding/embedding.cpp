#include "engine/ops/embedding/embedding.h"
#include <algorithm>
#include "engine/kernels/embedding.h"

namespace linnet {
namespace {
std::vector<TensorType> infer_embedding(const InferArgs& args) {
  expect(args.in[0].shape.rank() == 2 && is_float(args.in[0].dtype), "got table ", args.in[0],
      ", expected [vocab, width]");
  expect(args.in[1].dtype == DType::kI32, "got ids ", args.in[1], ", expected i32");
  return {{args.in[0].dtype, with_axes(args.in[1].shape, {args.in[0].shape[1]})}};
}

std::vector<TensorType> infer_embedding_grad(const InferArgs& args) {
  const auto& attrs = args.attrs.as<EmbeddingGradAttrs>();
  expect_inputs(args, 2 + attrs.accumulate);
  const TensorType out{args.in[0].dtype, {attrs.vocab_size, args.in[0].shape[-1]}};
  if (attrs.accumulate) expect(args.in[2] == out, "accumulator of type ", args.in[2]);
  return {out};
}

std::vector<Tensor> embedding_gradient(const GradientArgs& args) {
  const auto& forward = args.attrs<EmbeddingAttrs>();
  const EmbeddingGradAttrs attrs{.vocab_size = args.in[0].dim(0),
      .padding = forward.padding,
      .all_rows = forward.all_rows,
      .first_row = forward.first_row};
  return {args.graph.add_stored(kEmbeddingGrad, std::array{args.out_grad[0], args.in[1]}, attrs, args.node.where,
              std::array{args.in[0].type()})[0],  // the table's type, in whatever dy is stored
      Tensor{}};
}

std::vector<Tensor> gradient_of_sums(const GradientArgs& args) {
  const auto& sums = args.attrs<EmbeddingGradAttrs>();
  if (sums.accumulate || sums.scale != 1) fail_internal("the gradient of sums is taken before passes fuse them");
  const EmbeddingAttrs attrs{.padding = sums.padding, .all_rows = sums.all_rows, .first_row = sums.first_row};
  const Tensor rows = args.add(kEmbedding, {args.out_grad[0], args.in[1]}, attrs)[0];
  if (sums.padding < 0) return {rows, Tensor{}};
  fail_user("the sums of rows that leave out the id ", sums.padding, " have no gradient");
}

void check_ids(const TensorView& ids, int64_t vocab_size, int64_t padding = -1) {
  for (const int32_t id : ids.numbers<int32_t>())
    if ((id < 0 || id >= vocab_size) && (padding < 0 || id != padding))
      fail_user("id ", id, " is outside of a table of ", vocab_size, " rows");
}

// The rows of a table on this rank: ids count from the first one.
struct Rows {
  int64_t first, count;
  bool has(int32_t id) const { return id >= first && id < first + count; }
};

// In the workspace: the ids of a divided table relative to its first row; `outside` stands for other ranks' ids.
const int32_t* ids_of_rows(const KernelArgs& args, const Rows& rows, int32_t padding, int32_t outside) {
  auto* local = reinterpret_cast<int32_t*>(args.workspace);
  const int32_t* id = args.in[1].as<const int32_t>();
  for (int64_t i = 0; i < args.in[1].elements(); ++i)
    local[i] = rows.has(id[i]) && id[i] != padding ? static_cast<int32_t>(id[i] - rows.first) : outside;
  return local;
}

template <class T> size_t ids_workspace(const KernelQuery& query) {
  return query.attrs<T>().all_rows > 0 ? query.in[1].bytes() : 0;
}

void run_embedding_reference(const KernelArgs& args) {
  const auto& attrs = args.attrs<EmbeddingAttrs>();
  const int64_t width = args.out[0].shape()[-1];
  const Rows rows{attrs.first_row, args.in[0].shape()[0]};
  check_ids(args.in[1], std::max(attrs.all_rows, rows.count));
  for_float(args.out[0].type.dtype, [&]<class T>() {
    for (int64_t i = 0; i < args.in[1].elements(); ++i) {
      const int32_t id = args.in[1].as<int32_t>()[i];
      if (rows.has(id))
        std::copy_n(args.in[0].as<T>() + (id - rows.first) * width, width, args.out[0].as<T>() + i * width);
      else std::fill_n(args.out[0].as<T>() + i * width, width, T(0));
    }
  });
}

void start_table(const KernelArgs& args) {
  const auto& attrs = args.attrs<EmbeddingGradAttrs>();
  check_ids(args.in[1], std::max(attrs.all_rows, attrs.vocab_size), attrs.padding);
  if (attrs.accumulate) copy_operand(args.in[2], args.out[0]);
  else std::memset(args.out[0].data, 0, args.out[0].type.bytes());
}

void run_embedding_grad_reference(const KernelArgs& args) {
  start_table(args);
  const auto& attrs = args.attrs<EmbeddingGradAttrs>();
  const int64_t width = args.in[0].shape()[-1];
  const Rows rows{attrs.first_row, attrs.vocab_size};
  for_float(args.out[0].type.dtype, [&]<class T>() {
    for (int64_t i = 0; i < args.in[1].elements(); ++i) {
      const int32_t id = args.in[1].as<int32_t>()[i];
      if (id == attrs.padding || !rows.has(id)) continue;
      T* row = args.out[0].as<T>() + (id - rows.first) * width;
      for (int64_t j = 0; j < width; ++j) row[j] += static_cast<T>(attrs.scale) * args.in[0].as<T>()[i * width + j];
    }
  });
}

void run_embedding(const KernelArgs& args) {
  const auto& attrs = args.attrs<EmbeddingAttrs>();
  const int64_t count = args.in[1].elements(), width = args.out[0].shape()[-1];
  const Rows rows{attrs.first_row, args.in[0].shape()[0]};
  check_ids(args.in[1], std::max(attrs.all_rows, rows.count));
  const int32_t* ids = args.in[1].as<int32_t>();
  const bool divided = attrs.all_rows > 0;
  gather_rows(count, width, args.in[0].as<float>(), divided ? ids_of_rows(args, rows, -1, 0) : ids,
      mutable_stored(args.out[0]), args.pool);
  if (!divided) return;
  for (int64_t i = 0; i < count; ++i)
    if (!rows.has(ids[i])) clear_floats(width, mutable_stored(args.out[0]) + i * width);
}

void run_embedding_grad(const KernelArgs& args) {
  start_table(args);
  const auto& attrs = args.attrs<EmbeddingGradAttrs>();
  const auto padding = static_cast<int32_t>(attrs.padding);
  const bool divided = attrs.all_rows > 0;
  const int32_t* ids =
      divided ? ids_of_rows(args, {attrs.first_row, attrs.vocab_size}, padding, -1) : args.in[1].as<int32_t>();
  scatter_add_rows(args.in[1].elements(), args.in[0].shape()[-1], stored(args.in[0]), ids, args.out[0].as<float>(),
      args.pool, divided ? -1 : padding);
}

bool has_f32_table(const KernelQuery& query) { return all_f32_or_bf16(query) && query.in[0].dtype == DType::kF32; }
bool has_f32_table_gradient(const KernelQuery& query) {
  return all_f32_or_bf16(query) && query.out[0].dtype == DType::kF32 && query.attrs<EmbeddingGradAttrs>().scale == 1;
}
}  // namespace

const OpDef kEmbedding{.name = "embedding",
    .infer = takes<2, infer_embedding>,
    .gradient = embedding_gradient,
    .storage = [](const Node&) { return StorageRule{.out = {Storage::kAny}}; }};

const OpDef kEmbeddingGrad{.name = "embedding_grad",
    .infer = infer_embedding_grad,
    .gradient = gradient_of_sums,
    .may_overwrite = [](const Node&, int, int input) { return input == 2; },
    .can_accumulate = [](const Node& node) { return !node.attrs.as<EmbeddingGradAttrs>().accumulate; },
    .with_accumulator = set_member<&EmbeddingGradAttrs::accumulate>,
    .storage = [](const Node&) { return StorageRule{.in = {Storage::kAny}}; }};

Tensor embedding(At table, Tensor ids, int64_t padding) {
  return op_result(kEmbedding, table, {ids}, EmbeddingAttrs{padding});
}

LINNET_KERNELS(embedding, {"simd", run_embedding, has_f32_table, ids_workspace<EmbeddingAttrs>},
    {"reference", run_embedding_reference})
LINNET_KERNELS(embedding_grad, {"simd", run_embedding_grad, has_f32_table_gradient, ids_workspace<EmbeddingGradAttrs>},
    {"reference", run_embedding_grad_reference})
}  // namespace linnet
