#include "training/run/run_checkpoints.h"
#include "base/log.h"
#include "base/numbers.h"
#include "base/process.h"
#include "distributed/comm/agreement.h"
#include "engine/kernels/processor.h"
#include "engine/plan/store.h"
#include "models/families/sentence_embedder.h"
#include "models/families/static_scales.h"
#include "models/nn/activation_observer.h"
#include "models/nn/model_file.h"
#include "models/nn/weight_quantization.h"
#include "training/run/pretrained_run.h"
#include "training/run/run_setup.h"
#include "training/trainer/trainer.h"

namespace linnet {
namespace {
// Rank 0 tells all ranks the index of the next tensor, or kEnd.
constexpr int64_t kEnd = -1;
int64_t announce(Communicator& world, int64_t index) { return broadcast_value(world, 0, index); }

void give_weights(
    Communicator& world, const TrainingState& states, WholeStates& whole, const PretrainedModel& model, uint64_t seed) {
  std::map<std::string, int64_t> index;
  for (const ParameterSlot& slot : of_all_stages(states.layout()).parameters())
    index.emplace(slot.spec.name, static_cast<int64_t>(index.size()));
  const ParameterLayout layout(*model.module);
  // Addresses for all parameters; only the one being read takes memory.
  const auto values = std::make_unique_for_overwrite<float[]>(static_cast<size_t>(layout.parameter_count()));
  ParameterTarget target = values.get();
  target.finished = [&](const ParameterSlot& slot) {
    const int64_t which = announce(world, index.at(slot.spec.name));
    const ParameterSlot& of_ranks = of_all_stages(states.layout()).parameters()[which];
    whole.scatter(whole_tensor(states, state::kParameters, of_ranks),
        reinterpret_cast<const std::byte*>(values.get() + slot.offset));
    give_back_pages(values.get() + slot.offset, float_bytes(slot.spec.shape.elements()));
  };
  load_parameters(model, layout, target, seed);
}

void take_weights(Communicator& world, const TrainingState& states, WholeStates& whole) {
  const std::vector<ParameterSlot>& slots = of_all_stages(states.layout()).parameters();
  for (int64_t next = announce(world, kEnd); next != kEnd; next = announce(world, kEnd))
    whole.scatter(whole_tensor(states, state::kParameters, slots[next]), nullptr);
}

// Loads a model folder where ranks share the layers of one model and no rank has memory for all of it: rank 0 reads one
// tensor after another and sends every rank its part. Missing tensors are drawn from `seed`. Every rank calls it.
// `model`: the folder's, on rank 0. Throws AgreedError if the folder cannot be read.
void load_divided_weights(
    Communicator& world, TrainingState& states, WholeStates& whole, const PretrainedModel* model, uint64_t seed) {
  run_on_all(world, [&] {
    if (world.rank() > 0) return take_weights(world, states, whole);
    try {
      give_weights(world, states, whole, *model, seed);
    } catch (...) {
      announce(world, kEnd);  // the others wait for the next tensor
      throw;
    }
    announce(world, kEnd);
  });
  states.reset_ema();
}

// Starts training with quantize = "int8": sets the step sizes of linear layers (models/nn/weight_quantization.h) to the
// scales of the current weights on the validation examples. The paper's initial step size, 2 mean|x| / sqrt(127), suits
// few bits: at 8 bits it is four times too large for normal values, and short fine-tuning would not correct it.
void calibrate_steps(TrainingTask& task) {
  TrainingState& states = task.trainer().state();
  ActivationObserver* observer = states.layout().observer();
  if (!observer) fail_internal("a model is to be trained quantized and nothing watches its layers");
  observer->set_collecting(true);
  SharedWork alone = SharedWork::alone();  // other ranks get the steps from this one
  task.evaluate(alone);
  observer->set_collecting(false);
  const auto scales = observer->scales(CalibrationMethod::kMinMax);
  int64_t steps = 0;
  for (const ParameterSlot& slot : states.layout().parameters()) {
    const auto scale = scales.find(weight_of_input_step(slot.spec.name));
    if (scale == scales.end()) continue;
    states.set_parameter(slot, [&](std::span<float> values) { values[0] = scale->second; });
    ++steps;
  }
  states.reset_ema();
  log_info("the inputs of " + std::to_string(steps) +
           " layers are rounded to 8 bits, by steps found on the validation examples");
}

namespace fs = std::filesystem;
constexpr const char *kFolder = "/checkpoints", *kEnding = ".safetensors";

// Weights kept beside the best ones: checkpoints/STEP.safetensors.
struct KeptCheckpoint {
  int64_t step;
  std::string path;
};

// Sorted by step.
std::vector<KeptCheckpoint> kept_checkpoints(const std::string& folder) {
  std::vector<KeptCheckpoint> checkpoints;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder + kFolder, none)) {
    const auto step = parse_number<int64_t>(entry.path().stem().string());
    if (entry.path().extension() == kEnding && step) checkpoints.push_back({*step, entry.path()});
  }
  std::ranges::sort(checkpoints, {}, &KeptCheckpoint::step);
  return checkpoints;
}

