#include <algorithm>
#include <cmath>
#include "api/cpp/helpers.h"
#include "api/cpp/learner_state.h"
#include "base/fail.h"
#include "base/numbers.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "engine/exec/backend.h"
#include "formats/weight_files.h"
#include "training/trainer/checkpoint.h"

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
  if (const auto precision = enum_value<Precision>(name)) return *precision;
  if (name == "int8") return Precision::kBf16;  // of all but the products in int8
  fail_user("unknown precision \"", name, "\"; there are fp32, tf32, bf16, fp16 and int8");
}

constexpr const char* kSeed = "learner.seed";
constexpr const char* kAccumulate = "learner.accumulate";
constexpr const char* kOptimizer = "learner.optimizer";
constexpr const char* kGroups = "learner.groups";
// A file's filter layout.
constexpr const char *kFilters = "filters", *kChannelsLast = "channels_last";

// The groups as text, on which saved moments depend.
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

// What further steps depend on besides weights and moments.
Metadata facts_of(const LearnerOptions& options) {
  return {{kSeed, std::to_string(options.seed)}, {kAccumulate, std::to_string(options.accumulate)},
      {kOptimizer, Attrs(attrs_of(options.optimizer)).text()}, {kGroups, groups_text(options)}};
}

std::string join(const std::vector<std::string>& names) {
  constexpr size_t kMost = 5;
  const std::string text = joined(std::span(names).first(std::min(names.size(), kMost)));
  return names.size() > kMost ? text + " and " + std::to_string(names.size() - kMost) + " more" : text;
}

void check_strict(const std::string& path, const LoadReport& report) {
  if (!report.fresh.empty()) fail_user(path, ": the file lacks ", join(report.fresh));
  if (!report.different.empty()) fail_user(path, ": of another shape than the model's: ", join(report.different));
  if (!report.unused.empty()) fail_user(path, ": the model has no parameter for ", join(report.unused));
}

void check_key(const std::string& path, const Metadata& metadata, const std::string& key, const std::string& expected) {
  const auto found = metadata.find(key);
  if (found == metadata.end()) fail_user(path, ": not a state that save_state() wrote");
  if (found->second != expected)
    fail_user(path, ": the state was saved with ", key.substr(key.find('.') + 1), " ",
        found->second.empty() ? "of default settings" : found->second, ", the learner has ",
        expected.empty() ? "default settings" : expected);
}

// Which axes of a file's tensors are transposed for the parameter.
enum class Turn { kNone, kMatrix, kFilters };

Shape turned(const Shape& shape, Turn turn) {
  if (turn == Turn::kMatrix && shape.rank() == 2) return {shape[1], shape[0]};
  if (turn == Turn::kFilters && shape.rank() == 4) return {shape[0], shape[2], shape[3], shape[1]};
  if (turn == Turn::kFilters && shape.rank() == 3) return {shape[0], shape[2], shape[1]};
  return shape;
}

struct Source {
  const ParameterSlot* slot;
  std::vector<const TensorEntry*> entries;
  Turn turn = Turn::kNone;
  std::optional<int64_t> first_row = {};

  // Whether the transposed entries match the parameter.
  bool fits(Turn by) const {
    const Shape& wanted = slot->spec.shape;
    int64_t rows = 0;
    for (const TensorEntry* entry : entries) {
      Shape shape = turned(entry->type.shape, by);
      if (!is_float(entry->dtype) || shape.rank() != wanted.rank()) return false;
      if (shape.rank() == 0) return entries.size() == 1;
      rows += shape[0];
      shape.set(0, wanted[0]);
      if (shape != wanted) return false;
    }
    return first_row ? *first_row >= 0 && *first_row + wanted[0] <= rows : rows == wanted[0];
  }

  void read(std::span<float> values) const {
    std::vector<float> rows, all;
    for (const TensorEntry* entry : entries) {
      rows.resize(entry->type.shape.elements());
      read_floats(entry->dtype, entry->data, static_cast<int64_t>(rows.size()), rows.data());
      const size_t before = all.size();
      all.resize(before + rows.size());
      turn_elements(entry->type.shape, rows.data(), all.data() + before);
    }
    const size_t row = values.size() / static_cast<size_t>(std::max<int64_t>(1, slot->spec.shape.elements(0, 1)));
    std::copy_n(all.begin() + row * first_row.value_or(0), values.size(), values.begin());
  }

 private:
  // Transposes matrices [in, out] or each output's filters [in, height * width]; other tensors stay as they are.
  void turn_elements(const Shape& shape, const float* from, float* to) const {
    const int rank = shape.rank();
    if (turn == Turn::kMatrix && rank == 2) return transpose_each(1, shape[0], shape[1], from, to);
    if (turn == Turn::kFilters && rank > 2)
      return transpose_each(shape[0], shape[1], shape.elements(2, rank), from, to);
    std::copy_n(from, shape.elements(), to);
  }
};

// Replaces '*' in `text` by what '*' of `pattern` matches in `name`.
std::string substituted(const std::string& name, const std::string& pattern, const std::string& text) {
  const size_t star = pattern.find('*'), to = text.find('*');
  if (star == pattern.npos || to == text.npos) return text;
  if (pattern.find('*', star + 1) != pattern.npos || text.find('*', to + 1) != text.npos)
    fail_user("the rule \"", pattern, "\" has more than one '*', or its tensor \"", text, "\" has");
  const size_t rest = pattern.size() - star - 1;
  return text.substr(0, to) + name.substr(star, name.size() - star - rest) + text.substr(to + 1);
}

