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

// Settings that an optimizer lacks keep their defaults.
OptimizerAttrs attrs_of(const Optimizer& optimizer) {
  using Kind = OptimizerAttrs::Kind;
  constexpr Kind kKinds[] = {Kind::kSgd, Kind::kAdam, Kind::kAdam, Kind::kLion, Kind::kAdam8bit, Kind::kMuon,
      Kind::kAdafactor};  // in the order of Optimizer
  const bool adds_decay_to_gradient = std::holds_alternative<Sgd>(optimizer) || std::holds_alternative<Adam>(optimizer);
  OptimizerAttrs attrs{.kind = kKinds[optimizer.index()], .decoupled = !adds_decay_to_gradient};
  const auto take = [](const char* name, double& into, double value, double most) {
    check_number(name, value, most);
    into = value;
  };
  std::visit(
      [&](const auto& given) {
        if constexpr (requires { given.momentum; }) take("momentum", attrs.momentum, given.momentum, 1);
        if constexpr (requires { given.beta1; }) take("beta1", attrs.beta1, given.beta1, 1);
        if constexpr (requires { given.beta2; }) take("beta2", attrs.beta2, given.beta2, 1);
        if constexpr (requires { given.epsilon; }) take("epsilon", attrs.epsilon, given.epsilon, INFINITY);
        if constexpr (requires { given.decay_power; }) take("decay_power", attrs.decay_power, given.decay_power, 1);
        take("weight_decay", attrs.weight_decay, given.weight_decay, INFINITY);
      },
      optimizer);
  return attrs;
}

Precision precision_of(const std::string& name) {
  const auto names = enum_names(Precision{});
  for (size_t i = 0; i < names.size(); ++i)
    if (name == names[i]) return static_cast<Precision>(i);
  if (name == "int8") return Precision::kBf16;  // of all but the products in int8
  fail_user("unknown precision \"", name, "\"; there are fp32, tf32, bf16, fp16 and int8");
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
    fail_user("unknown storage \"", options.storage, "\"; there are auto and fp32");
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