// Keeps the last `keep_checkpoints` and every step that is a multiple of `keep_every`.
void remove_old_checkpoints(const std::string& folder, const TrainConfig& config) {
  const auto kept = static_cast<size_t>(config.keep_checkpoints);
  const std::vector<KeptCheckpoint> all = kept_checkpoints(folder);
  for (const auto& [step, path] : std::span(all).first(all.size() - std::min(all.size(), kept))) {
    if (config.keep_every > 0 && step % config.keep_every == 0) continue;
    std::error_code ignored;  // another process may have removed it
    fs::remove(path, ignored);
  }
}

// Sums in double: the mean of equal weights is exactly these weights.
std::vector<std::vector<double>> sum_of(std::span<const KeptCheckpoint> checkpoints) {
  std::vector<std::vector<double>> sums;
  const SafetensorsFile first(checkpoints[0].path);
  for (const KeptCheckpoint& checkpoint : checkpoints) {
    const SafetensorsFile file(checkpoint.path);
    file.check_data();
    sums.resize(first.entries().size());
    for (size_t i = 0; i < sums.size(); ++i) {
      const SafetensorsEntry &expected = first.entries()[i], &entry = file.at(expected.name);
      if (entry.type != expected.type || entry.dtype != FileDType::kF32)
        fail_user("'", file.path(), "': tensor ", entry.name, " is ", entry.form_name(), entry.type.shape.text(),
            "; checkpoints of a run have F32", expected.type.shape.text());
      sums[i].resize(entry.type.shape.elements());
      const auto* values = reinterpret_cast<const float*>(entry.data);
      for (size_t k = 0; k < sums[i].size(); ++k) sums[i][k] += values[k];
      file.drop_pages();
    }
  }
  return sums;
}
}  // namespace

void load_run_weights(TrainingState& states, const RunFolder& from) {
  states.load_parameters(
      [&](const ParameterTarget& parameters) { load_model(from.model_path(), states.layout(), parameters); });
}

RunCheckpoints::RunCheckpoints(
    const TrainRequest& request, const RunFolder& folder, TrainingTask& task, RankGroups& groups)
    : request_(request), config_(request.config.train), folder_(folder), task_(task), trainer_(task.trainer()),
      world_(*request.world) {
  if (is_divided()) whole_.emplace(trainer_.state(), groups.data, groups.tensor, groups.pipeline);
}

Progress RunCheckpoints::load() {
  Progress progress;
  bool resumed = false;
  run_on_all(world_, [&] {
    task_.initialize();
    if (is_first_rank()) resumed = load_whole(progress);
  });
  share_state(world_, trainer_, progress);
  if (is_divided()) load_divided(any_rank(world_, resumed));
  last_saved_ = progress.step;
  return progress;
}

// On rank 0. Returns whether the run's own checkpoint was loaded.
bool RunCheckpoints::load_whole(Progress& progress) {
  const bool resumed = request_.resume && folder_.has_state();
  if (resumed) {
    Metadata metadata;
    progress = load_training_state(folder_.state_path(), trainer_, &metadata);
    frozen_saved_ = metadata.contains(kFrozenKey);
    const std::string step = std::to_string(progress.step);
    log_info(progress.step >= config_.max_steps ? "the run has its " + step + " steps already; --steps N goes on to N"
                                                : "resuming at step " + step);
    if (metadata["isa"] != current_isa())
      log_warning("the run was trained with " + metadata["isa"] + " kernels, now " + current_isa() +
                  ": losses will differ in the last digits");
  } else if (!request_.init.empty() && !shares_layers()) {
    load_run_weights(trainer_.state(), RunFolder(request_.init));
  }
  if (!resumed && config_.quantize != "none") calibrate_steps(task_);
  return resumed;
}

void RunCheckpoints::load_divided(bool resumed) {
  if (resumed) return load_divided_states(folder_.state_path(), trainer_.state(), *whole_);
  if (!shares_layers()) return;
  if (!request_.init.empty()) {
    load_divided_model(RunFolder(request_.init).model_path(), trainer_.state(), *whole_);
    trainer_.state().reset_ema();
  } else if (any_rank(world_, is_first_rank() && task_.starts_from())) {
    load_divided_weights(world_, trainer_.state(), *whole_, task_.starts_from(), static_cast<uint64_t>(config_.seed));
  }
}

void RunCheckpoints::save_best(const Progress& progress, const std::string& state) {
  save_weights(progress, folder_.model_path(), state, "");
}

void RunCheckpoints::save_weights(
    const Progress& progress, const std::string& path, const std::string& state, const char* frozen) {
  save_frozen();
  const Metadata about = metadata(progress, frozen);
  if (shares_layers()) return save_divided_model(path, trainer_.state(), state, about, *whole_);
  if (!is_first_rank()) return;
  trainer_.state().pull();
  save_model(path, trainer_.state().layout(), trainer_.state().values(state), about);
}

