#include <algorithm>

#include "base/error.h"
#include "config/config.h"

namespace linnet {

Config of_one_shard(Config config) {
  const int64_t shards =
      std::max<int64_t>(config.train.data_shards > 0 ? config.train.data_shards : config.process.ranks, 1);
  const int64_t micro_batches = std::max<int64_t>(config.train.micro_batches, 1);
  config.data.batch_size /= shards * micro_batches;
  config.data.batch_tokens /= shards * micro_batches;
  config.train.accumulate_steps *= micro_batches;
  config.train.micro_batches = 1;
  return config;
}

bool halve_micro_batches(Config& config) {
  Config halved = config;
  halved.train.micro_batches = 2 * std::max<int64_t>(config.train.micro_batches, 1);
  try {
    validate(halved);
  } catch (const Error&) {
    return false;
  }
  config = halved;
  return true;
}

}  // namespace linnet
