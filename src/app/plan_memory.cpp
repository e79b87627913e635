#include "app/plan_memory.h"

#include <algorithm>

#include "app/corpus.h"
#include "base/error.h"
#include "base/files.h"
#include "base/process_memory.h"

namespace linnet {
namespace {

// The lengths of all pairs and a vocabulary of the right size: all that sizes depend on.
struct Basis {
  TokenizerPair tokenizers;
  std::vector<std::pair<int, int>> lengths;
  uint64_t resident = 0;
  bool assumed = false;
};

bool text_is_there(const Config& config) {
  const DataConfig& data = config.data;
  if (data.task != "text") return true;
  if (!data.train_tsv.empty()) return file_exists(data_path(data, data.train_tsv));
  return !data.train_source.empty() && file_exists(data_path(data, data.train_source));
}

Basis measure(const Config& config) {
  Basis basis;
  if (text_is_there(config)) {
    TranslationTask task(config, {});
    basis.tokenizers = task.tokenizers;
    basis.lengths = task.train->lengths();
    for (const auto& pair : task.valid->dataset.lengths()) basis.lengths.push_back(pair);
    basis.resident = task.forecast().items[0].bytes;
    return basis;
  }
  basis.assumed = true;
  Config random = config;
  random.data.task = "random";
  random.data.tokenizer = "char";
  random.data.train_samples = random.data.valid_samples = std::max<int64_t>(config.data.vocab_size / 16, 64);
  basis.tokenizers = train_tokenizers(random, load_training_corpus(random).train);
  basis.lengths.assign(100'000,
                       {static_cast<int>(config.model.max_seq_len), static_cast<int>(config.model.max_seq_len)});
  basis.resident = resident_bytes();
  return basis;
}

struct Planned {
  MemoryForecast forecast;
  std::unique_ptr<Session> session;
};

Planned plan_once(const Config& config, const Basis& basis) {
  SessionOptions options = training_session_options(config, choose_buckets(config, basis.lengths));
  options.verify_plans = false;
  Planned planned;
  planned.session = std::make_unique<Session>(config, basis.tokenizers, std::move(options));
  planned.forecast = forecast_memory(basis.resident, planned.session->store);
  return planned;
}

// Far more tokens than any training text: every pair is in one batch.
constexpr int64_t kMost = int64_t{1} << 40;

// The largest value of the batch key whose peak stays within `memory`: doubled until it does not fit, then halved in.
int64_t largest_batch(Config config, const Basis& basis, int64_t DataConfig::*key, uint64_t memory) {
  const auto fits = [&](int64_t value) {
    config.data.*key = value;
    return plan_once(config, basis).forecast.peak() <= memory;
  };
  const int64_t step = key == &DataConfig::batch_tokens ? config.model.max_seq_len : 1;
  if (fits(kMost)) return kMost;
  if (!fits(step)) return 0;
  int64_t low = step, high = step;
  while (high < kMost && fits(high *= 2)) low = high;
  while (high - low > std::max<int64_t>(step, low / 64)) {
    const int64_t middle = (low + high) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

}  // namespace

PlanAnswer plan_memory(const Config& config, uint64_t memory) {
  const Basis basis = measure(config);
  const Planned planned = plan_once(config, basis);
  PlanAnswer answer;
  answer.forecast = planned.forecast;
  answer.assumed = basis.assumed;
  answer.parameters = planned.session->layout.parameter_count();
  std::tie(answer.arena_bytes, answer.arena_lower_bound) = planned.session->trainer->arena_use();
  answer.shapes = planned.session->shapes;
  const auto key = config.data.batch_tokens > 0 ? &DataConfig::batch_tokens : &DataConfig::batch_size;
  answer.batch_key = config.data.batch_tokens > 0 ? "batch_tokens" : "batch_size";
  answer.largest_batch = largest_batch(config, basis, key, memory);
  answer.all_fit = answer.largest_batch >= kMost;
  return answer;
}

}  // namespace linnet
