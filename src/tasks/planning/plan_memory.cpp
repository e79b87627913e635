#include "tasks/planning/plan_memory.h"

#include <algorithm>

#include "base/files.h"
#include "base/process_memory.h"
#include "config/byte_size.h"
#include "config/task_rows.h"
#include "data/examples/images/image_folder.h"
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
  std::string assumption;
};

constexpr int64_t kQuickSamples = 1'000'000;

DataAtHand pairs_at_hand(const PlanRequest& request) {
  const DataConfig& data = request.config.data;
  if (task_row(request.config).origin != ExampleOrigin::kFiles) {
    if (request.exact || data.train_samples <= kQuickSamples) return {.read = true};
    return {.why_not = std::to_string(data.train_samples) + " samples were not made (--exact makes them)"};
  }
  std::vector<std::string> paths;
  for (const std::string* name : {&data.train_source, &data.train_target, &data.train_tsv})
    if (!name->empty()) paths.push_back(data_path(data, *name));
  return data_at_hand("training text", paths, request.exact);
}

Basis measure(const PlanRequest& request) {
  const Config& config = request.config;
  Basis basis;
  const DataAtHand data = pairs_at_hand(request);
  if (data.read) {
    TranslationTask task(config, "", Capacity::kMayBeShort);
    basis.model = task.model;
    basis.lengths = task.train->lengths();
    for (const auto& pair : task.valid->dataset.lengths()) basis.lengths.push_back(pair);
    basis.resident = task.forecast().resident;
    return basis;
  }
  basis.assumption =
      data.why_not + "; assuming batches of max_seq_len = " + std::to_string(config.model.max_seq_len) + " tokens.";
  Config random = config;
  random.data.task = "random";
  random.data.tokenizer = "char";
  random.data.train_samples = random.data.valid_samples = std::max<int64_t>(config.data.vocab_size / 16, 64);
  basis.model = config.model.from.empty()
                    ? make_translation_model(config, train_tokenizers(random, load_training_corpus(random).train))
                    : open_translation_folder(config, config.model.from);
  basis.lengths.assign(100'000,
                       {static_cast<int>(config.model.max_seq_len), static_cast<int>(config.model.max_seq_len)});
  // The text itself and its tokens.
  basis.resident = resident_bytes() + data.bytes + 4 * static_cast<uint64_t>(data.assumed_tokens(config.data));
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
  planned.session->finish_planning(basis.resident);
  planned.forecast = forecast_memory(basis.resident, planned.session->store);
  return planned;
}

// Far more tokens than any training text: every pair is in one batch.
constexpr int64_t kMost = int64_t{1} << 40;

}  // namespace

PlanAnswer plan_translation(const PlanRequest& request) {
  const Config& config = request.config;
  Basis basis = measure(request);
  basis.resident = request.resident.value_or(basis.resident);
  const Planned planned = plan_once(config, basis);
  PlanAnswer answer;
  answer.forecast = planned.forecast;
  answer.recomputation = planned.session->trainer->largest_fit().text();
  answer.parameters = planned.session->layout.whole_parameter_count();
  answer.stage = stage_text(planned.session->layout);
  std::tie(answer.arena_bytes, answer.arena_lower_bound) = planned.session->trainer->arena_use();
  answer.fusion = fusion_report(planned.session->trainer->pass_reports());
  answer.memory_record = memory_record(*planned.session->trainer, planned.session->store, answer.forecast);
  const BatchShape& shape = planned.session->shapes.back();
  answer.batches = "up to " + std::to_string(shape.batch) + " x (" + std::to_string(shape.source_length) + " + " +
                   std::to_string(shape.target_length) + ") tokens, " + std::to_string(planned.session->shapes.size()) +
                   " shapes";
  answer.assumption = basis.assumption;
  const auto key = config.data.batch_tokens > 0 ? &DataConfig::batch_tokens : &DataConfig::batch_size;
  answer.shorter_key = "max_seq_len";
  answer.batch_key = config.data.batch_tokens > 0 ? "batch_tokens" : "batch_size";
  if (request.visit) request.visit(*planned.session->trainer);
  if (request.speed) answer.step_seconds = estimated_step_seconds(*planned.session->trainer, *request.speed);
  if (request.visit || request.speed) return answer;
  Config other = config;
  const int64_t step = config.data.batch_tokens > 0 ? config.model.max_seq_len : 1;
  answer.largest_batch = largest_fit(step, kMost, [&](int64_t value) {
    other.data.*key = value;
    const uint64_t peak = plan_once(other, basis).forecast.peak();
    if (value == step) answer.least_peak = peak;
    return peak <= request.memory;
  });
  answer.all_fit = answer.largest_batch >= kMost;
  return answer;
}

