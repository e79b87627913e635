#include <algorithm>
#include <cstring>
#include "distributed/comm/tensor_group.h"
#include "engine/ops/collective/collective.h"

namespace linnet {
namespace {

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

// What the other ranks have.
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
    const float* const piece = pieces[static_cast<size_t>(rank)];
    for_runs(args.out[0].shape(), sharding, {rank, attrs.ranks}, [&](int64_t to, int64_t from, int64_t count) {
      std::copy_n(piece + from, count, args.out[0].as<float>() + to);
    });
  }
}

}  // namespace

LINNET_KERNELS(all_reduce, {"ranks", all_f32, sum_workspace, run_sum})
LINNET_KERNELS(share, {"copy", nullptr, nullptr, run_share})
LINNET_KERNELS(all_gather, {"ranks", all_f32, gather_workspace, run_collective_gather})
LINNET_KERNELS(hold, {"reference", nullptr, nullptr, run_zero})
LINNET_KERNELS(stage_output, {"zero", nullptr, nullptr, run_zero})

}  // namespace linnet
