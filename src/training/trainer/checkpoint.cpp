#include "training/trainer/checkpoint.h"
#include "base/fail.h"
#include "base/numbers.h"
#include "engine/plan/store.h"

namespace linnet {
namespace {
constexpr int kStateFormatVersion = 1;

using Slots = std::span<const ParameterSlot>;

double number(const SafetensorsFile& file, const std::string& key) {
  const auto value = parse_number<double>(find_or(file.metadata(), key, ""));
  if (!value) fail_user(file.path(), ": not a training state: its \"", key, "\" is missing or not a number");
  return *value;
}

// Calls visit(key, field) for each field that metadata hold.
template <class Visit> void for_fields(Progress& p, const Visit& visit) {
  visit("step", p.step), visit("epoch", p.epoch), visit("batch", p.batch), visit("target_tokens", p.target_tokens);
  visit("seconds", p.seconds), visit("evaluated", p.evaluated), visit("best_step", p.best_step);
  visit("best_metric", p.best_metric), visit("best_loss", p.best_loss), visit("worse_since_best", p.worse_since_best);
}
template <class Visit> void for_fields(LossScale& scale, const Visit& visit) {
  visit("loss_scale", scale.value), visit("clean_steps", scale.clean_steps);
  visit("skipped_steps", scale.skipped_steps);
}

template <class Fields> Fields read_fields(const SafetensorsFile& file) {
  Fields fields;
  for_fields(fields,
      [&](const char* key, auto& field) { field = static_cast<std::decay_t<decltype(field)>>(number(file, key)); });
  return fields;
}

// Names of tensors stored in their memory format begin with this: rounding them again could change values.
constexpr const char* kPackedPrefix = "packed.";

// The slots of which a state has fp32 values: moments and averages only have trained ones.
Slots slots_of(const TrainingState& states, const std::string& state) {
  const ParameterLayout& layout = of_all_stages(states.layout());
  if (state != state::kParameters) return layout.trained();
  return Slots(layout.parameters()).first(layout.parameters().size() - layout.quantized().size());
}

// A tensor that rank 0 has as a whole; null data if it must be fetched.
SafetensorsTensor stored(const TrainingState& states, const WholeTensor& tensor) {
  const bool is_whole = !tensor.packed && !WholeStates::is_divided(states, tensor.state, *tensor.slot);
  return {tensor.name, tensor.type, is_whole ? states.flat(tensor.state) + tensor.slot->offset : nullptr};
}

std::vector<SafetensorsTensor> state_tensors(const TrainingState& states, bool with_frozen) {
  std::vector<SafetensorsTensor> tensors;
  for (const std::string& state : states.names())
    for (const ParameterSlot& slot : slots_of(states, state))
      tensors.push_back(stored(states, whole_tensor(states, state, slot, state + ".")));
  for (const DividedPackedState& state : states.divided_packed())
    tensors.push_back({kPackedPrefix + state.whole.name, state.whole.type, nullptr});
  for (const auto& [name, type] : states.all_packed(with_frozen))
    tensors.push_back({kPackedPrefix + name, type, states.store().data(name)});
  return tensors;
}

// Tensors of a training state that ranks divide, in file order: larger elements first.
std::vector<WholeTensor> divided_tensors(const TrainingState& states) {
  std::vector<WholeTensor> tensors;
  for (const std::string& state : states.names())
    for (const ParameterSlot& slot : slots_of(states, state))
      if (WholeStates::is_divided(states, state, slot))
        tensors.push_back(whole_tensor(states, state, slot, state + "."));
  for (const DividedPackedState& state : states.divided_packed())
    tensors.push_back({kPackedPrefix + state.whole.name, state.whole.type, "", nullptr, &state});
  std::ranges::stable_sort(
      tensors, std::ranges::greater{}, [](const WholeTensor& tensor) { return dtype_size(tensor.type.dtype); });
  return tensors;
}

// The state that a model's parameter is saved from: a moving average only has trained ones.
const std::string& state_of(const TrainingState& states, const ParameterSlot& slot, const std::string& trained) {
  static const std::string parameters = state::kParameters;
  return slot.offset < of_all_stages(states.layout()).trained_count() ? trained : parameters;
}

std::vector<WholeTensor> model_tensors(const TrainingState& states, const std::string& state) {
  return mapped(of_all_stages(states.layout()).parameters(),
      [&](const ParameterSlot& slot) { return whole_tensor(states, state_of(states, slot, state), slot); });
}

// Gathers by name, in any order, the tensors that rank 0 lacks.
FetchTensor fetch_from(const std::vector<WholeTensor>& tensors, WholeStates* whole) {
  std::map<std::string, WholeTensor> by_name;
  for (const WholeTensor& tensor : tensors) by_name.emplace(tensor.name, tensor);
  return [=](const SafetensorsTensor& tensor, size_t first) { return whole->gather(by_name.at(tensor.name), first); };
}

constexpr int kFetches = 2;  // of save_safetensors(), of each tensor

// Rank 0 reads the file and sends every rank its parts.
void share_tensors(const std::string& path, const std::vector<WholeTensor>& tensors, WholeStates& whole) {
  std::optional<SafetensorsFile> file;
  if (whole.is_first_rank()) file.emplace(path);
  for (const WholeTensor& tensor : tensors)
    whole.scatter(tensor, file ? tensor_data(*file, tensor.name, tensor.type) : nullptr, [&] {
      if (file) file->drop_pages();
    });
}
}  // namespace

void save_training_state(const std::string& path, const Trainer& trainer, const Progress& progress,
    const Metadata& metadata, WholeStates* whole) {
  const TrainingState& states = trainer.state();
  states.pull();
  Metadata facts = metadata;
  facts["format_version"] = std::to_string(kStateFormatVersion);
  Progress p = progress;
  for_fields(p, [&](const char* key, auto value) { facts[key] = shortest(static_cast<double>(value)); });
  LossScale scale = trainer.loss_scale();
  if (trainer.options().loss_scale.is_on())
    for_fields(scale, [&](const char* key, auto value) { facts[key] = shortest(value); });
  save_safetensors(
      path, state_tensors(states, !metadata.contains(kFrozenKey)), facts, fetch_from(divided_tensors(states), whole));
}

void give_training_state(const TrainingState& states, WholeStates& whole) {
  for (int times = 0; times < kFetches; ++times)
    for (const WholeTensor& tensor : divided_tensors(states)) whole.give(tensor);
}

void load_divided_states(const std::string& path, const TrainingState& states, WholeStates& whole) {
  share_tensors(path, divided_tensors(states), whole);
}

void save_divided_model(const std::string& path, const TrainingState& states, const std::string& state,
    const Metadata& metadata, WholeStates& whole) {
  const std::vector<WholeTensor> all = model_tensors(states, state);
  if (!whole.is_first_rank()) {
    for (int times = 0; times < kFetches; ++times)
      for (const WholeTensor& tensor : all)
        if (whole.is_divided(tensor.state, *tensor.slot)) whole.give(tensor);
    return;
  }
  const auto tensors = mapped(all, [&](const WholeTensor& tensor) { return stored(states, tensor); });
  save_safetensors(path, tensors, metadata, fetch_from(all, &whole));
}

void load_divided_model(const std::string& path, const TrainingState& states, WholeStates& whole) {
  share_tensors(path, model_tensors(states, state::kParameters), whole);
}

Progress load_training_state(const std::string& path, Trainer& trainer, Metadata* metadata) {
  const TrainingState& states = trainer.state();
  const SafetensorsFile file(path);
  file.check_data();
  if (const double version = number(file, "format_version"); version != kStateFormatVersion)
    fail_user(
        path, ": training state of format ", shortest(version), ", this program reads format ", kStateFormatVersion);
  for (const std::string& state : states.names())
    for (const ParameterSlot& slot : slots_of(states, state))
      if (!WholeStates::is_divided(states, state, slot))
        copy_tensors(file, {&slot, 1}, state + ".", states.flat(state));
  const auto frozen = FrozenWeights::beside(file);
  for (const auto& [name, type] : states.all_packed(!frozen))
    copy_tensor(file, kPackedPrefix + name, type, states.store().data(name));
  if (frozen)
    for (const QuantizedSlot* slot : frozen_packed(states.layout()))
      frozen->copy(*slot, states.store().data(slot->input()));
  if (trainer.options().loss_scale.is_on()) trainer.set_loss_scale(read_fields<LossScale>(file));
  states.push();
  if (metadata) *metadata = file.metadata();
  return read_fields<Progress>(file);
}

uint64_t checkpoint_bytes(const TrainingState& states) {
  uint64_t frozen = 0;
  std::set<std::string> apart;
  for (const QuantizedSlot* slot : frozen_packed(states.layout()))
    frozen += slot->shape.bytes(), apart.insert(slot->slot.spec.name);
  std::vector<SafetensorsTensor> model;
  for (const ParameterSlot& slot : of_all_stages(states.layout()).parameters())
    if (!apart.contains(slot.spec.name))
      model.push_back({slot.spec.name, {DType::kF32, states.layout().whole_shape(slot)}, nullptr});
  // Each new file stands beside the old one until it is renamed; the larger kind is written last.
  const uint64_t state = safetensors_size(state_tensors(states, false)) + 4096,
                 weights = safetensors_size(model) + 4096;
  return frozen + state + weights + std::max(state, weights);
}
}  // namespace linnet
