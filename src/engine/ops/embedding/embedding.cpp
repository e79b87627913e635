#include "engine/ops/embedding/embedding.h"
#include "base/error.h"

namespace linnet {
namespace {

std::vector<TensorType> infer_embedding(const InferArgs& args) {
  expect_inputs(args, 2);
  expect(args.in[0].shape.rank() == 2 && is_float(args.in[0].dtype), "got table ", args.in[0],
         ", expected [vocab, width]");
  expect(args.in[1].dtype == DType::kI32, "got ids ", args.in[1], ", expected i32");
  Shape shape = args.in[1].shape;
  shape.push_back(args.in[0].shape[1]);
  return {{args.in[0].dtype, shape}};
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

// A sum of rows by id is linear in the rows.
std::vector<Tensor> gradient_of_sums(const GradientArgs& args) {
  const auto& sums = args.attrs<EmbeddingGradAttrs>();
  if (sums.accumulate || sums.scale != 1) fail_internal("the gradient of sums is taken before passes fuse them");
  const EmbeddingAttrs attrs{.padding = sums.padding, .all_rows = sums.all_rows, .first_row = sums.first_row};
  const Tensor rows = args.add(kEmbedding, {args.out_grad[0], args.in[1]}, attrs)[0];
  if (sums.padding < 0) return {rows, Tensor{}};
  fail_user("the sums of rows that leave out the id " + std::to_string(sums.padding) + " have no gradient");
}

}  // namespace

const OpDef kEmbedding{
    .name = "embedding", .infer = infer_embedding, .gradient = embedding_gradient, .storage = [](const Node&) {
      return StorageRule{.out = {Storage::kAny}};
    }};

const OpDef kEmbeddingGrad{
    .name = "embedding_grad",
    .infer = infer_embedding_grad,
    .gradient = gradient_of_sums,
    .may_overwrite = [](const Node&, int, int input) { return input == 2; },
    .can_accumulate = [](const Node& node) { return !node.attrs.as<EmbeddingGradAttrs>().accumulate; },
    .with_accumulator = set_member<&EmbeddingGradAttrs::accumulate>,
    .storage = [](const Node&) { return StorageRule{.in = {Storage::kAny}}; }};

Tensor embedding(At table, Tensor ids, int64_t padding) {
  return op_result(kEmbedding, table, {ids}, EmbeddingAttrs{padding});
}

}  // namespace linnet
