#include "tasks/session_task.h"
#include <malloc.h>
#include "base/fail.h"
#include "base/log.h"
#include "base/process.h"
#include "base/text.h"
#include "engine/exec/backend.h"
#include "engine/plan/plan.h"
#include "models/modules/resnet.h"
#include "models/nn/activation_observer.h"
#include "models/nn/model_store.h"
#include "models/nn/pipeline_parallel.h"
#include "models/nn/weight_quantization.h"
#include "training/run/memory_report.h"
#include "training/run/run_folder.h"
#include "training/run/run_setup.h"

namespace linnet {
namespace {
// Refuses a forgotten unit or an extra zero before an hour of planning.
void check_parameters(const ParameterLayout& layout) {
  const double bytes = 4.0 * static_cast<double>(layout.stored_count() + layout.constant_count()) +
                       static_cast<double>(layout.quantized_bytes());
  const auto available = static_cast<double>(available_memory());
  if (bytes > available)
    fail_user("the model's parameters alone take ", static_cast<int64_t>(bytes / 1e6), " MB, and the machine has ",
        static_cast<int64_t>(available / 1e6), " MB available");
}

// Before the layout is made, whose parameters include the steps.
WeightQuantization prepare_quantization(const Config& config, Module& model, bool training) {
  if (!training || config.train.quantize == "none") return config.quantization;
  if (train_quantized(model) == 0)
    fail_user(
        "quantize = \"int8\": the model has no linear layer or convolution of at least 16 features from 32 numbers or "
        "more");
  auto observer = std::make_shared<ActivationObserver>();
  observer->set_collecting(false);
  return {.observer = std::move(observer)};
}

std::shared_ptr<const ModelDivision> division_of(
    const Config& config, const Module& model, bool training, const LossFunction& loss) {
  const TrainerOptions options = trainer_options(config, training);
  const bool has_stages = options.pipeline.ranks > 1;
  if (!has_stages && options.tensor.ranks == 1) return nullptr;
  const std::string way = has_stages ? "pipeline" : "tensor";
  if (!loss) fail_user("task = \"", config.data.task, "\" has no ", way, " parallel: leave ", way, " out of parallel");
  return divide_among_ranks(model, parameter_groups(config), loss, options.tensor, options.pipeline);
}

std::string in_words(uint64_t bytes) {
  return bytes < 1000000 ? std::to_string(bytes) + " bytes" : std::to_string(bytes / 1000000) + " MB";
}

// Returns freed memory to the system, so that it does not count.
uint64_t trimmed_resident_bytes() {
  malloc_trim(0);
  return resident_bytes();
}

constexpr int64_t kUnknownTokens = 1 << 20;  // assumed for a missing text
constexpr int64_t kBytesPerSubword = 4;      // of English, about; fewer elsewhere

// User error if the peak exceeds the user's limit. `advice`: what needs less.
void check_limit(const Session& session, uint64_t need, const std::string& advice) {
  const uint64_t limit = session.trainer->options().memory;
  if (limit == 0 || need <= limit) return;
  const std::string recomputation = session.trainer->plans().largest_fit().text();
  throw DoesNotFit("this run does not fit within memory = " + in_words(limit) + ": it needs at least " +
                   std::to_string(need / 1000000 + 2) + " MB" +
                   (recomputation.empty() ? "" : ", where it " + recomputation) + advice);
}
}  // namespace

Session::Session(const Config& config, Module& model, bool training, bool verify_plans, const LossFunction& loss)
    : training(training), layout(model, parameter_groups(config), prepare_quantization(config, model, training),
                              division_of(config, model, training, loss)),
      store(open_backend(config.train.device)), shared(add_shared_regions(store)),
      trainer(std::make_unique<Trainer>(layout, store, shared, trainer_options(config, training, verify_plans))) {
  if (verify_plans) check_parameters(layout);
}

void Session::plan(const std::vector<BatchInput>& inputs, const std::vector<LossFunction>& losses,
    const std::vector<ResidentOptions::Input>& device_data) {
  store.declare_together("batch", MemoryKind::kBatch,
      mapped(inputs, [](const BatchInput& input) { return std::pair(std::string(input.name), input.bytes); }));
  Phase phase("planning");
  if (training && has_room_for(device_data))
    resident =
        std::make_unique<ResidentSteps>(*trainer, store, shared, losses.front(), ResidentOptions{.data = device_data});
  for (size_t i = 0; i < losses.size(); ++i) {
    phase.tick(static_cast<int64_t>(i), static_cast<int64_t>(losses.size()));
    LossFunction loss = loss_of_rank(losses[i], layout.shared_division());
    if (training && !is_limited()) trainer->plans().add_shape(std::move(loss));
    else trainer->plans().add_evaluation_shape(std::move(loss));
  }
}

// Whether a training device should hold the dataset, so that steps need no host.
bool Session::has_room_for(const std::vector<ResidentOptions::Input>& data) const {
  if (data.empty() || store.device().is_host() || is_limited() || trainer->options().accumulates()) return false;
  const auto bytes = sum_of<size_t>(data, [](const ResidentOptions::Input& input) { return input.type.bytes(); });
  return bytes < store.device().info().free_bytes / 4;
}

void Session::finish_planning(uint64_t resident) {
  if (!is_limited() || is_planned_) return;
  is_planned_ = true;
  Phase phase("planning");
  trainer->plans().plan_training_within_memory(
      bytes_beside(resident, store), [&](int64_t done, int64_t shapes) { phase.tick(done, shapes); });
}

void Session::allocate() {
  store.allocate();
  trainer->plans().bind();
  if (resident) resident->bind();
}

LossTotal total_loss(int64_t batches, const SharedWork& ranks, FunctionRef<LossTotal(int64_t batch)> evaluate) {
  const std::vector<double> found = ranks.numbers(batches, 2, [&](int64_t index, std::span<double> result) {
    const LossTotal total = evaluate(index);
    result[0] = total.sum, result[1] = static_cast<double>(total.tokens);
  });
  LossTotal all{};
  for (size_t i = 0; i < found.size(); i += 2) all.sum += found[i], all.tokens += static_cast<int64_t>(found[i + 1]);
  return all;
}

namespace {
void reserve_memory(Session& session, const std::string& advice) {
  check_fits(session.store, advice);
  session.allocate();
  session.trainer->state().initialize_constants();
}
}  // namespace

void take_memory(Session& session, const std::string& advice) {
  reserve_memory(session, advice);
  session.store.touch();
}

void load_weights(Session& session, const LoadWeights& load) {
  session.trainer->state().load_parameters(
      [&](const ParameterTarget& parameters) { load(session.layout, parameters); });
}

void take_weights(Session& session, const std::string& advice, const LoadWeights& load) {
  const PackedWeights packed(session.inference_plans(), session.store);
  reserve_memory(session, advice);
  // Before it takes the memory: an altered configuration can ask for any size, and loading refuses other shapes.
  load_weights(session, load);
  session.store.touch();
  packed.pack(session.store, session.trainer->pool());
}

std::string SessionTask::advice() const {
  const std::string batch = batch_key() == &DataConfig::batch_tokens ? "batch_tokens" : "batch_size";
  if (config_.data.*batch_key() != least()) return "; a smaller " + batch + " needs less (see `linnet plan`)";
  const std::string shorter = shorter_key();
  return "; fewer or smaller layers" + (shorter.empty() ? "" : " or a smaller " + shorter) + " need less";
}

// With a memory limit training steps are planned for what the process leaves of it. The plans and what follows take
// memory too, known only afterwards: planning repeats until all fits or takes no less.
void SessionTask::prepare(Capacity capacity) {
  constexpr uint64_t kMargin = 256 << 10;
  const bool must_suffice = capacity == Capacity::kMustSuffice;
  uint64_t reserve = 1 << 20, peak = UINT64_MAX;
  for (;;) {
    session_.reset();
    session_ = make_session(config_, must_suffice);
    session_->finish_planning(trimmed_resident_bytes() + reserve);
    if (must_suffice) check_fits(session_->store, advice());
    if (must_suffice || fits(session_->store)) session_->allocate(), begin();
    forecast_ = forecast_memory(trimmed_resident_bytes(), session_->store);
    const uint64_t limit = session_->trainer->options().memory, before = std::exchange(peak, forecast_.peak());
    if (limit == 0 || peak <= limit) return;
    if (peak >= before) break;
    reserve += peak - limit + kMargin;
  }
  if (must_suffice) check_limit(*session_, peak, advice());
}

const PretrainedModel* SessionTask::starts_from() const {
  const PretrainedModel* model = pretrained();
  return model && !model->folder.empty() ? model : nullptr;
}

void SessionTask::initialize() {
  const PretrainedModel* from = starts_from();
  TrainingState& state = trainer().state();
  if (from && !state.layout().division()) {  // the folder has all parameters, or missing ones are drawn
    state.initialize_constants();
    load_initial_weights(state, *from, config_);
  } else {
    state.initialize();  // divided ones are read later (training/run/run_checkpoints.h)
  }
  if (teacher_) teacher_->load(store(), trainer().pool());
}

const std::shared_ptr<const Teacher>& SessionTask::teacher(
    const std::vector<std::string>& classes, const EncodeText& encode) {
  if (!teacher_) teacher_ = Teacher::open(config_, classes, encode);
  return teacher_;
}

int64_t DataAtHand::assumed_tokens(const DataConfig& data) const {
  if (bytes == 0) return kUnknownTokens;
  const bool one_a_character = data.tokenizer == "char" || data.tokenizer == "byte";
  return std::max<int64_t>(1, static_cast<int64_t>(bytes) / (one_a_character ? 1 : kBytesPerSubword));
}

DataAtHand data_at_hand(const std::string& name, std::vector<std::string> paths, bool exact, uint64_t quick) {
  std::erase(paths, "");
  DataAtHand data;
  std::string missing;
  for (const std::string& path : paths) {
    const uint64_t bytes = size_on_disk(path);
    if (bytes == 0 && missing.empty()) missing = path;
    data.bytes += bytes;
  }
  if (paths.empty() || !missing.empty()) {
    data.why_not = "No " + name + " was " + (paths.empty() ? "given" : "found at '" + missing + "'");
  } else if (!exact && data.bytes > quick) {
    const std::string megabytes = printed("%.1f", static_cast<double>(data.bytes) / 1e6);
    data.why_not = "The " + name + " has " + megabytes + " MB and was not read (--exact reads it)";
  } else {
    data.read = true;
  }
  return data;
}

DataAtHand text_at_hand(const Config& config, bool exact) {
  const DataConfig& data = config.data;
  if (data.text.empty()) return data_at_hand("text", {}, exact);
  return data_at_hand("text", {data_path(data, data.text), data_path(data, data.valid_text)}, exact);
}
}  // namespace linnet
