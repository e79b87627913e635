#include "engine/ops/collective/collective.h"
#include <algorithm>
#include "distributed/comm/tensor_group.h"
#include "engine/ops/movement/movement.h"

namespace linnet {
namespace {
std::vector<TensorType> infer_collective_gather(const InferArgs& args) {
  expect_inputs(args, 1);
  const auto& attrs = args.attrs.as<AllGatherAttrs>();
  TensorType out = args.in[0];
  expect(is_float(out.dtype) && attrs.axis >= 0 && attrs.axis < out.shape.rank(), "got ", out);
  int64_t size = 0, own = 0;
  for (const int64_t part : attrs.parts) {
    size += part;
    own += part_of_axis(part, {attrs.rank, attrs.ranks}).count;
  }
  expect(out.shape[attrs.axis] == own, "got ", out, ", expected ", own, " along axis ", attrs.axis);
  out.shape.set(attrs.axis, size);
  return {out};
}

std::vector<TensorType> infer_stage_output(const InferArgs& args) {
  const size_t values = args.in.size() / 2;
  expect(values > 0 && args.in.size() == 2 * values, "got ", args.in.size(),
      " operands, expected values and as many gradients");
  for (size_t i = 0; i < values; ++i)
    expect(is_float(args.in[i].dtype) && args.in[values + i] == args.in[i], "got ", args.in[i], " with the gradient ",
        args.in[values + i]);
  return {{args.in[0].dtype, {}}};
}

std::vector<Tensor> stage_output_gradient(const GradientArgs& args) {
  const size_t values = args.in.size() / 2;
  std::vector<Tensor> gradients(args.in.size());
  for (size_t i = 0; i < values; ++i) gradients[i] = args.in[values + i];
  return gradients;
}

size_t sum_workspace(const KernelQuery& query) {
  const auto& attrs = query.attrs<CollectiveAttrs>();
  return sum_scratch_size(static_cast<size_t>(query.in[0].shape.elements()), attrs.ranks) * sizeof(float);
}

void run_sum(const KernelArgs& args) {
  const int ranks = args.attrs<CollectiveAttrs>().ranks;
  copy_operand(args.in[0], args.out[0]);
  const auto count = static_cast<size_t>(args.out[0].elements());
  sum_over_ranks(checked_group(args.tensor_group, ranks), {args.out[0].as<float>(), count},
      {reinterpret_cast<float*>(args.workspace), sum_scratch_size(count, ranks)}, args.pool);
}

void run_share(const KernelArgs& args) { copy_operand(args.in[0], args.out[0]); }

void run_zero(const KernelArgs& args) { std::memset(args.out[0].data, 0, args.out[0].type.bytes()); }

int64_t elements_of(const KernelQuery& query, int rank) {
  const auto& attrs = query.attrs<AllGatherAttrs>();
  return local_shape(query.out[0].shape, Sharding::cut(attrs.axis, attrs.parts), {rank, attrs.ranks}).elements();
}

size_t gather_workspace(const KernelQuery& query) {
  const auto& attrs = query.attrs<AllGatherAttrs>();
  int64_t count = 0;
  for (int rank = 0; rank < attrs.ranks; ++rank)
    if (rank != attrs.rank) count += elements_of(query, rank);
  return static_cast<size_t>(count) * sizeof(float);
}

void run_collective_gather(const KernelArgs& args) {
  const auto& attrs = args.attrs<AllGatherAttrs>();
  Communicator& group = checked_group(args.tensor_group, attrs.ranks);
  const Sharding sharding = Sharding::cut(attrs.axis, attrs.parts);
  const auto bytes_of = [](float* values, int64_t count) {
    return std::as_writable_bytes(std::span(values, static_cast<size_t>(count)));
  };
  auto& [outgoing, incoming, pieces] = group.empty_lists();
  auto* location = reinterpret_cast<float*>(args.workspace);
  for (int rank = 0; rank < attrs.ranks; ++rank) {
    pieces.push_back(rank == attrs.rank ? args.in[0].as<float>() : location);
    if (rank == attrs.rank) continue;
    const int64_t count = local_shape(args.out[0].shape(), sharding, {rank, attrs.ranks}).elements();
    outgoing.push_back({rank, bytes_of(args.in[0].as<float>(), args.in[0].elements())});
    incoming.push_back({rank, bytes_of(location, count)});
    location += count;
  }
  group.exchange(outgoing, incoming);
  for (int rank = 0; rank < attrs.ranks; ++rank) {
    const float* const piece = pieces[rank];
    for_runs(args.out[0].shape(), sharding, {rank, attrs.ranks}, [&](int64_t to, int64_t from, int64_t count) {
      std::copy_n(piece + from, count, args.out[0].as<float>() + to);
    });
  }
}
}  // namespace

const OpDef kAllReduce{
    .name = "all_reduce", .infer = infer_same_float, .gradient = first_gradient, .may_overwrite = overwrites_first};
const OpDef kShare{.name = "share",
    .infer = infer_same_float,
    .gradient = [](const GradientArgs& args) { return args.add(kAllReduce, {args.out_grad[0]}); },
    .may_overwrite = overwrites_first};
const OpDef kAllGather{.name = "all_gather",
    .infer = infer_collective_gather,
    .gradient = [](const GradientArgs& args) -> std::vector<Tensor> {
      const auto& attrs = args.attrs<AllGatherAttrs>();
      return {cut(
          At(args.out_grad[0], args.node.where), Sharding::cut(attrs.axis, attrs.parts), {attrs.rank, attrs.ranks})};
    }};
const OpDef kHold{.name = "hold", .infer = [](const InferArgs& args) -> std::vector<TensorType> {
                    expect(!args.in.empty() && is_float(args.in[0].dtype), "expected floats");
                    return {{args.in[0].dtype, {}}};
                  }};
const OpDef kStageOutput{.name = "stage_output", .infer = infer_stage_output, .gradient = stage_output_gradient};

Tensor all_reduce(At x, const TensorRank& rank) { return op_result(kAllReduce, x, {}, CollectiveAttrs{rank.ranks}); }

Tensor share(At x, const TensorRank& rank) { return op_result(kShare, x, {}, CollectiveAttrs{rank.ranks}); }

Tensor all_gather(At x, const Sharding& sharding, const TensorRank& rank) {
  return op_result(kAllGather, x, {}, AllGatherAttrs{sharding.axis, sharding.parts, rank.rank, rank.ranks});
}

Tensor hold(At x, std::span<const Tensor> others) { return op_result(kHold, x, {others.begin(), others.end()}); }

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

Tensor stage_output(std::span<const Tensor> values, std::span<const Tensor> gradients, SourceLine where) {
  std::vector<Tensor> in(values.begin(), values.end());
  in.insert(in.end(), gradients.begin(), gradients.end());
  return values.front().graph->add_one(kStageOutput, in, {}, where);
}

LINNET_KERNELS(all_reduce, {"ranks", run_sum, all_f32, sum_workspace})
LINNET_KERNELS(share, {"copy", run_share})
LINNET_KERNELS(all_gather, {"ranks", run_collective_gather, all_f32, gather_workspace})
LINNET_KERNELS(hold, {"reference", run_zero})
LINNET_KERNELS(stage_output, {"zero", run_zero})
}  // namespace linnet
