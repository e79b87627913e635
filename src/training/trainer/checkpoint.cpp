#include "training/trainer/checkpoint.h"
#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include "base/digits.h"
#include "base/error.h"
#include "engine/plan/state_names.h"
#include "formats/safetensors.h"
#include "models/nn/frozen_weights.h"

namespace linnet {
namespace {

using Slots = std::span<const ParameterSlot>;

double number(const SafetensorsFile& file, const std::string& key) {
  const auto found = file.metadata().find(key);
  double value = 0;
  if (found == file.metadata().end() ||
      std::from_chars(found->second.data(), found->second.data() + found->second.size(), value).ec != std::errc{})
    fail_user(file.path() + ": not a training state: its \"" + key + "\" is missing or not a number");
  return value;
}

int64_t integer(const SafetensorsFile& file, const std::string& key) { return static_cast<int64_t>(number(file, key)); }

constexpr const char *kScale = "loss_scale", *kCleanSteps = "clean_steps", *kSkippedSteps = "skipped_steps";

void add_loss_scale(Metadata& metadata, const Trainer& trainer) {
  if (!trainer.options().loss_scale.is_on()) return;
  const LossScale& scale = trainer.loss_scale();
  metadata[kScale] = shortest(scale.value), metadata[kCleanSteps] = std::to_string(scale.clean_steps);
  metadata[kSkippedSteps] = std::to_string(scale.skipped_steps);
}

void read_loss_scale(const SafetensorsFile& file, Trainer& trainer) {
  if (trainer.options().loss_scale.is_on())
    trainer.set_loss_scale({number(file, kScale), integer(file, kCleanSteps), integer(file, kSkippedSteps)});
}

Metadata with_progress(Metadata metadata, const Progress& p) {
  metadata["format_version"] = std::to_string(kStateFormatVersion);
  const std::pair<const char*, double> fields[] = {
      {"step", p.step},           {"epoch", p.epoch},
      {"batch", p.batch},         {"target_tokens", p.target_tokens},
      {"seconds", p.seconds},     {"evaluated", p.evaluated},
      {"best_step", p.best_step}, {"best_metric", p.best_metric},
      {"best_loss", p.best_loss}, {"worse_since_best", p.worse_since_best}};
  for (const auto& [key, value] : fields) metadata[key] = shortest(value);
  return metadata;
}

// Before the names of what is stored as it lies in memory: rounded again, it might be other numbers.
constexpr const char* kPackedPrefix = "packed.";

// Those of which a state holds fp32 values: moments and averages have only trained ones.
Slots slots_of(const TrainingState& states, const std::string& state) {
  const ParameterLayout& layout = of_all_stages(states.layout());
  if (state != state::kParameters) return layout.trained();
  return Slots(layout.parameters()).first(layout.parameters().size() - layout.quantized().size());
}

// The tensors of a state that rank 0 has as a whole; the others are null.
void add_state(std::vector<SafetensorsTensor>& tensors, const TrainingState& states, const std::string& state,
               Slots slots, const std::string& prefix) {
  for (const ParameterSlot& slot : slots)
    tensors.push_back({prefix + slot.spec.name,
                       {DType::kF32, states.layout().whole_shape(slot)},
                       WholeStates::is_divided(states, state, slot) ? nullptr : states.flat(state) + slot.offset});
}

std::vector<SafetensorsTensor> state_tensors(const TrainingState& states, bool with_frozen) {
  std::vector<SafetensorsTensor> tensors;
  for (const std::string& state : states.names())
    add_state(tensors, states, state, slots_of(states, state), state + ".");
  for (const DividedPackedState& state : states.divided_packed())
    tensors.push_back({kPackedPrefix + state.whole.name, state.whole.type, nullptr});
  for (const auto& [name, type] : states.all_packed(with_frozen))
    tensors.push_back({kPackedPrefix + name, type, states.store().data(name)});
  return tensors;
}

// Calls visit(state, slot) for the tensors of a training state that ranks divide, in the order of the file.
template <class Visit>
void for_divided(const TrainingState& states, const Visit& visit) {
  for (const std::string& state : states.names())
    for (const ParameterSlot& slot : slots_of(states, state))
      if (WholeStates::is_divided(states, state, slot)) visit(state, slot);
}

// The same of packed states; files have larger elements first.
template <class Visit>
void for_divided_packed(const TrainingState& states, const Visit& visit) {
  std::vector<const DividedPackedState*> ordered;
  for (const DividedPackedState& state : states.divided_packed()) ordered.push_back(&state);
  std::ranges::stable_sort(ordered, std::ranges::greater{},
                           [](const DividedPackedState* state) { return dtype_size(state->whole.type.dtype); });
  for (const DividedPackedState* state : ordered) visit(*state);
}

// Where a model's parameter comes from: a moving average has trained ones alone.
const std::string& state_of(const TrainingState& states, const ParameterSlot& slot, const std::string& trained) {
  static const std::string parameters = state::kParameters;
  return slot.offset < of_all_stages(states.layout()).trained_count() ? trained : parameters;
}

// Gathers the tensors that a file lacks by name, in whatever order it asks for them.
class Fetcher {
 public:
  explicit Fetcher(WholeStates* whole) : whole_(whole) {}
  void add(const std::string& name, const std::string& state, const ParameterSlot& slot) {
    tensors_.emplace(name, std::pair(state, &slot));
  }
  void add(const DividedPackedState& state) { packed_.emplace(kPackedPrefix + state.whole.name, &state); }
  std::span<const std::byte> operator()(const SafetensorsTensor& tensor, size_t first_byte) const {
    if (const auto packed = packed_.find(tensor.name); packed != packed_.end()) {
      const WholeStates::Piece piece = whole_->piece(*packed->second, static_cast<int64_t>(first_byte));
      return {whole_->gather(*packed->second, piece), static_cast<size_t>(piece.count)};
    }
    const auto& [state, slot] = tensors_.at(tensor.name);
    const WholeStates::Piece piece = whole_->piece(*slot, static_cast<int64_t>(first_byte / sizeof(float)));
    return std::as_bytes(std::span(whole_->gather(state, *slot, piece), static_cast<size_t>(piece.count)));
  }

