#include "training/run/trainer_options.h"
#include <algorithm>
#include <cmath>
#include "config/hints.h"
#include "distributed/comm/world.h"

namespace linnet {
Precision precision_of(const std::string& name) {
  for (const Precision precision : {Precision::kTf32, Precision::kBf16, Precision::kF16})
    if (name == precision_name(precision)) return precision;
  return name == "int8" ? Precision::kBf16 : Precision::kF32;
}

RecomputeMode recompute_mode(const std::string& name) {
  if (name == "none") return RecomputeMode::kNone;
  if (name == "attention") return RecomputeMode::kAttention;
  return name == "block" ? RecomputeMode::kBlock : RecomputeMode::kAuto;
}

namespace {
void set_kind(OptimizerAttrs& attrs, const std::string& name, double sgd_momentum) {
  using Kind = OptimizerAttrs::Kind;
  constexpr double kMuonMomentum = 0.95;
  attrs.kind = name == "sgd"         ? Kind::kSgd
               : name == "lion"      ? Kind::kLion
               : name == "adamw8bit" ? Kind::kAdam8bit
               : name == "muon"      ? Kind::kMuon
               : name == "adafactor" ? Kind::kAdafactor
                                     : Kind::kAdam;
  attrs.decoupled = name == "adamw" || name == "adamw8bit";
  attrs.momentum = attrs.kind == Kind::kMuon ? kMuonMomentum : sgd_momentum;
}

std::optional<WeightFormat> storage_of(const std::string& name) {
  if (name == "bf16") return WeightFormat::kBf16;
  if (name == "int8") return WeightFormat::kInt8Blocks;
  if (name == "int4") return WeightFormat::kInt4Blocks;
  return {};
}
}  // namespace

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

TrainerOptions trainer_options(const Config& config, bool training) {
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
  options.training = training;
  options.recompute = recompute_mode(c.recompute);
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
  using Kind = Schedule::Kind;
  schedule.kind = config.schedule == "linear"         ? Kind::kLinear
                  : config.schedule == "cosine"       ? Kind::kCosine
                  : config.schedule == "inverse_sqrt" ? Kind::kInverseSqrt
                                                      : Kind::kConstant;
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
