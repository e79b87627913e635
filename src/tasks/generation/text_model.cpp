#include "tasks/generation/text_model.h"
#include "base/fail.h"
#include "base/files.h"
#include "engine/exec/backend.h"
#include "engine/plan/plan.h"
#include "engine/plan/store.h"
#include "models/families/static_scales.h"
#include "training/run/memory_report.h"

namespace linnet {
TextModel::TextModel(const std::string& folder, const TextGenerationOptions& options)
    : options_(options), quantization_(folder_quantization(folder, options.quantize, options.keep)),
      adapters_(parse_adapters(options.adapters)), pool_(threads_or_all(options.threads)),
      store_(open_backend(options.device)) {}

TextJob TextModel::prepare(const TextRequest& request, bool warn) const {
  TextJob job = prepare_job(request, warn);
  job.stops = request.options.stop, job.log_probabilities = request.options.log_probabilities;
  const int64_t adapter = find_adapter(adapters_, request.options.adapter, request.where);
  if (are_chosen(adapters_)) job.adapter = adapter;
  if (contains(job.stops, "")) fail_user(request.where, ": a stop text is empty");
  if (!job.stops.empty() && job.choice.beams > 1)
    fail_user(request.where, ": a search knows its text only at the end: give either --beam or --stop");
  return job;
}

void TextModel::plan_resident(const TextRoom& options, WeightCheck check) {
  check_ = check;
  plan_any(options);
  slides_ = false;  // a text ends when the cache is full
}

int64_t TextModel::texts_at_once(int64_t jobs, int64_t samples, int64_t most) {
  return std::max(samples, std::min(jobs * samples, most));
}

void TextModel::allocate(const std::string& folder, const LoadWeights& weights) {
  check_fits(store_, "; fewer samples, beams or tokens need less");
  // Pages of a packed file stay the file's.
  const PackedWeights packed = is_packed(folder) ? PackedWeights() : PackedWeights(engine_->packable_plans(), store_);
  store_.allocate();
  engine_->bind();
  layout_->initialize_constants(store_.as<float>(state::kConstants), pool_);
  fill(folder, *layout_, store_, weights);
  packed.pack(store_, pool_);
  store_.push(state::kConstants);
  store_.push(state::kParameters);
}

void TextModel::fill(
    const std::string& folder, const ParameterLayout& layout, Store& store, const LoadWeights& weights) {
  auto packed = ParameterFile::open(folder);
  if (!packed || !packed->load(store, layout, pool_, check_))
    return load_into(store, layout, pool_, [&](const ParameterTarget& parameters) { weights(layout, parameters); });
  packed_.push_back(std::move(packed));
}

void TextModel::check_weights() const {
  for (const auto& file : packed_) file->check_weights();
}

GenerateRequest TextModel::engine_request(const TextJob& job, uint64_t sample) const {
  GenerateSettings settings{.max_tokens = job.choice.max_tokens,
      .sampling = job.choice.sampling,
      .length_penalty = job.choice.length_penalty,
      .early_stopping = job.choice.early_stopping,
      .forced_end = job.choice.forced_end,
      .ends = job.choice.ends,
      .begin = job.begin,
      .never = never_,
      .rules = job.choice.rules,
      .slide = slides_ && job.choice.beams == 1,
      .first_sample = sample,
      .grammar = job.grammar,
      .texts = job.texts};
  settings.log_probabilities = job.log_probabilities;
  return {.prompt = job.prompt, .settings = std::move(settings), .beams = job.choice.beams, .adapter = job.adapter};
}
}  // namespace linnet
