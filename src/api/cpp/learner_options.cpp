#include <cmath>
#include "api/cpp/learner_state.h"
#include "base/fail.h"
#include "base/numbers.h"
#include "base/thread_pool.h"
#include "engine/exec/backend.h"

namespace linnet {
namespace {

constexpr int kMostThreads = 4096;

void check_number(const char* name, double value, double most) {
  if (!(value >= 0 && value < most))
    fail_user("the option ", name, " is ", value, "; it must be at least 0",
              std::isfinite(most) ? " and below " + std::to_string(static_cast<int>(most)) : " and finite");
}

OptimizerAttrs attrs_of(const Optimizer& optimizer) {
  constexpr double kAny = INFINITY;
  if (const auto* sgd = std::get_if<Sgd>(&optimizer)) {
    check_number("momentum", sgd->momentum, 1);
    check_number("weight_decay", sgd->weight_decay, kAny);
    return {.kind = OptimizerAttrs::Kind::kSgd, .momentum = sgd->momentum, .weight_decay = sgd->weight_decay};
  }
  if (const auto* lion = std::get_if<Lion>(&optimizer)) {
    check_number("beta1", lion->beta1, 1);
    check_number("beta2", lion->beta2, 1);
    check_number("weight_decay", lion->weight_decay, kAny);
    return {.kind = OptimizerAttrs::Kind::kLion,
            .beta1 = lion->beta1,
            .beta2 = lion->beta2,
            .weight_decay = lion->weight_decay,
            .decoupled = true};
  }
  if (const auto* adafactor = std::get_if<Adafactor>(&optimizer)) {
    check_number("decay_power", adafactor->decay_power, 1);
    check_number("weight_decay", adafactor->weight_decay, kAny);
    return {.kind = OptimizerAttrs::Kind::kAdafactor,
            .weight_decay = adafactor->weight_decay,
            .decoupled = true,
            .decay_power = adafactor->decay_power};
  }
  const auto adam_attrs = [&](const auto& adam, bool decoupled) {
    check_number("beta1", adam.beta1, 1);
    check_number("beta2", adam.beta2, 1);
    check_number("epsilon", adam.epsilon, kAny);
    check_number("weight_decay", adam.weight_decay, kAny);
    return OptimizerAttrs{.beta1 = adam.beta1,
                          .beta2 = adam.beta2,
                          .epsilon = adam.epsilon,
                          .weight_decay = adam.weight_decay,
                          .decoupled = decoupled};
  };
  if (const auto* adam = std::get_if<Adam>(&optimizer)) return adam_attrs(*adam, false);
  if (const auto* adam8bit = std::get_if<AdamW8bit>(&optimizer)) {
    OptimizerAttrs attrs = adam_attrs(*adam8bit, true);
    attrs.kind = OptimizerAttrs::Kind::kAdam8bit;
    return attrs;
  }
  if (const auto* muon = std::get_if<Muon>(&optimizer)) {
    check_number("momentum", muon->momentum, 1);
    OptimizerAttrs attrs = adam_attrs(*muon, true);
    attrs.kind = OptimizerAttrs::Kind::kMuon, attrs.momentum = muon->momentum;
    return attrs;
  }
  return adam_attrs(std::get<AdamW>(optimizer), true);
}

Precision precision_of(const std::string& name) {
  const auto names = enum_names(Precision{});
  for (size_t i = 0; i < names.size(); ++i)
    if (name == names[i]) return static_cast<Precision>(i);
  if (name == "int8") return Precision::kBf16;  // of all but the products in int8
  fail_user("unknown precision \"" + name + "\"; there are fp32, tf32, bf16, fp16 and int8");
}

}  // namespace

TrainerOptions trainer_options(const LearnerOptions& options, const Store* weights) {
  if (options.accumulate < 1) fail_user("the option accumulate is ", options.accumulate, "; it must be at least 1");
  if (options.threads < 0 || options.threads > kMostThreads)
    fail_user("the option threads is ", options.threads, "; it must be 0 to ", kMostThreads,
              ", 0 being as many as the process may use");
  check_number("clip_norm", options.clip_norm, INFINITY);
  check_number("average_decay", options.average_decay, 1);
  TrainerOptions trainer{.optimizer = attrs_of(options.optimizer),
                         .accumulate_steps = options.accumulate,
                         .threads = options.threads > 0 ? options.threads : available_threads(),
                         .seed = options.seed,
                         .memory = options.memory,
                         .training = options.training,
                         .keep_graphs = true,
                         .owner = weights,
                         .backend = &open_backend(options.device)};
  trainer.optimizer.clip_norm = options.clip_norm;
  trainer.optimizer.ema_decay = options.average_decay;
  trainer.passes.precision = precision_of(options.precision), trainer.passes.int8 = options.precision == "int8";
  if (trainer.passes.int8 && options.device != "cpu")
    fail_user("the precision int8 is the CPU's; a GPU has bf16 and tf32");
  if (options.storage != "auto" && options.storage != "fp32")
    fail_user("unknown storage \"" + options.storage + "\"; there are auto and fp32");
  if (trainer.passes.precision == Precision::kBf16 && options.storage == "auto")
    trainer.passes.storage_type = DType::kBF16;
  if (trainer.passes.precision == Precision::kF16) trainer.loss_scale.initial = 65536;
  return trainer;
}

std::vector<ParameterGroup> parameter_groups(const LearnerOptions& options) {
  std::vector<ParameterGroup> groups;
  for (const TrainingGroup& group : options.groups) {
    if (group.patterns.empty()) fail_user("a group of parameters has no patterns");
    check_number("rate_factor", group.rate_factor, INFINITY);
    if (group.weight_decay) check_number("weight_decay", *group.weight_decay, INFINITY);
    ParameterGroup& made = groups.emplace_back(ParameterGroup{.patterns = group.patterns,
                                                              .frozen = group.frozen,
                                                              .rate_factor = group.rate_factor,
                                                              .weight_decay = group.weight_decay});
    if (group.optimizer) made.optimizer = attrs_of(*group.optimizer);
    if (group.storage == FrozenStorage::bf16) made.storage = WeightFormat::kBf16;
    if (group.storage == FrozenStorage::int8) made.storage = WeightFormat::kInt8Blocks;
    if (group.storage == FrozenStorage::int4) made.storage = WeightFormat::kInt4Blocks;
  }
  return groups;
}

std::string optimizer_text(const LearnerOptions& options) { return Attrs(attrs_of(options.optimizer)).text(); }

std::string groups_text(const LearnerOptions& options) {
  std::string text;
  for (const TrainingGroup& group : options.groups) {
    text += text.empty() ? "" : "; ";
    for (const std::string& pattern : group.patterns) text += pattern + " ";
    if (group.frozen) text += "frozen ";
    text += "storage " + std::to_string(static_cast<int>(group.storage)) + " rate " + shortest(group.rate_factor);
    if (group.weight_decay) text += " decay " + shortest(*group.weight_decay);
    if (group.optimizer) text += " " + Attrs(attrs_of(*group.optimizer)).text();
  }
  return text.empty() ? "none" : text;
}

}  // namespace linnet
