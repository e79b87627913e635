#include "tasks/planning/plan_memory.h"

#include <algorithm>

#include "base/files.h"
#include "base/process_memory.h"
#include "config/task_rows.h"
#include "tasks/images/image_task.h"
#include "tasks/language/language_task.h"
#include "tasks/planning/plan_parts.h"
#include "tasks/task_table.h"
#include "tasks/translation/corpus.h"
#include "tasks/translation/translation_task.h"

namespace linnet {
namespace {

// The lengths of all pairs and a vocabulary of the right size: all that sizes depend on.
struct Basis {
  TranslationModel model;
  std::vector<std::pair<int, int>> lengths;
  uint64_t resident = 0;
  bool assumed = false;
};

bool text_is_there(const Config& config) {
  const DataConfig& data = config.data;
  if (task_row(config).origin != ExampleOrigin::kFiles) return true;
  if (!data.train_tsv.empty()) return file_exists(data_path(data, data.train_tsv));
  return !data.train_source.empty() && file_exists(data_path(data, data.train_source));
}

Basis measure(const Config& config) {
  Basis basis;
  if (text_is_there(config)) {
    TranslationTask task(config, "", Capacity::kMayBeShort);
    basis.model = task.model;
    basis.lengths = task.train->lengths();
    for (const auto& pair : task.valid->dataset.lengths()) basis.lengths.push_back(pair);
    basis.resident = task.forecast().resident;
    return basis;
  }
  basis.assumed = true;
  Config random = config;
  random.data.task = "random";
  random.data.tokenizer = "char";
  random.data.train_samples = random.data.valid_samples = std::max<int64_t>(config.data.vocab_size / 16, 64);
  basis.model = config.model.from.empty()
                    ? make_translation_model(config, train_tokenizers(random, load_training_corpus(random).train))
                    : open_translation_folder(config, config.model.from);
  basis.lengths.assign(100'000,
                       {static_cast<int>(config.model.max_seq_len), static_cast<int>(config.model.max_seq_len)});
  basis.resident = resident_bytes();
  return basis;
}

struct Planned {
  MemoryForecast forecast;
  std::unique_ptr<TranslationSession> session;
};

Planned plan_once(const Config& config, const Basis& basis) {
  SessionOptions options = training_session_options(config, choose_buckets(config, basis.lengths));
  options.verify_plans = false;
  Planned planned;
  planned.session = std::make_unique<TranslationSession>(config, basis.model, std::move(options));
  planned.forecast = forecast_memory(basis.resident, planned.session->store);
  return planned;
}

// Far more tokens than any training text: every pair is in one batch.
constexpr int64_t kMost = int64_t{1} << 40;

}  // namespace

PlanAnswer plan_translation(const Config& config, uint64_t memory) {
  const Basis basis = measure(config);
  const Planned planned = plan_once(config, basis);
  PlanAnswer answer;
  answer.forecast = planned.forecast;
  answer.parameters = planned.session->layout.parameter_count();
  std::tie(answer.arena_bytes, answer.arena_lower_bound) = planned.session->trainer->arena_use();
  answer.fusion = fusion_report(planned.session->trainer->pass_reports());
  const BatchShape& shape = planned.session->shapes.back();
  answer.batches = "up to " + std::to_string(shape.batch) + " x (" + std::to_string(shape.source_length) + " + " +
                   std::to_string(shape.target_length) + ") tokens, " + std::to_string(planned.session->shapes.size()) +
                   " shapes";
  if (basis.assumed)
    answer.assumption = "The training text is not there: every batch is taken at max_seq_len = " +
                        std::to_string(config.model.max_seq_len) + ".";
  const auto key = config.data.batch_tokens > 0 ? &DataConfig::batch_tokens : &DataConfig::batch_size;
  answer.shorter_key = "max_seq_len";
  answer.batch_key = config.data.batch_tokens > 0 ? "batch_tokens" : "batch_size";
  Config other = config;
  const int64_t step = config.data.batch_tokens > 0 ? config.model.max_seq_len : 1;
  answer.largest_batch = largest_fit(step, kMost, [&](int64_t value) {
    other.data.*key = value;
    const uint64_t peak = plan_once(other, basis).forecast.peak();
    if (value == step) answer.least_peak = peak;
    return peak <= memory;
  });
  answer.all_fit = answer.largest_batch >= kMost;
  return answer;
}

PlanAnswer plan_images(const Config& config, uint64_t memory) {
  ImageFormat format;
  int64_t images = 60'000;
  uint64_t resident = 0;
  PlanAnswer answer;
  if (!config.data.data_dir.empty() && file_exists(config.data.data_dir)) {
    const ImageTask task(config, "", Capacity::kMayBeShort);
    format = task.format(), images = task.train_count(), resident = task.forecast().resident;
  } else {
    format.class_names.resize(10), format.mean = {0}, format.deviation = {1};
    resident = resident_bytes() + static_cast<uint64_t>(images * format.height * format.width);
    answer.assumption = "The images are not there: MNIST's are assumed, 60,000 of 28 x 28 x 1 in 10 classes.";
  }
  const auto make_session = [&](int64_t rows) {
    Config other = config;
    other.data.batch_size = rows;
    return std::make_unique<ImageSession>(other, format, true, false, images);
  };
  answer_rows(answer, *make_session(config.data.batch_size), images, resident, memory, make_session);
  answer.batches = std::to_string(config.data.batch_size) + " images of " + std::to_string(format.height) + " x " +
                   std::to_string(format.width) + " x " + std::to_string(format.channels);
  return answer;
}

PlanAnswer plan_language(const Config& config, uint64_t memory) {
  PlanAnswer answer;
  int64_t tokens = 1 << 20;
  LanguageModel language;
  uint64_t resident = 0;
  bool packed = false;
  if (!config.data.text.empty() && file_exists(data_path(config.data, config.data.text))) {
    LanguageTask task(config, "", Capacity::kMayBeShort);
    language = task.language(), tokens = task.train_tokens(), packed = task.session().packed;
    resident = task.forecast().resident;
  } else {
    resident = resident_bytes() + static_cast<uint64_t>(tokens) * 2;
    language = make_language_model(config, make_number_coder(config.data.vocab_size), "");
    answer.assumption = "The text is not there: 1,048,576 tokens are assumed, of " +
                        std::to_string(language.model->vocab_size()) + " kinds.";
  }
  const auto make_session = [&](int64_t rows) {
    Config other = config;
    other.data.batch_size = rows;
    return std::make_unique<LanguageSession>(
        other, language.model,
        LanguageOptions{.packed = packed, .sample_length = config.train.sample_length, .verify_plans = false});
  };
  const auto session = make_session(config.data.batch_size);
  answer.shorter_key = "context";
  answer.batches = std::to_string(session->windows.rows) + " x " + std::to_string(session->windows.length) + " tokens";
  const int64_t most = std::max<int64_t>(1, tokens / session->windows.length);
  answer_rows(answer, *session, most, resident, memory, make_session);
  return answer;
}

PlanAnswer plan_memory(const Config& config, uint64_t memory) { return task_actions(config).plan(config, memory); }

}  // namespace linnet
