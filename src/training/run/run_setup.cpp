#include "training/run/run_setup.h"
#include <fmt/format.h>
#include <fstream>
#include "base/json.h"
#include "base/log.h"
#include "base/numbers.h"
#include "base/text.h"
#include "config/hints.h"
#include "distributed/comm/world.h"
#include "engine/exec/backend.h"
#include "engine/kernels/processor.h"
#include "engine/plan/store.h"
#include "models/nn/model_file.h"
#include "models/nn/pipeline_parallel.h"

namespace linnet {
namespace {
namespace fs = std::filesystem;
constexpr const char* kFile = "/data.json";
constexpr uint64_t kBlock = 4096, kBlocks = 64;

std::string sampled_checksum(const std::string& path, uint64_t bytes) {
  std::ifstream file(path, std::ios::binary);
  std::string block(kBlock, '\0');
  uint64_t hash = fnv1a("");
  const uint64_t last = bytes > kBlock ? bytes - kBlock : 0;
  for (uint64_t i = 0; i < kBlocks; ++i) {
    file.clear();
    file.seekg(static_cast<std::streamoff>(last / (kBlocks - 1) * i + last % (kBlocks - 1) * i / (kBlocks - 1)));
    file.read(block.data(), static_cast<std::streamsize>(kBlock));
    hash = fnv1a(std::string_view(block.data(), static_cast<size_t>(file.gcount())), hash);
    if (last == 0) break;
  }
  return fmt::format("{:016x}", hash);
}

DataFingerprint::Entry of_folder(const std::string& key, const std::string& path) {
  std::vector<std::string> files;
  uint64_t bytes = 0;
  for_each_file(path, [&](const fs::path& file, uint64_t size) {
    bytes += size;
    files.push_back(file.lexically_relative(path).string() + "\n" + std::to_string(size) + "\n");
  });
  std::ranges::sort(files);
  uint64_t hash = fnv1a("");
  for (const std::string& file : files) hash = fnv1a(file, hash);
  return {key, bytes, fmt::format("{:016x}", hash)};
}

bool is_path_of_data(const std::string& key) { return key == "data_dir" || contains(data_file_keys(), key); }

// Error(kUser) names keys that --resume may not change. Unchanged data may have moved; changed data give a warning.
void check_resumable(const Config& saved, const Config& wanted, const std::string& folder) {
  const DataFingerprint before = DataFingerprint::load(folder), now = DataFingerprint::of(wanted);
  const std::vector<std::string> changes = before.changes(now);
  const bool moved = !before.entries.empty() && before.entries.size() == now.entries.size() && changes.empty();
  std::vector<std::string> fixed;
  bool same_paths = true;
  for (const std::string& key : changed_keys(with_absolute_paths(saved), wanted)) {
    if (is_path_of_data(key)) same_paths = false;
    if (!may_change_on_resume(key) && !(moved && is_path_of_data(key))) fixed.push_back(key);
  }
  if (!fixed.empty())
    fail_user("run folder '", folder, "' was made with another configuration; --resume cannot change: ", joined(fixed),
        " (`linnet train ", folder, " --resume` goes on as it began)");
  if (same_paths && !changes.empty())
    log_warning(
        "the data have changed since the run began (" + joined(changes) + "): it goes on with what is there now");
}

// User error if the folder of a new run has other files than logs. Runs that ended before they began leave .lock.
void check_free(const std::string& folder) {
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(folder, missing)) {
    const fs::path name = entry.path().filename(), ending = name.extension();
    if (ending == ".log" || ending == ".out" || ending == ".err" || file_exists(folder + "/.lock")) continue;
    fail_user("'", folder, "' is no run and has other files, as '", name.string(), "'; --run DIR names another folder");
  }
}

std::string data_text(const Config& config) {
  std::string text;
  for (const auto& [key, bytes, checksum] : DataFingerprint::of(config).entries)
    text += fmt::format("{} with {} bytes and checksum {}\n", key, bytes, checksum);
  return text;
}

// Copies the files below rank 0's folder to the other ranks.
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

// "fp32", or why it differs from `wanted`.
std::string cpu_products_text(const std::string& wanted) {
  if (wanted == "fp16") return "fp32 with operands of products rounded to fp16";
  if (wanted == "int8") return std::string("int8 and ") + precision_name(cpu_precision(precision_of(wanted)));
  const std::string real = precision_name(cpu_precision(precision_of(wanted)));
  if (real == wanted) return real;
  return real + " (" + wanted + " was asked for, and " + current_isa() + " has no instructions for it)";
}

void set_kind(OptimizerAttrs& attrs, const std::string& name, double sgd_momentum) {
  constexpr double kMuonMomentum = 0.95;
  attrs.decoupled = name.starts_with("adamw");  // the rest of the name is Adam's
  const std::string kind = attrs.decoupled ? "adam" + name.substr(5) : name;
  attrs.kind = enum_value<OptimizerKind>(kind).value_or(OptimizerKind::kAdam);
  attrs.momentum = attrs.kind == OptimizerKind::kMuon ? kMuonMomentum : sgd_momentum;
}

std::optional<WeightFormat> storage_of(const std::string& name) {
  if (name == "bf16") return WeightFormat::kBf16;
  if (name == "int8") return WeightFormat::kInt8Blocks;
  if (name == "int4") return WeightFormat::kInt4Blocks;
  return {};
}
}  // namespace