namespace {

constexpr uint64_t kQuickImages = 64 << 20;  // bytes

// What training images that are not read will be, by the names of the folders and the first file.
ImageFormat outlined_format(const std::string& directory, int64_t size, int64_t& images) {
  const std::string root = file_exists(directory + "/train") ? directory + "/train" : directory;
  ImageFormat format;
  format.class_names = list_folders(root);
  const std::vector<std::string> files = find_images(root);
  images = static_cast<int64_t>(files.size());
  const ImageInfo first = image_info(files.front());
  format.height = size > 0 ? size : first.height, format.width = size > 0 ? size : first.width;
  format.channels = first.channels;
  format.mean.assign(static_cast<size_t>(format.channels), 0);
  format.deviation.assign(static_cast<size_t>(format.channels), 1);
  return format;
}

bool has_images(const std::string& directory) {
  return has_class_folders(directory) || has_class_folders(directory + "/train");
}

}  // namespace

PlanAnswer plan_images(const PlanRequest& request) {
  const Config& config = request.config;
  ImageFormat format;
  int64_t images = 60'000;
  uint64_t resident = 0;
  PlanAnswer answer;
  std::vector<std::string> paths;
  if (!config.data.data_dir.empty()) paths.push_back(config.data.data_dir);
  const DataAtHand data = data_at_hand("folder of images", paths, request.exact, kQuickImages);
  const bool outlined = data.bytes > 0 && has_images(config.data.data_dir);
  const uint64_t memory = parse_byte_size(config.data.image_memory).value_or(UINT64_MAX);
  const auto decoded = [&] { return static_cast<uint64_t>(images * format.height * format.width * format.channels); };
  if (data.read || (data.bytes > 0 && !outlined)) {
    const ImageTask task(config, "", Capacity::kMayBeShort);
    format = task.format(), images = task.train_count(), resident = task.forecast().resident;
  } else {
    if (outlined) {
      format = outlined_format(config.data.data_dir, config.data.image_size, images);
      answer.assumption = data.why_not + "; assuming that all images are like the first.";
    } else {
      format.class_names.resize(10), format.mean = {0}, format.deviation = {1};
      answer.assumption = data.why_not + "; assuming MNIST's, 60,000 images of 28 x 28 x 1 in 10 classes.";
    }
    resident = resident_bytes() + std::min(decoded(), memory);
  }
  // Images that are decoded or changed on the way are not kept on the device.
  const bool as_they_are = decoded() <= memory && !augmentation_of(config, format).any();
  const auto make_session = [&](int64_t rows) {
    Config other = config;
    other.data.batch_size = rows;
    return std::make_unique<ImageSession>(other, format, true, false, as_they_are ? images : 0);
  };
  answer_rows(answer, *make_session(config.data.batch_size), images, resident, request, make_session);
  answer.batches = std::to_string(config.data.batch_size) + " images of " + std::to_string(format.height) + " x " +
                   std::to_string(format.width) + " x " + std::to_string(format.channels);
  return answer;
}

PlanAnswer plan_language(const PlanRequest& request) {
  const Config& config = request.config;
  PlanAnswer answer;
  int64_t tokens = 0;
  LanguageModel language;
  uint64_t resident = 0;
  bool packed = false;
  const DataAtHand data = text_at_hand(config, request.exact);
  if (data.read) {
    LanguageTask task(config, "", Capacity::kMayBeShort);
    language = task.language(), tokens = task.train_tokens(), packed = task.session().packed;
    resident = task.forecast().resident;
  } else {
    tokens = data.assumed_tokens(config.data);
    resident = resident_bytes() + static_cast<uint64_t>(tokens) * 2;
    language = make_language_model(config, make_number_coder(config.data.vocab_size), "");
    answer.assumption = data.why_not + "; assuming " + std::to_string(tokens) + " tokens and a vocabulary of " +
                        std::to_string(language.model->vocab_size()) + ".";
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
  answer.batches = std::to_string(session->chunks.rows) + " x " + std::to_string(session->chunks.length) + " tokens";
  const int64_t most = std::max<int64_t>(1, tokens / session->chunks.length);
  answer_rows(answer, *session, most, resident, request, make_session);
  return answer;
}

PlanAnswer plan_memory(const PlanRequest& request) { return task_actions(request.config).plan(request); }

}  // namespace linnet
