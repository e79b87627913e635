// What lies where in a plan's arena, and when: for pictures of a plan's memory and for the count of live bytes in
// traces.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/plan/plan.h"

namespace linnet {

// A rectangle of arena bytes and time: bytes [offset, offset + bytes) are in use from node `first` through node `last`.
struct ArenaTenant {
  ValueId value;  // whose memory it is; values computed in place over it are not listed apart
  size_t offset, bytes;
  NodeId first, last;
};

// All tenants of the plan's arena, by their first node. A value that is filled piece by piece, as the flat gradient is,
// gives a tenant for each piece. `arena`: the region the plan was made with.
std::vector<ArenaTenant> arena_tenants(const Plan& plan, RegionId arena);

// Bytes of the arena in use while each node runs.
std::vector<size_t> live_bytes(const Plan& plan, const std::vector<ArenaTenant>& tenants);

}  // namespace linnet
