// How train.parallel arranges ranks.
#pragma once
#include <string>

#include "distributed/comm/rank_layout.h"

namespace linnet {

// User error where it does not fit the number of ranks.
RankLayout parallel_layout(const std::string& parallel, int ranks);
// User error where it is not understood, for whatever number of ranks.
void check_parallel(const std::string& parallel);

}  // namespace linnet
