// Files of a Learner: weights by name, and all that the next steps follow from.
#include <algorithm>
#include <set>

#include "base/error.h"
#include "formats/safetensors.h"
#include "api/cpp/learner_state.h"
#include "training/trainer/checkpoint.h"

namespace linnet {
namespace {

constexpr const char* kSeed = "learner.seed";
constexpr const char* kAccumulate = "learner.accumulate";

std::string join(const std::vector<std::string>& names) {
  constexpr size_t kMost = 5;
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kMost); ++i) text += (i ? ", " : "") + names[i];
  return names.size() > kMost ? text + " and " + std::to_string(names.size() - kMost) + " more" : text;
}

void check_strict(const std::string& path, const LoadReport& report) {
  if (!report.fresh.empty()) fail_user(path + ": the file lacks " + join(report.fresh));
  if (!report.different.empty()) fail_user(path + ": of another shape than the model's: " + join(report.different));
  if (!report.unused.empty()) fail_user(path + ": the model has no parameter for " + join(report.unused));
}

void check_key(const std::string& path, const Metadata& metadata, const std::string& key, const std::string& expected) {
  const auto found = metadata.find(key);
  if (found == metadata.end()) fail_user(path + ": not a state that Learner::save_state() wrote");
  if (found->second != expected)
    fail_user(path + ": the state was saved with " + key.substr(key.find('.') + 1) + " " + found->second +
              ", the learner has " + expected);
}

}  // namespace

void Learner::save(const std::string& path) const {
  const Trainer& trainer = *state_->trainer;
  trainer.pull_states();
  save_model(path, trainer.layout(), trainer.evaluated_values(), {{"format", "pt"}});
}

LoadReport Learner::load(const std::string& path, const LoadOptions& options) {
  State& s = *state_;
  const SafetensorsFile file(path, SafetensorsTypes::kAll);
  file.check_data();
  LoadReport report;
  std::set<std::string> names;
  std::vector<std::pair<const ParameterSlot*, const SafetensorsEntry*>> taken;
  for (const ParameterSlot& slot : s.layout.parameters()) {
    const std::string& name = slot.spec.name;
    names.insert(name);
    const bool in_file = name.starts_with(options.prefix);
    const SafetensorsEntry* entry = in_file ? file.find(name.substr(options.prefix.size())) : nullptr;
    if (!entry) {
      report.fresh.push_back(name);
    } else if (entry->type.shape != slot.spec.shape || !is_float(entry->dtype)) {
      report.different.push_back(name);
    } else {
      report.taken.push_back(name);
      taken.emplace_back(&slot, entry);
    }
  }
  for (const SafetensorsEntry& entry : file.entries())
    if (!names.contains(options.prefix + entry.name)) report.unused.push_back(entry.name);
  if (options.strict) check_strict(path, report);
  s.trainer->pull_states();
  for (const auto& [slot, entry] : taken)
    s.trainer->set_parameter(*slot, [&, entry = entry](std::span<float> values) {
      read_floats(entry->dtype, entry->data, static_cast<int64_t>(values.size()), values.data());
    });
  s.trainer->reset_ema();
  return report;
}

void Learner::save_state(const std::string& path, const LoaderPosition& position) const {
  const State& s = *state_;
  save_training_state(path, *s.trainer, {.step = s.steps, .epoch = position.epoch, .batch = position.batch},
                      {{kSeed, std::to_string(s.options.seed)}, {kAccumulate, std::to_string(s.options.accumulate)}});
}

LoaderPosition Learner::load_state(const std::string& path) {
  State& s = *state_;
  {
    const SafetensorsFile file(path);
    check_key(path, file.metadata(), kSeed, std::to_string(s.options.seed));
    check_key(path, file.metadata(), kAccumulate, std::to_string(s.options.accumulate));
  }
  const Progress progress = load_training_state(path, *s.trainer);
  s.steps = progress.step;
  s.last_trained = nullptr;
  return {progress.epoch, progress.batch};
}

}  // namespace linnet