// Called before each file, which may refer to the frozen weights.
void RunCheckpoints::save_frozen() {
  folder_.check_lock();
  if (frozen_saved_ || !is_first_rank()) return;
  const TrainingState& states = trainer_.state();
  if (!frozen_packed(states.layout()).empty())
    save_frozen_weights(folder_.path() + "/" + kFrozenFile, states.store(), states.layout(), {{"format", "linnet"}});
  frozen_saved_ = true;
}

void RunCheckpoints::save(const Progress& progress) {
  // The kept model is written first: a run killed between the two files resumes before this step and writes both again.
  // In the other order the kept model would be missing for good.
  if (progress.step > 0 && is_due(progress.step)) keep(progress);
  save_frozen();
  if (is_first_rank())
    save_training_state(folder_.state_path(), trainer_, progress, metadata(progress, ""), whole_ ? &*whole_ : nullptr);
  else if (whole_) give_training_state(trainer_.state(), *whole_);
  last_saved_ = progress.step;
}

bool RunCheckpoints::is_due(int64_t step) const {
  return step % config_.save_every == 0 || (config_.keep_every > 0 && step % config_.keep_every == 0);
}

void RunCheckpoints::keep(const Progress& progress) {
  const bool for_good = config_.keep_every > 0 && progress.step % config_.keep_every == 0;
  if (config_.keep_checkpoints == 0 && !for_good) return;
  const std::string folder = folder_.path() + kFolder;
  make_directories(folder);
  save_weights(progress, folder + "/" + std::to_string(progress.step) + kEnding, state::kParameters, "../");
  if (is_first_rank()) remove_old_checkpoints(folder_.path(), config_);
}

bool RunCheckpoints::has_state() const { return is_first_rank() && file_exists(folder_.state_path()); }

Metadata RunCheckpoints::metadata(const Progress& progress, const char* frozen) const {
  Metadata about{{"format", "linnet"}, {"isa", current_isa()}, {"trained_steps", std::to_string(progress.step)},
      {"seed", std::to_string(config_.seed)}};
  if (!frozen_packed(trainer_.state().layout()).empty()) about[kFrozenKey] = std::string(frozen) + kFrozenFile;
  return about;
}

void average_checkpoints(const std::string& run, int64_t count, const std::string& out) {
  RunFolder(run).load_config();
  if (file_exists(out)) fail_user("'", out, "' exists already; --out names a new folder");
  std::vector<KeptCheckpoint> checkpoints = kept_checkpoints(run);
  if (static_cast<int64_t>(checkpoints.size()) < count)
    fail_user("run '", run, "' has kept ", checkpoints.size(), " checkpoints, not ", count,
        " (in its configuration save_every says when one is kept, keep_checkpoints how many)");
  checkpoints.erase(checkpoints.begin(), checkpoints.end() - count);
  const std::vector<std::vector<double>> sums = sum_of(checkpoints);
  const SafetensorsFile last(checkpoints.back().path), first(checkpoints.front().path);
  std::vector<std::vector<float>> means;
  std::vector<SafetensorsTensor> tensors;
  for (size_t i = 0; i < sums.size(); ++i) {
    means.push_back(mapped(sums[i], [&](double sum) { return static_cast<float>(sum / static_cast<double>(count)); }));
    tensors.push_back({first.entries()[i].name, first.entries()[i].type, means[i].data()});
  }
  SafetensorsMetadata metadata = last.metadata();
  metadata["averaged"] = std::to_string(count);
  if (metadata.contains(kFrozenKey)) metadata[kFrozenKey] = kFrozenFile;
  copy_without_records(run, out, "model.safetensors");
  save_safetensors(RunFolder(out).model_path(), tensors, metadata);
}

void export_adapters(const std::string& folder, const std::string& out) {
  const Config config = RunFolder(folder).load_config();
  if (config.lora.rank == 0) fail_user("run '", folder, "' has no adapters: it was trained without lora.rank");
  const PretrainedModel model = open_run_model(folder);
  const ParameterLayout layout(*model.module);
  save_adapters(
      model, layout, [&](const ParameterTarget& target) { weights_of(folder)(layout, target); }, config.model.from,
      out);
}

void export_pretrained_run(const std::string& folder, const std::string& out) {
  const PretrainedModel model = open_run_model(folder);
  const FlatWeights flat(*model.module, weights_of(folder));
  auto files = open_run_tokenizer(folder)->files();
  files.merge(sentence_files(model_description(folder)));
  save_pretrained(model, flat.layout, flat.parameters.data(), out, {.files = std::move(files)});
  if (const auto scales = read_static_scales(folder)) write_static_scales(out, *scales);
}

void load_initial_weights(TrainingState& states, const PretrainedModel& model, const Config& config) {
  if (states.layout().division()) return;  // load_divided_weights() loads them
  states.load_parameters([&](const ParameterTarget& parameters) {
    load_parameters(model, states.layout(), parameters, static_cast<uint64_t>(config.train.seed));
  });
}
}  // namespace linnet
