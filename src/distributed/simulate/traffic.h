// What the operations of comm/ move, without moving it: as many exchanges and bytes as comm/ makes of the same call.
// They send every value directly to the rank that adds it, so an all-reduce of balanced slices moves as many bytes as a
// ring does, 2 (n - 1) / n of the values, in fewer exchanges.
#pragma once
#include <span>

#include "distributed/comm/communicator.h"
#include "distributed/comm/shard_tree.h"
#include "distributed/simulate/network.h"

namespace linnet {

// ShardSum::reduce_scatter of `part` of `values` floats: each rank receives the others' for its own slice.
Traffic reduce_scatter_traffic(size_t values, Slice part, const ShardShare& share);
// all_gather_slices() of `values` floats.
Traffic gather_slices_traffic(size_t values, int ranks);
// ShardSum::sum_everywhere(), for few values.
Traffic sum_everywhere_traffic(size_t values, const ShardShare& share);
// sum_over_ranks() of a tensor group: what the op all_reduce does.
Traffic all_reduce_traffic(size_t values, int ranks);
// Each rank sends `values` floats to all others: the op all_gather.
Traffic all_gather_traffic(size_t values, int ranks);
// One message of `bytes` between two ranks.
Traffic send_traffic(double bytes);

// Bytes that the rank which adds most reads and writes beside the messages, in a reduce_scatter_traffic().
double added_bytes(size_t values, Slice part, const ShardShare& share);

}  // namespace linnet