DataFingerprint DataFingerprint::of(const Config& config) {
  DataFingerprint fingerprint;
  std::error_code ignored;
  Config copy = config;
  const std::vector<std::string*> paths = data_files(copy);
  for (size_t i = 0; i < paths.size(); ++i) {
    const std::string path = data_path(config.data, *paths[i]), key = data_file_keys()[i];
    if (fs::is_directory(path, ignored)) fingerprint.entries.push_back(of_folder(key, path));
    if (!fs::is_regular_file(path, ignored)) continue;
    const uint64_t bytes = fs::file_size(path, ignored);
    fingerprint.entries.push_back({key, bytes, sampled_checksum(path, bytes)});
  }
  if (task_kind(config) == TaskKind::kImages && fs::is_directory(config.data.data_dir, ignored))
    fingerprint.entries.push_back(of_folder("data_dir", config.data.data_dir));
  return fingerprint;
}

DataFingerprint DataFingerprint::load(const std::string& folder) {
  DataFingerprint fingerprint;
  const std::string path = folder + kFile;
  if (!file_exists(path)) return fingerprint;
  try {
    Json json = Json::parse(read_file(path), JsonLimits::settings());
    json.sort_keys();
    for (const auto& [key, value] : json.items())
      fingerprint.entries.push_back({key, value.at("bytes").get<uint64_t>(), value.at("checksum").text()});
  } catch (const JsonError& error) {
    fail_user(path, ": not what a run leaves there: ", error.what());
  }
  return fingerprint;
}

void DataFingerprint::save(const std::string& folder) const {
  Json json = Json::object();
  for (const Entry& entry : entries) json[entry.key] = {{"bytes", entry.bytes}, {"checksum", entry.checksum}};
  write_file_atomically(folder + kFile, json.dump(1) + "\n");
}

std::vector<std::string> DataFingerprint::changes(const DataFingerprint& now) const {
  std::vector<std::string> keys;
  for (const Entry& entry : entries)
    if (const Entry* present = find_item(now.entries, entry.key, &Entry::key); present && *present != entry)
      keys.push_back(entry.key);
  return keys;
}

std::string open_folder(TrainRequest& request, RunFolder& folder) {
  if (folder.in_use()) {
    if (!request.resume)
      fail_user("run folder '", folder.path(), "' exists already; --resume goes on with it, --run DIR names another");
    Config saved = folder.load_config();
    if (saved.train.data_shards == 0) saved.train.data_shards = 1;  // an old run without shards
    if (request.config.train.data_shards == 0) request.config.train.data_shards = saved.train.data_shards;
    // A run counts its position in batches: another memory limit must not cut them anew.
    if (saved.train.micro_batches == 0) saved.train.micro_batches = 1;
    if (request.config.train.micro_batches == 0) request.config.train.micro_batches = saved.train.micro_batches;
    for (const std::string& key : keep_saved_values(saved, request.config))
      log_info("resuming with the run's own " + key);
    check_resumable(saved, request.config, folder.path());
    // By `linnet average`, or a run that lost its state: a run from step 1 would overwrite the weights.
    if (!folder.has_state() && file_exists(folder.model_path()))
      fail_user("'", folder.path(),
          "' has model.safetensors and no training_state.safetensors to go on with: put that ",
          "file back, or begin a new run with these weights: --init ", folder.path(), " --run DIR");
    folder.lock();
    if (folder.has_state()) return folder.path();
  } else {
    check_free(folder.path());
    if (request.resume && !file_exists(folder.path()))
      log_warning("there is no run folder '" + folder.path() + "' to go on with: a new run begins");
    folder.lock();
  }
  if (request.init.empty()) return "";
  if (!(with_absolute_paths(RunFolder(request.init).load_config()).model == request.config.model))
    fail_user("--init: the model of run '", request.init, "' is another one; it differs in its [model] section");
  if (request.config.data.task == "preferences" && request.config.preferences.method != "orpo")
    log_warning("--init: the model is compared with '" + request.config.model.from + "', not with the run '" +
                request.init + "'; `linnet export " + request.init +
                " --out FOLDER` and model.from=FOLDER begin with the run and compare with it");
  return request.init;
}

