// What a run trains on, in words.
#pragma once
#include <string>

#include "config/config.h"

namespace linnet {

// "2 threads, avx512, fp32", or the GPU and what its precision means; with several ranks "4 ranks of 2 threads, ...".
std::string where_it_runs(const TrainConfig& train, int threads, int ranks);

}  // namespace linnet