 private:
  WholeStates* whole_;
  std::map<std::string, std::pair<std::string, const ParameterSlot*>> tensors_;
  std::map<std::string, const DividedPackedState*> packed_;
};

constexpr int kFetches = 2;  // of save_safetensors(), of each tensor

// What ranks other than the first do while it writes a tensor.
void give_tensor(const std::string& state, const ParameterSlot& slot, WholeStates& whole) {
  whole.for_pieces(slot, [&](WholeStates::Piece piece) { whole.gather(state, slot, piece); });
}

// Rank 0 has the tensor's file open, and gives every rank its part.
void share_tensor(const std::optional<SafetensorsFile>& file, const std::string& name, const TrainingState& states,
                  const std::string& state, const ParameterSlot& slot, WholeStates& whole) {
  const std::byte* data = nullptr;
  if (file) data = tensor_data(*file, name, {DType::kF32, states.layout().whole_shape(slot)});
  whole.for_pieces(slot, [&](WholeStates::Piece piece) {
    float* values = nullptr;
    if (file) {
      const size_t bytes = static_cast<size_t>(piece.count) * sizeof(float);
      values = whole.place(piece.count);
      std::memcpy(values, data + static_cast<size_t>(piece.first) * sizeof(float), bytes);
      file->drop_pages();
    }
    whole.scatter(state, slot, piece, values);
  });
}

void share_packed(const std::optional<SafetensorsFile>& file, const DividedPackedState& state, WholeStates& whole) {
  const std::byte* data = nullptr;
  if (file) data = tensor_data(*file, kPackedPrefix + state.whole.name, state.whole.type);
  whole.for_pieces(state, [&](WholeStates::Piece piece) {
    whole.scatter(state, piece, file ? data + piece.first : nullptr);
    if (file) file->drop_pages();
  });
}

}  // namespace

void save_training_state(const std::string& path, const Trainer& trainer, const Progress& progress,
                         const Metadata& metadata, WholeStates* whole) {
  const TrainingState& states = trainer.state();
  states.pull();
  Fetcher fetch(whole);
  for_divided(states, [&](const std::string& state, const ParameterSlot& slot) {
    fetch.add(state + "." + slot.spec.name, state, slot);
  });
  for (const DividedPackedState& state : states.divided_packed()) fetch.add(state);
  Metadata facts = with_progress(metadata, progress);
  add_loss_scale(facts, trainer);
  save_safetensors(path, state_tensors(states, !metadata.contains(kFrozenKey)), facts, fetch);
}

void give_training_state(const TrainingState& states, WholeStates& whole) {
  for (int times = 0; times < kFetches; ++times) {
    for_divided(states, [&](const std::string& state, const ParameterSlot& slot) { give_tensor(state, slot, whole); });
    for_divided_packed(states, [&](const DividedPackedState& state) {
      whole.for_pieces(state, [&](WholeStates::Piece piece) { whole.gather(state, piece); });
    });
  }
}

void load_divided_states(const std::string& path, const TrainingState& states, WholeStates& whole) {
  std::optional<SafetensorsFile> file;
  if (whole.is_first_rank()) file.emplace(path);
  for_divided(states, [&](const std::string& state, const ParameterSlot& slot) {
    share_tensor(file, state + "." + slot.spec.name, states, state, slot, whole);
  });
  for (const DividedPackedState& state : states.divided_packed()) share_packed(file, state, whole);
}

void save_divided_model(const std::string& path, const TrainingState& states, const std::string& state,
                        const Metadata& metadata, WholeStates& whole) {
  const ParameterLayout& layout = of_all_stages(states.layout());
  if (!whole.is_first_rank()) {
    for (int times = 0; times < kFetches; ++times)
      for (const ParameterSlot& slot : layout.parameters())
        if (const std::string& from = state_of(states, slot, state); whole.is_divided(from, slot))
          give_tensor(from, slot, whole);
    return;
  }
  std::vector<SafetensorsTensor> tensors;
  Fetcher fetch(&whole);
  for (const ParameterSlot& slot : layout.parameters()) {
    const std::string& from = state_of(states, slot, state);
    add_state(tensors, states, from, {&slot, 1}, "");
    fetch.add(slot.spec.name, from, slot);
  }
  save_safetensors(path, tensors, metadata, fetch);
}

void load_divided_model(const std::string& path, const TrainingState& states, WholeStates& whole) {
  std::optional<SafetensorsFile> file;
  if (whole.is_first_rank()) file.emplace(path);
  for (const ParameterSlot& slot : of_all_stages(states.layout()).parameters())
    share_tensor(file, slot.spec.name, states, state::kParameters, slot, whole);
}

Progress load_training_state(const std::string& path, Trainer& trainer, Metadata* metadata) {
  const TrainingState& states = trainer.state();
  const SafetensorsFile file(path);
  file.check_data();
  if (const int64_t version = integer(file, "format_version"); version != kStateFormatVersion)
    fail_user(path + ": training state of format " + std::to_string(version) + ", this program reads format " +
              std::to_string(kStateFormatVersion));
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
  read_loss_scale(file, trainer);
  states.push();
  if (metadata) *metadata = file.metadata();
  Progress p;
  p.step = integer(file, "step"), p.epoch = integer(file, "epoch"), p.batch = integer(file, "batch");
  p.target_tokens = integer(file, "target_tokens"), p.seconds = number(file, "seconds"),
  p.evaluated = integer(file, "evaluated") != 0;
  p.best_step = integer(file, "best_step"), p.best_metric = number(file, "best_metric"),
  p.best_loss = number(file, "best_loss");
  p.worse_since_best = integer(file, "worse_since_best");
  return p;
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
  // The new file of each kind stands beside the old one until it is renamed; the larger kind is written last.
  const uint64_t state = safetensors_size(state_tensors(states, false)) + 4096,
                 weights = safetensors_size(model) + 4096;
  return frozen + state + weights + std::max(state, weights);
}

}  // namespace linnet