void divide_into_shards(Config& config) {
  const int ranks = parallel_layout(config.train.parallel, config.process.ranks).data;
  if (config.train.data_shards == 0) config.train.data_shards = ranks;
  check_share({config.train.data_shards, 0, ranks});
  validate(config);
}

void check_space(const RunFolder& folder, const TrainingState& states) {
  uint64_t need = checkpoint_bytes(states);
  for (const std::string& path : {folder.state_path(), folder.model_path(), folder.path() + "/" + kFrozenFile}) {
    std::error_code missing;
    if (const uint64_t bytes = fs::file_size(path, missing); !missing) need -= std::min(need, bytes);  // replaced
  }
  check_free_disk(folder.path(), need + (1 << 20), "run folder '" + folder.path() + "'", " for its checkpoints");
}

void check_ranks_agree(Communicator& world, const std::string& program, const Config& config) {
  if (world.size() == 1) return;
  check_equal(world, "program", program);
  check_equal(world, "instruction set", std::string(current_isa()) + " (--isa chooses one that all have)");
  Config common = config;
  common.train.threads = 0;  // which may differ by rank
  check_equal(world, "configuration", to_toml(common, false));
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
      fmt::format("{} batches of {} shapes", task.batches().batches_per_epoch(), task.batches().shape_count()));
}

Config share_config(Communicator& world, const Config& config) {
  if (world.size() == 1) return config;
  Config shared = parse_config(broadcast_text(world, 0, to_toml(config, false)), "the configuration of rank 0");
  shared.train.threads = config.train.threads;
  shared.process = config.process;
  return shared;
}

std::unique_ptr<TrainingTask> make_shared_task(
    Communicator& world, const std::string& assets, Config& config, MakeTaskFrom make) {
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
  config.train.micro_batches = broadcast_value(world, 0, config.train.micro_batches);
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
  progress = broadcast_value(world, 0, progress);
  const TrainingState& states = trainer.state();
  states.pull();
  const ParameterLayout& layout = states.layout();
  for (const std::string& state : states.names()) {
    // What all stages of a pipeline have was drawn by each from the seed, or comes from a file.
    if (states.is_divided(state) || stages_of(layout)) continue;
    const int64_t count = state == state::kParameters ? layout.stored_count() : layout.trained_count();
    if (!layout.division()) {
      broadcast(world, 0, std::span(states.flat(state), static_cast<size_t>(count)));
      continue;
    }
    // What tensor ranks divide was drawn by each from the seed, or comes from a file (load_divided_states).
    for (const ParameterSlot& slot : layout.parameters())
      if (slot.offset < count && !layout.sharding_of(slot))
        broadcast(
            world, 0, std::span(states.flat(state) + slot.offset, static_cast<size_t>(slot.spec.shape.elements())));
  }
  trainer.set_loss_scale(broadcast_value(world, 0, trainer.loss_scale()));
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
    return fmt::format("{} {}, {}, {}{}{}", threads, threads == 1 ? "thread" : "threads", current_isa(),
        cpu_products_text(train.precision), stores_bf16 ? " products and activations, fp32 weights and sums" : "",
        attention(cpu_products_text(train.attention_precision)));
  const std::string precision = train.precision == "bf16"   ? "bf16 products and activations, fp32 weights and sums"
                                : train.precision == "tf32" ? "tf32 products, the rest fp32"
                                                            : "strict fp32";
  return device.info().name + ", " + precision + attention(train.attention_precision);
}

double TaskEvaluation::metric(const std::string& name) const {
  for (const auto& [key, value] : metrics)
    if (key == name) return value;
  fail_internal("this task has no metric ", name);
}

Precision precision_of(const std::string& name) {
  return name == "int8" ? Precision::kBf16 : enum_value<Precision>(name).value_or(Precision::kF32);
}

