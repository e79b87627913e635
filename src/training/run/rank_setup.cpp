#include "training/run/rank_setup.h"
#include <filesystem>
#include <type_traits>
#include "base/error.h"
#include "base/files.h"
#include "base/scratch_folder.h"
#include "distributed/comm/agreement.h"
#include "engine/exec/backend.h"
#include "engine/kernels/isa.h"
#include "engine/plan/state_names.h"
#include "models/nn/pipeline_parallel.h"
#include "models/nn/stage_text.h"
#include "training/run/data_fingerprint.h"
#include "training/run/trainer_options.h"
#include "training/run/training_task.h"
#include "training/trainer/trainer.h"

namespace linnet {

namespace {

namespace fs = std::filesystem;

std::string data_text(const Config& config) {
  std::string text;
  for (const DataFingerprint::Entry& entry : DataFingerprint::of(config).entries)
    text += entry.key + " with " + std::to_string(entry.bytes) + " bytes and checksum " + entry.checksum + "\n";
  return text;
}

// What each rank may have of its own.
std::string common_text(Config config) {
  config.train.threads = 0;
  return to_toml(config, false);
}

// The files below rank 0's folder come into the others'.
void share_files(Communicator& world, const std::string& folder) {
  std::vector<std::string> names;
  if (world.rank() == 0)
    for (const auto& entry : fs::recursive_directory_iterator(folder))
      if (entry.is_regular_file()) names.push_back(entry.path().lexically_relative(folder).string());
  const std::string count = broadcast_text(world, 0, std::to_string(names.size()));
  names.resize(std::stoul(count));
  for (std::string& name : names) {
    name = broadcast_text(world, 0, name);
    const std::string path = folder + "/" + name;
    const std::string text = broadcast_text(world, 0, world.rank() == 0 ? read_file(path) : "");
    if (world.rank() == 0) continue;
    make_directories(fs::path(path).parent_path().string());
    write_file_atomically(path, text);
  }
}

// "fp32", or why it is not what was asked for.
std::string cpu_products_text(const std::string& wanted) {
  if (wanted == "fp16") return "fp32 with operands of products rounded to fp16";
  if (wanted == "int8") return std::string("int8 and ") + precision_name(cpu_precision(precision_of(wanted)));
  const std::string real = precision_name(cpu_precision(precision_of(wanted)));
  return real == wanted
             ? real
             : real + " (" + wanted + " was asked for, and " + current_isa() + " has no instructions for it)";
}

}  // namespace

void check_ranks_agree(Communicator& world, const std::string& program, const Config& config) {
  if (world.size() == 1) return;
  check_equal(world, "program", program);
  check_equal(world, "instruction set", std::string(current_isa()) + " (--isa chooses one that all have)");
  check_equal(world, "configuration", common_text(config));
  check_equal(world, "set of data", data_text(config));
}

void check_tasks_agree(Communicator& world, TrainingTask& task) {
  if (world.size() == 1) return;
  std::string text;
  for (const ParameterSlot& slot : of_all_stages(task.trainer().state().layout()).parameters())
    text +=
        slot.spec.name + " " + TensorType{DType::kF32, task.trainer().state().layout().whole_shape(slot)}.text() + "\n";
  check_equal(world, "model", text);
  check_equal(world, "division into batches",
              std::to_string(task.batches().batches_per_epoch()) + " batches of " +
                  std::to_string(task.batches().shape_count()) + " shapes");
}

Config share_config(Communicator& world, const Config& config) {
  if (world.size() == 1) return config;
  Config shared = parse_config(broadcast_text(world, 0, to_toml(config, false)), "the configuration of rank 0");
  shared.train.threads = config.train.threads;
  shared.process = config.process;
  return shared;
}

std::unique_ptr<TrainingTask> make_shared_task(Communicator& world, const std::string& assets, Config& config,
                                               MakeTaskFrom make) {
  if (world.size() == 1) return make(assets);
  std::unique_ptr<TrainingTask> task;
  std::unique_ptr<TemporaryFolder> folder;
  run_on_all(world, [&] {
    folder = std::make_unique<TemporaryFolder>((fs::temp_directory_path() / "linnet-rank-").string());
    if (world.rank() > 0) return;
    task = make(assets);
    task->save_assets(folder->path());
  });
  share_files(world, folder->path());
  broadcast(world, 0, std::as_writable_bytes(std::span(&config.train.micro_batches, 1)));
  run_on_all(world, [&] {
    if (world.rank() > 0) task = make(folder->path());
  });
  return task;
}

std::string forecast_of_all(Communicator& world, TrainingTask& task) {
  const int ranks = task.trainer().options().pipeline.ranks;
  if (ranks == 1) return task.forecast().text();
  const std::string own = " " + stage_text(task.trainer().state().layout()) + "\n" + task.forecast().text();
  const std::vector<std::string> all = gather_texts(world, own);
  std::string text;
  for (int i = 0; i < ranks; ++i)
    text += all[static_cast<size_t>(i) * static_cast<size_t>(task.trainer().options().tensor.ranks)];
  return text;
}

void share_state(Communicator& world, Trainer& trainer, Progress& progress) {
  if (world.size() == 1) return;
  static_assert(std::is_trivially_copyable_v<Progress>);
  broadcast(world, 0, std::as_writable_bytes(std::span(&progress, 1)));
  const TrainingState& states = trainer.state();
  states.pull();
  const ParameterLayout& layout = states.layout();
  for (const std::string& state : states.names()) {
    // What stages of a pipeline have, too, was drawn by each from the seed, or comes from a file.
    if (states.is_divided(state) || stages_of(layout)) continue;
    const int64_t count = state == state::kParameters ? layout.stored_count() : layout.trained_count();
    if (!layout.division()) {
      broadcast(world, 0, std::span(states.flat(state), static_cast<size_t>(count)));
      continue;
    }
    // What tensor ranks divide was drawn by each from the seed, or comes from a file (load_divided_states).
    for (const ParameterSlot& slot : layout.parameters())
      if (slot.offset < count && !layout.sharding_of(slot))
        broadcast(world, 0,
                  std::span(states.flat(state) + slot.offset, static_cast<size_t>(slot.spec.shape.elements())));
  }
  LossScale scale = trainer.loss_scale();
  static_assert(std::is_trivially_copyable_v<LossScale>);
  broadcast(world, 0, std::as_writable_bytes(std::span(&scale, 1)));
  trainer.set_loss_scale(scale);
  for (const auto& [name, type] : states.all_packed())
    broadcast(world, 0, std::span(states.store().data(name), type.bytes()));
  states.push();
}

std::string where_it_runs(const TrainConfig& train, int threads, int ranks) {
  if (ranks > 1) return std::to_string(ranks) + " ranks of " + where_it_runs(train, threads, 1);
  const Device& device = *open_backend(train.device).device;
  const bool other = train.attention_precision != "same" && train.attention_precision != train.precision;
  const auto attention = [&](const std::string& precision) {
    return other ? ", " + precision + " products in attention" : "";
  };
  const bool stores_bf16 = train.storage == "auto" && precision_of(train.precision) == Precision::kBf16 &&
                           cpu_precision(Precision::kBf16) == Precision::kBf16;
  if (device.is_host())
    return std::to_string(threads) + (threads == 1 ? " thread, " : " threads, ") + current_isa() + ", " +
           cpu_products_text(train.precision) +
           (stores_bf16 ? " products and activations, fp32 weights and sums" : "") +
           attention(cpu_products_text(train.attention_precision));
  const std::string precision = train.precision == "bf16"   ? "bf16 products and activations, fp32 weights and sums"
                                : train.precision == "tf32" ? "tf32 products, the rest fp32"
                                                            : "strict fp32";
  return device.info().name + ", " + precision + attention(train.attention_precision);
}

double Evaluation::metric(const std::string& name) const {
  for (const auto& [key, value] : metrics)
    if (key == name) return value;
  fail_internal("this task has no metric " + name);
}

}  // namespace linnet
