#include <algorithm>

#include "config/config.h"

namespace linnet {

Config of_one_shard(Config config) {
  const int64_t shards = std::max<int64_t>(config.train.data_shards > 0 ? config.train.data_shards : config.process.ranks, 1);
  config.data.batch_size /= shards;
  config.data.batch_tokens /= shards;
  return config;
}

}  // namespace linnet
