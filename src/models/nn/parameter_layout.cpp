#include "models/nn/parameter_layout.h"
#include <tuple>
#include "base/fail.h"
#include "base/functions.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "engine/passes/tensor_parallel.h"
#include "models/nn/pipeline_parallel.h"

namespace linnet {
namespace {
// The first group with a pattern for the name; -1: none.
int group_of(const std::string& name, std::span<const ParameterGroup> groups) {
  for (size_t i = 0; i < groups.size(); ++i)
    if (matches_any(name, groups[i].patterns)) return static_cast<int>(i);
  return -1;
}

// Empty: in fp32, as all but matrices are.
std::optional<PackedShape> storage_in(const ParameterGroup& group, const ParameterSpec& spec) {
  if (!group.storage || spec.shape.rank() != 2) return {};
  // Tables keep 8 bits, as with --quantize int4-weights.
  const bool is_short_table = spec.table && group.storage == WeightFormat::kInt4Blocks;
  const WeightFormat format = is_short_table ? WeightFormat::kInt8Blocks : *group.storage;
  const PackedShape shape{format, spec.shape[0], spec.shape[1]};
  if (shape.rows == 0 || shape.columns == 0 || shape.columns > PackedShape::kMostColumns) return {};
  return shape;
}

void check_groups(std::span<const ParameterGroup> groups) {
  for (const ParameterGroup& group : groups) {
    if (group.storage && group.storage != WeightFormat::kBf16 && !group.frozen)
      fail_user("only frozen parameters can be stored in ", enum_name(*group.storage), ": \"", group.patterns.front(),
          "\" is trained, in fp32 or bf16");
    if (group.storage == WeightFormat::kInt8) fail_user("frozen parameters are stored in blocks of int8");
  }
}

// The names, with a * for each number, each once: "bert.words.weight, bert.layers.*.attention.qkv.weight, ...".
std::string name_kinds(const std::vector<ParameterSpec>& specs) {
  constexpr size_t kMost = 12;
  std::vector<std::string> kinds;
  for (const ParameterSpec& spec : specs) {
    std::string kind;
    for (const char c : spec.name)
      if (c < '0' || c > '9') kind += c;
      else if (!kind.ends_with('*')) kind += '*';
    if (spec.trainable && !contains(kinds, kind)) kinds.push_back(kind);
  }
  return joined(std::span(kinds).first(std::min(kinds.size(), kMost))) + (kinds.size() > kMost ? ", ..." : "");
}

// Checks that names differ and that all elements together can be counted.
void check_specs(const std::vector<ParameterSpec>& specs) {
  if (const ParameterSpec* spec = find_beyond(specs, int64_t{1} << 48))
    fail_user(
        "parameter \"", spec->name, "\" of shape ", spec->shape.text(), " makes the model larger than any memory");
  std::set<std::string_view> names;
  for (const ParameterSpec& spec : specs)
    if (!names.insert(spec.name).second) fail_user("the model has two parameters of the name \"", spec.name, "\"");
}

void check_patterns(const std::vector<ParameterSpec>& specs, const std::vector<std::string>& patterns) {
  for (const std::string& pattern : patterns) {
    const auto matched = [&](const ParameterSpec& spec) { return spec.trainable && matches(spec.name, pattern); };
    if (std::none_of(specs.begin(), specs.end(), matched))
      fail_user("no parameter of the model is called \"", pattern, "\"",
          pattern.find(',') == pattern.npos ? "" : " (several patterns are a list: [\"a\", \"b\"])", "; there are ",
          name_kinds(specs));
  }
}

void initialize_all(std::span<const ParameterSlot> slots, uint64_t seed, float* buffer, ThreadPool& pool) {
  pool.run(static_cast<int64_t>(slots.size()),
      [&](int64_t i, int) { initialize(slots[i].spec, seed, buffer + slots[i].offset); });
}

void add_slot(std::vector<ParameterSlot>& slots, int64_t& count, const ParameterSpec& spec) {
  slots.push_back({spec, count});
  count += spec.shape.elements();
}
}  // namespace

const ParameterSpec* find_beyond(const std::vector<ParameterSpec>& specs, int64_t most) {
  for (const ParameterSpec& spec : specs) {
    int64_t count = 1;
    for (const int64_t size : spec.shape.sizes())
      if (__builtin_mul_overflow(count, size, &count)) return &spec;
    if (count > most) return &spec;
    most -= count;
  }
  return nullptr;
}

void initialize(const ParameterSpec& spec, uint64_t seed, float* values) {
  initialize(spec.initializer, spec.name, seed, spec.shape, {values, static_cast<size_t>(spec.shape.elements())});
}

ParameterLayout::ParameterLayout(const Module& model, std::span<const ParameterGroup> groups,
    const WeightQuantization& quantization, std::shared_ptr<const ModelDivision> division, const ParameterLayout* owner)
    : observer_(quantization.observer), division_(std::move(division)), owner_(owner) {
  std::vector<ParameterSpec> specs = model.parameters();
  check_specs(specs);
  if (owner_) take_offsets(specs);
  if (division_) take_parts(specs);
  check_groups(groups);
  for (const ParameterGroup& group : groups) check_patterns(specs, group.patterns);
  check_patterns(specs, quantization.keep);
  const ModelStages* stages = stages_of(*this);
  if (stages) std::erase_if(specs, [&](const ParameterSpec& spec) { return !stages->has(spec.name); });
  std::vector<std::vector<ParameterSpec>> members(groups.size() + 1);  // those without a group first
  std::vector<QuantizedSpec> quantized;
  for (const ParameterSpec& spec : specs) {
    if (!spec.trainable) continue;
    const int group = group_of(spec.name, groups);
    std::optional<PackedShape> shape = quantization.choose(spec);
    const ParameterGroup* of = group >= 0 ? &groups[group] : nullptr;
    const bool is_stored = !shape && of;
    if (is_stored) shape = storage_in(*of, spec);
    if (shape) quantized.push_back({spec, *shape, is_stored && !of->frozen ? of : nullptr});
    else members[group + 1].push_back(spec);
  }
  add_range(members[0], {});
  for (size_t i = 0; i < groups.size(); ++i)
    if (!groups[i].frozen) add_range(members[i + 1], groups[i]);
  trained_slots_ = parameters_.size();
  trained_count_ = parameter_count_;
  for (size_t i = 0; i < groups.size(); ++i)
    if (groups[i].frozen)
      for (const bool decay : {true, false})  // as trained ones, so that a learner that shares them has long runs
        for (const ParameterSpec& spec : members[i + 1])
          if (spec.weight_decay == decay) add_slot(parameters_, parameter_count_, spec);
  const bool trains_quantized = std::ranges::any_of(quantized, [](const auto& each) { return each.trained; });
  if (trained_slots_ == 0 && trains_quantized)
    fail_user("all that is trained is stored in bf16: leave a parameter in fp32");
  if (stages && trained_slots_ == 0)
    fail_user("rank ", stages->rank.rank, " of ", stages->rank.ranks,
        " of the pipeline has nothing to train, as all its parameters are frozen: use fewer stages");
  if (owner_ && !quantized.empty()) fail_user("shared weights are stored in fp32: leave the storage of groups out");
  if (trained_slots_ == 0 && !(parameters_.empty() && quantized.empty()) && !quantization.any())
    fail_user("all parameters are frozen: nothing is left to train");
  buffer_slots_ = parameters_.size();
  buffer_offset_ = parameter_count_;
  for (const ParameterSpec& spec : specs) {
    if (spec.buffer) add_slot(parameters_, parameter_count_, spec);
    if (!spec.trainable && !spec.buffer) add_slot(constants_, constant_count_, spec);
  }
  stored_slots_ = parameters_.size();
  stored_count_ = parameter_count_;
  for (const QuantizedSpec& each : quantized) add_quantized(each);
  for (QuantizedSlot& slot : quantized_)
    if (slot.shape.format == WeightFormat::kInt8)
      slot.input_scale = find_or(quantization.input_scales, slot.slot.spec.name, 0);
}

void ParameterLayout::add_quantized(const QuantizedSpec& quantized) {
  const auto& [spec, shape, trained] = quantized;
  const int64_t offset = parameter_count_, count = spec.shape.elements();
  add_slot(parameters_, parameter_count_, spec);
  if (trained)
    packed_ranges_.push_back({.range = {.offset = offset,
                                  .count = count,
                                  .decay_count = spec.weight_decay ? count : 0,
                                  .group = *trained,
                                  .suffix = "." + spec.name},
        .quantized = quantized_.size()});
  quantized_.push_back({parameters_.back(), shape, quantized_bytes_});
  quantized_bytes_ += shape.bytes();
}

const QuantizedSlot& ParameterLayout::quantized_slot(const ParameterSlot& slot) const {
  const auto found = std::ranges::lower_bound(
      quantized_, slot.offset, {}, [](const QuantizedSlot& quantized) { return quantized.slot.offset; });
  if (found == quantized_.end() || found->slot.offset != slot.offset)
    fail_internal("parameter ", slot.spec.name, " is not quantized");
  return *found;
}

size_t ParameterLayout::slots_in(const TrainedRange& range) const {
  return static_cast<size_t>(std::count_if(parameters_.begin(), parameters_.end(), [&](const ParameterSlot& slot) {
    return slot.offset >= range.offset && slot.offset < range.offset + range.count;
  }));
}

void ParameterLayout::take_parts(std::vector<ParameterSpec>& specs) const {
  for (ParameterSpec& spec : specs)
    if (const Sharding* sharding = find_value(division_->parameters, spec.name))
      spec.shape = local_shape(spec.shape, *sharding, division_->rank);
}

const Sharding* ParameterLayout::sharding_of(const ParameterSlot& slot) const {
  return division_ ? find_value(division_->parameters, slot.spec.name) : nullptr;
}

Shape ParameterLayout::whole_shape(const ParameterSlot& slot) const {
  Shape shape = slot.spec.shape;
  if (const Sharding* sharding = sharding_of(slot)) shape.set(sharding->axis, sum_of<int64_t>(sharding->parts));
  return shape;
}

int64_t ParameterLayout::whole_parameter_count() const {
  return sum_of<int64_t>(
      of_all_stages(*this).parameters(), [&](const ParameterSlot& slot) { return whole_shape(slot).elements(); });
}

// On a pipeline rank, parameters that earlier ranks have too, and those of each stage, are separate ranges.
void ParameterLayout::add_range(const std::vector<ParameterSpec>& specs, const ParameterGroup& group) {
  if (owner_) return add_runs(specs, group);
  if (!division_) return add_range(specs, group, false);
  const ModelStages* stages = stages_of(*this);
  std::map<std::tuple<bool, bool, std::vector<int>>, std::vector<ParameterSpec>> parts;
  for (const ParameterSpec& spec : specs)
    parts[{!division_->parameters.contains(spec.name), stages && !stages->owns(spec.name),
              stages ? stages->chunks_with(spec.name) : std::vector<int>{}}]
        .push_back(spec);
  for (const auto& [kind, some] : parts) add_range(some, group, !std::get<0>(kind));
}

void ParameterLayout::take_offsets(const std::vector<ParameterSpec>& specs) {
  if (!owner_->quantized().empty()) fail_user("weights that are not stored in fp32 cannot be shared");
  std::map<std::string, Shape> wanted;
  for (const ParameterSpec& spec : specs)
    if (spec.trainable || spec.buffer) wanted[spec.name] = spec.shape;
  for (const ParameterSlot& slot : owner_->parameters()) {
    const auto found = wanted.find(slot.spec.name);
    if (found == wanted.end() || found->second != slot.spec.shape) break;
    owner_offsets_[slot.spec.name] = slot.offset;
  }
  if (owner_offsets_.size() != wanted.size() || wanted.size() != owner_->parameters().size())
    fail_user("weights are shared by learners of one module, and these have different parameters");
}

// Each range is contiguous in the owner's buffer, parameters with weight decay first.
void ParameterLayout::add_runs(std::vector<ParameterSpec> specs, const ParameterGroup& group) {
  std::ranges::sort(specs, {}, [&](const ParameterSpec& spec) { return owner_offsets_.at(spec.name); });
  std::vector<ParameterSpec> run;
  for (const ParameterSpec& spec : specs) {
    const bool follows =
        !run.empty() && (run.back().weight_decay || !spec.weight_decay) &&
        owner_offsets_.at(run.back().name) + run.back().shape.elements() == owner_offsets_.at(spec.name);
    if (!follows) add_range(std::exchange(run, {}), group, false);
    run.push_back(spec);
  }
  add_range(run, group, false);
}

void ParameterLayout::add_range(const std::vector<ParameterSpec>& specs, const ParameterGroup& group, bool is_divided) {
  if (specs.empty()) return;
  TrainedRange range{parameter_count_, 0, 0, group, ranges_.empty() ? "" : "." + std::to_string(ranges_.size())};
  range.is_divided = is_divided;
  for (const bool decay : {true, false}) {
    for (const ParameterSpec& spec : specs)
      if (spec.weight_decay == decay) add_slot(parameters_, parameter_count_, spec);
    if (decay) range.decay_count = parameter_count_ - range.offset;
  }
  range.count = parameter_count_ - range.offset;
  ranges_.push_back(std::move(range));
}

void ParameterLayout::initialize_parameters(uint64_t seed, float* parameters, ThreadPool& pool) const {
  const std::span<const ParameterSlot> slots = std::span(parameters_).first(stored_slots_);
  if (!division_ || division_->parameters.empty()) return initialize_all(slots, seed, parameters, pool);
  // In sequence: a rank has no memory for several whole parameters.
  for (const ParameterSlot& slot : slots) {
    const Sharding* sharding = sharding_of(slot);
    if (!sharding) {
      initialize_all({&slot, 1}, seed, parameters, pool);
      continue;
    }
    const Shape shape = whole_shape(slot);
    std::vector<float> whole(shape.elements());
    initialize(slot.spec.initializer, slot.spec.name, seed, shape, whole);
    for_runs(shape, *sharding, division_->rank, [&](int64_t from, int64_t to, int64_t count) {
      std::copy_n(whole.data() + from, count, parameters + slot.offset + to);
    });
  }
}
void ParameterLayout::initialize_constants(float* constants, ThreadPool& pool) const {
  initialize_all(constants_, 0, constants, pool);
}

// Greedy with one backtrack point: the last '*' and how much of the name it has taken.
bool matches(std::string_view name, std::string_view pattern) {
  size_t n = 0, p = 0, star = pattern.npos, taken = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      taken = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p, ++n;
    } else if (star != pattern.npos) {
      p = star + 1;
      n = ++taken;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

bool matches_any(std::string_view name, const std::vector<std::string>& patterns) {
  return std::ranges::any_of(patterns, [&](const std::string& pattern) { return matches(name, pattern); });
}
}  // namespace linnet