Source source_of(const TensorFile& file, const ParameterSlot& slot, const LoadOptions& options) {
  const std::string& name = slot.spec.name;
  Source source{&slot, {}};
  const auto take = [&](const std::string& tensor) {
    if (const TensorEntry* entry = file.find(tensor)) source.entries.push_back(entry);
  };
  for (const LoadRule& rule : options.rules) {
    if (!matches(name, rule.parameter)) continue;
    for (const std::string& tensor : rule.tensors) take(substituted(name, rule.parameter, tensor));
    if (source.entries.size() != rule.tensors.size()) source.entries.clear();
    source.turn = rule.transpose ? Turn::kMatrix : Turn::kNone;
    source.first_row = rule.first_row;
    return source;
  }
  if (name.starts_with(options.prefix)) take(name.substr(options.prefix.size()));
  return source;
}

// Filters with equal size and channels have the same shape in both orders.
void choose_filters(Source& source, const TensorFile& file, FilterLayout layout) {
  if (source.slot->spec.shape.rank() != 3 && source.slot->spec.shape.rank() != 4) return;
  const auto said = file.metadata().find(kFilters);
  if (layout == FilterLayout::automatic && said != file.metadata().end())
    layout = said->second == kChannelsLast ? FilterLayout::channels_last : FilterLayout::channels_first;
  const bool last = source.fits(Turn::kNone), first = source.fits(Turn::kFilters);
  const Shape& shape = source.slot->spec.shape;
  const std::span<const int64_t> sizes = shape.sizes().subspan(1);
  const bool is_same = shape.elements(1, shape.rank()) == *std::ranges::max_element(sizes);
  if (layout == FilterLayout::automatic && last && first && !is_same)
    fail_user(file.path(), ": \"", source.slot->spec.name, "\" of ", shape,
        " may have its channels first or last: set LoadOptions::filters");
  if (layout == FilterLayout::channels_first || (layout == FilterLayout::automatic && first && !last))
    source.turn = Turn::kFilters;
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
      .threads = threads_or_all(options.threads),
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

void Learner::save(const std::string& path, const std::string& type) const {
  const Busy busy(state().weights().busy, "a learner");
  const ParameterLayout& layout = state().weights().layout;
  const ParameterValues values = state().evaluated_values();
  const Metadata metadata{{"format", "pt"}, {kFilters, kChannelsLast}};
  if (type == "fp32") return save_model(path, layout, values, metadata);
  if (type != "bf16" && type != "fp16")
    fail_user("weights cannot be saved as \"", type, "\"; there are fp32, bf16 and fp16");
  const FileDType dtype = type == "bf16" ? FileDType::kBF16 : FileDType::kF16;
  std::vector<float> unpacked;
  std::pair<const ParameterSlot*, const float*> held;  // being written, piece by piece
  std::vector<WeightSource> weights;
  for (const ParameterSlot& slot : layout.parameters())
    weights.push_back(
        {slot.spec.name, dtype, slot.spec.shape, [&, dtype](int64_t first, int64_t count, std::byte* out) {
           if (held.first != &slot) held = {&slot, values.of(slot, unpacked)};
           write_floats(dtype, held.second + first, count, out);
         }});
  save_weight_file(path, weights, metadata);
}

LoadReport Learner::load(const std::string& path, const LoadOptions& options) {
  State& s = state().weights();
  const Busy busy(s.busy, "a learner");
  const std::unique_ptr<const TensorFile> opened = open_tensor_file(path);
  const TensorFile& file = *opened;
  if (const auto* checked = dynamic_cast<const SafetensorsFile*>(&file)) checked->check_data();
  LoadReport report;
  std::set<const std::byte*> used;  // PyTorch saves tied weights by both names
  std::vector<Source> taken;
  for (const ParameterSlot& slot : s.layout.parameters()) {
    Source source = source_of(file, slot, options);
    for (const TensorEntry* entry : source.entries) used.insert(entry->data);
    if (source.entries.empty()) {
      report.fresh.push_back(slot.spec.name);
      continue;
    }
    if (source.turn == Turn::kNone) choose_filters(source, file, options.filters);
    if (!source.fits(source.turn)) {
      report.different.push_back(slot.spec.name);
      continue;
    }
    report.taken.push_back(slot.spec.name);
    if (source.turn != Turn::kNone) report.turned.push_back(slot.spec.name);
    taken.push_back(std::move(source));
  }
  for (const TensorEntry& entry : file.entries())
    if (!used.contains(entry.data) && !entry.name.ends_with("num_batches_tracked"))  // PyTorch's batch norms count
      report.unused.push_back(entry.name);
  if (options.strict) check_strict(path, report);
  TrainingState& trained = s.trainer->state();
  trained.pull();
  for (const Source& source : taken)
    trained.set_parameter(*source.slot, [&](std::span<float> values) { source.read(values); });
  trained.reset_ema();
  return report;
}

void Learner::save_state(const std::string& path, const LoaderPosition& position) const {
  State& s = state();
  const Busy busy(s.busy, "a learner");
  save_training_state(
      path, *s.trainer, {.step = s.steps, .epoch = position.epoch, .batch = position.batch}, facts_of(s.options));
}

LoaderPosition Learner::load_state(const std::string& path) {
  State& s = state();
  const Busy busy(s.busy, "a learner");
  {
    const SafetensorsFile file(path);
    for (const auto& [key, expected] : facts_of(s.options)) check_key(path, file.metadata(), key, expected);
  }
  const Progress progress = load_training_state(path, *s.trainer);
  s.steps = progress.step;
  s.last_trained = nullptr;
  return {progress.epoch, progress.batch};
}
}  // namespace linnet
