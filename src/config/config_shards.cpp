#include <algorithm>
#include <charconv>
#include "base/error.h"
#include "config/config.h"

namespace linnet {

namespace {

// The numbers in the text; 0 for one that is left out.
RankLayout parse(const std::string& text) {
  RankLayout layout{.data = 0, .tensor = 0, .pipeline = 0, .interleave = 0};
  const auto fail = [&] {
    fail_user("parallel = \"" + text + "\" is not understood; write for example pipeline=2 or data=2,tensor=2");
  };
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size()), equals = text.find('=', at);
    if (equals >= end) fail();
    const std::string name = text.substr(at, equals - at);
    int* number = name == "data"         ? &layout.data
                  : name == "tensor"     ? &layout.tensor
                  : name == "pipeline"   ? &layout.pipeline
                  : name == "interleave" ? &layout.interleave
                                         : nullptr;
    const char *first = text.data() + equals + 1, *last = text.data() + end;
    if (!number || *number != 0) fail();
    if (name == "pipeline" && std::string_view(first, last) == "encoder-decoder") {
      layout.pipeline = 2, layout.splits_encoder = true;
      at = end + 1;
      continue;
    }
    if (const auto [stop, error] = std::from_chars(first, last, *number);
        error != std::errc{} || stop != last || *number < 1 || *number > 1 << 15)
      fail();
    at = end + 1;
  }
  if (layout.interleave > 1 && layout.pipeline < 2)
    fail_user("parallel = \"" + text + "\": interleave is of a pipeline: write for example pipeline=2,interleave=2");
  if (layout.interleave > 1 && layout.splits_encoder)
    fail_user("parallel = \"" + text + "\": encoder and decoder are two stages, which interleave does not divide");
  return layout;
}

}  // namespace

void check_parallel(const std::string& parallel) { parse(parallel); }

RankLayout parallel_layout(const std::string& parallel, int ranks) {
  RankLayout layout = parse(parallel);
  const bool tells_data = layout.data > 0;
  layout.tensor = std::max(layout.tensor, 1), layout.pipeline = std::max(layout.pipeline, 1);
  layout.interleave = std::max(layout.interleave, 1);
  const int of_model = layout.ranks_of_model();
  if (!tells_data) layout.data = std::max(ranks / of_model, 1);
  if (int64_t{layout.data} * of_model != ranks)
    fail_user(
        "parallel = \"" + parallel + "\" does not fit " + std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks") +
        ": --ranks must be " +
        (tells_data ? std::to_string(int64_t{layout.data} * of_model) : "a multiple of " + std::to_string(of_model)));
  return layout;
}

Config of_one_shard(Config config) {
  int64_t shards = config.train.data_shards;
  if (shards == 0) shards = parallel_layout(config.train.parallel, config.process.ranks).data;
  const int64_t micro_batches = std::max<int64_t>(config.train.micro_batches, 1);
  const int64_t parts = std::max<int64_t>(shards, 1) * micro_batches;
  config.data.batch_size /= parts;
  config.data.batch_tokens /= parts;
  config.train.accumulate_steps *= micro_batches;
  config.train.micro_batches = 1;
  return config;
}

bool double_micro_batches(Config& config) {
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