std::vector<ParameterGroup> parameter_groups(const Config& config) {
  std::vector<ParameterGroup> groups;
  if (!config.train.freeze.empty()) groups.push_back({.patterns = split_names(config.train.freeze), .frozen = true});
  for (const GroupConfig& group : config.train.groups) {
    ParameterGroup& g = groups.emplace_back();
    g.patterns = group.parameters, g.frozen = group.frozen, g.storage = storage_of(group.storage);
    g.rate_factor = group.learning_rate_factor, g.weight_decay = group.weight_decay;
    if (group.optimizer) {
      g.optimizer = trainer_options(config, true).optimizer;
      set_kind(*g.optimizer, *group.optimizer, config.train.momentum);
    }
  }
  if (config.lora.rank > 0) {
    groups.push_back({.patterns = {"*.lora_A.*", "*.lora_B.*"}});
    const std::span<const std::string_view> heads = task_row(config).heads;
    if (!heads.empty()) groups.push_back({.patterns = {heads.begin(), heads.end()}});
    groups.push_back({.patterns = {"*"}, .frozen = true, .storage = storage_of(config.lora.base_storage)});
  }
  return groups;
}

TrainerOptions trainer_options(const Config& config, bool training, bool verify_plans) {
  const TrainConfig& c = config.train;
  TrainerOptions options;
  OptimizerAttrs& o = options.optimizer;
  o.beta1 = c.beta1, o.beta2 = c.beta2, o.epsilon = c.epsilon;
  o.weight_decay = c.weight_decay, o.clip_norm = c.clip_norm, o.ema_decay = c.ema_decay;
  set_kind(o, c.optimizer, c.momentum);
  options.accumulate_steps = c.accumulate_steps;
  const RankLayout division = training ? parallel_layout(c.parallel, config.process.ranks) : RankLayout{};
  const int of_model = division.ranks_of_model();  // distributed/comm/tensor_group.h has their order
  options.tensor = {config.process.rank % division.tensor, division.tensor};
  options.pipeline = {config.process.rank / division.tensor % division.pipeline, division.pipeline, division.interleave,
      division.splits_encoder};
  options.shards = {
      std::max<int64_t>(c.data_shards, 1), config.process.rank / of_model, config.process.ranks / of_model};
  options.divide_moments = c.zero > 0, options.divide_gradients = c.zero > 1;
  options.threads = c.threads > 0 ? static_cast<int>(c.threads) : threads_of_rank();
  options.seed = static_cast<uint64_t>(c.seed);
  options.training = training, options.verify_plans = verify_plans;
  options.recompute = enum_value<RecomputeMode>(c.recompute).value_or(RecomputeMode::kAuto);
  options.memory = parse_byte_size(c.memory).value_or(0);
  options.passes.precision = precision_of(c.precision);
  if (c.precision == "fp16") options.loss_scale = {c.loss_scale, c.loss_scale_steps};
  if (c.attention_precision != "same") options.passes.attention_precision = precision_of(c.attention_precision);
  options.passes.int8 = c.precision == "int8";
  if (options.passes.precision == Precision::kBf16 && c.storage == "auto") options.passes.storage_type = DType::kBF16;
  return options;
}

Schedule schedule_of(const Config& whole) {
  const TrainConfig& config = whole.train;
  Schedule schedule;
  schedule.kind = enum_value<Schedule::Kind>(config.schedule).value_or(Schedule::Kind::kConstant);
  schedule.peak = peak_learning_rate(whole), schedule.final = config.final_learning_rate;
  schedule.warmup_steps = config.warmup_steps;
  return schedule;
}

int64_t last_step(const TrainConfig& config, int64_t batches) {
  if (config.max_epochs == 0 || batches == 0) return config.max_steps;
  // With one shard an epoch's last step may be short; with several it continues into the next epoch.
  const auto per_step = static_cast<double>(
      config.accumulate_steps * std::max<int64_t>(config.micro_batches, 1) * std::max<int64_t>(config.data_shards, 1));
  const auto epochs = static_cast<double>(config.max_epochs), count = static_cast<double>(batches);
  const double steps =
      config.data_shards > 1 ? std::ceil(epochs * count / per_step) : epochs * std::ceil(count / per_step);
  return steps < static_cast<double>(config.max_steps) ? static_cast<int64_t>(steps) : config.max_steps;
}
}  // namespace linnet
