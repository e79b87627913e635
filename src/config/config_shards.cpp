#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "config/config.h"

namespace linnet {

RankDivision parse_parallel(const std::string& text) {
  RankDivision division{.data = 0, .tensor = 0};
  const auto fail = [&] {
    fail_user("parallel = \"" + text + "\" is not understood; write for example tensor=2 or data=2,tensor=2");
  };
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size()), equals = text.find('=', at);
    if (equals >= end) fail();
    const std::string name = text.substr(at, equals - at);
    int* number = name == "data" ? &division.data : name == "tensor" ? &division.tensor : nullptr;
    const char *first = text.data() + equals + 1, *last = text.data() + end;
    if (!number || *number != 0) fail();
    if (const auto [stop, error] = std::from_chars(first, last, *number);
        error != std::errc{} || stop != last || *number < 1 || *number > 4096)
      fail();
    at = end + 1;
  }
  return division;
}

RankDivision divide_ranks(const std::string& parallel, int ranks) {
  RankDivision division = parse_parallel(parallel);
  const bool tells_data = division.data > 0;
  division.tensor = std::max(division.tensor, 1);
  if (!tells_data) division.data = std::max(ranks / division.tensor, 1);
  if (division.data * division.tensor != ranks)
    fail_user("parallel = \"" + parallel + "\" does not fit " + std::to_string(ranks) +
              (ranks == 1 ? " rank" : " ranks") + ": --ranks must be " +
              (tells_data ? std::to_string(division.data * division.tensor)
                          : "a multiple of " + std::to_string(division.tensor)));
  return division;
}

Config of_one_shard(Config config) {
  int64_t shards = config.train.data_shards;
  if (shards == 0) shards = divide_ranks(config.train.parallel, config.process.ranks).data;
  const int64_t micro_batches = std::max<int64_t>(config.train.micro_batches, 1);
  const int64_t parts = std::max<int64_t>(shards, 1) * micro_batches;
  config.data.batch_size /= parts;
  config.data.batch_tokens /= parts;
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
