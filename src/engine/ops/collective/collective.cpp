#include "engine/ops/collective/collective.h"
#include "engine/ops/graph_of.h"
#include "engine/ops/movement/movement.h"

namespace linnet {
namespace {

std::vector<TensorType> infer_same(const InferArgs& args) {
  expect_inputs(args, 1);
  expect(is_float(args.in[0].dtype), "got " + args.in[0].text() + ", expected floats");
  return {args.in[0]};
}

std::vector<TensorType> infer_collective_gather(const InferArgs& args) {
  expect_inputs(args, 1);
  const auto& attrs = args.attrs.as<AllGatherAttrs>();
  TensorType out = args.in[0];
  expect(is_float(out.dtype) && attrs.axis >= 0 && attrs.axis < out.shape.rank(), "got " + out.text());
  int64_t size = 0, own = 0;
  for (const int64_t part : attrs.parts) {
    size += part;
    own += part_of_axis(part, {attrs.rank, attrs.ranks}).count;
  }
  expect(out.shape[attrs.axis] == own,
         "got " + out.text() + ", expected " + std::to_string(own) + " along axis " + std::to_string(attrs.axis));
  out.shape.set(attrs.axis, size);
  return {out};
}

}  // namespace

const OpDef kAllReduce{.name = "all_reduce",
                       .infer = infer_same,
                       .gradient = [](const GradientArgs& args) -> std::vector<Tensor> { return {args.out_grad[0]}; },
                       .may_overwrite = [](const Node&, int, int input) { return input == 0; }};
const OpDef kShare{.name = "share",
                   .infer = infer_same,
                   .gradient = [](const GradientArgs& args) -> std::vector<Tensor> {
                     return {all_reduce(At(args.out_grad[0], args.node.where),
                                        {.ranks = args.node.attrs.as<CollectiveAttrs>().ranks})};
                   },
                   .may_overwrite = [](const Node&, int, int input) { return input == 0; }};
const OpDef kAllGather{.name = "all_gather",
                       .infer = infer_collective_gather,
                       .gradient = [](const GradientArgs& args) -> std::vector<Tensor> {
                         const auto& attrs = args.node.attrs.as<AllGatherAttrs>();
                         return {cut(At(args.out_grad[0], args.node.where), Sharding::cut(attrs.axis, attrs.parts),
                                     {attrs.rank, attrs.ranks})};
                       }};
const OpDef kHold{.name = "hold", .infer = [](const InferArgs& args) -> std::vector<TensorType> {
                    expect(!args.in.empty() && is_float(args.in[0].dtype), "expected floats");
                    return {{args.in[0].dtype, {}}};
                  }};

Tensor all_reduce(At x, const TensorRank& rank) {
  return graph_of(x)->add_one(kAllReduce, std::array{x.value}, CollectiveAttrs{rank.ranks}, x.where);
}

Tensor share(At x, const TensorRank& rank) {
  return graph_of(x)->add_one(kShare, std::array{x.value}, CollectiveAttrs{rank.ranks}, x.where);
}

Tensor all_gather(At x, const Sharding& sharding, const TensorRank& rank) {
  return graph_of(x)->add_one(kAllGather, std::array{x.value},
                              AllGatherAttrs{sharding.axis, sharding.parts, rank.rank, rank.ranks}, x.where);
}

Tensor hold(At x, std::span<const Tensor> others) {
  std::vector<Tensor> in{x.value};
  in.insert(in.end(), others.begin(), others.end());
  return graph_of(x)->add_one(kHold, in, {}, x.where);
}

Tensor cut(At x, const Sharding& sharding, const TensorRank& rank) {
  std::vector<Tensor> pieces;
  int64_t before = 0;
  for (const int64_t part : sharding.parts) {
    const AxisPart own = part_of_axis(part, rank);
    pieces.push_back(slice(x, sharding.axis, before + own.first, own.count));
    before += part;
  }
  if (pieces.size() == 1) return pieces[0];
  return concat(At(pieces[0], x.where), std::span(pieces).subspan(1), sharding.axis);
}

}  // namespace linnet
