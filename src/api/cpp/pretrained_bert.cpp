#include <algorithm>
#include <set>

#include "base/error.h"
#include "formats/safetensors.h"
#include "linnet/pretrained.h"
#include "models/families/pretrained.h"
#include "models/modules/text_encoder.h"

namespace linnet {

struct PretrainedBert::State {
  explicit State(const std::string& folder)
      : model(open_pretrained(folder, {.head = ModelHead::kNone})), layout(*model.module) {}
  SentenceEncoder& encoder() { return model.as<SentenceEncoder>(); }

  PretrainedModel model;
  ParameterLayout layout;  // with names as the folder's table has them, without the path of this module
};

PretrainedBert::PretrainedBert(Module* parent, std::string name, const std::string& folder)
    : Module(parent, std::move(name)), state_(std::make_unique<State>(folder)) {
  adopt(*state_->model.module, "");
}

PretrainedBert::PretrainedBert(PretrainedBert&& other) noexcept = default;
PretrainedBert::~PretrainedBert() = default;

Tensor PretrainedBert::operator()(Tensor tokens, Tensor lengths, Tensor types) {
  return state_->encoder().encoder(tokens, lengths, types);
}

Tensor PretrainedBert::pooled(Tensor states) { return state_->encoder().pooler(states); }

int64_t PretrainedBert::width() const { return state_->encoder().encoder.config.width; }
int64_t PretrainedBert::max_length() const { return state_->encoder().encoder.config.max_seq_len; }

LoadReport PretrainedBert::load(Learner& learner) {
  std::vector<float> flat(static_cast<size_t>(state_->layout.parameter_count()));
  load_parameters(state_->model, state_->layout, flat.data());
  LoadReport report{.unused = state_->model.unused};
  for (const ParameterSlot& slot : state_->layout.parameters()) {
    const std::string name = path() + "." + slot.spec.name;
    const std::span<float> values = learner.parameter(name);
    std::copy_n(flat.data() + slot.offset, values.size(), values.data());
    report.taken.push_back(name);
  }
  const std::set<std::string> taken(report.taken.begin(), report.taken.end());
  for (const ParameterSpec& spec : learner.parameters())
    if (!taken.contains(spec.name)) report.fresh.push_back(spec.name);
  learner.push();
  return report;
}

void PretrainedBert::save(Learner& learner, const std::string& folder) const {
  std::vector<float> flat(static_cast<size_t>(state_->layout.parameter_count()));
  std::set<std::string> own;
  for (const ParameterSlot& slot : state_->layout.parameters()) {
    const std::string name = path() + "." + slot.spec.name;
    const std::span<const float> values = learner.parameter(name);
    std::ranges::copy(values, flat.data() + slot.offset);
    own.insert(name);
  }
  save_pretrained(state_->model, state_->layout, flat.data(), folder);
  std::vector<SafetensorsTensor> head;
  for (const ParameterSpec& spec : learner.parameters())
    if (!own.contains(spec.name))
      head.push_back({spec.name, {DType::kF32, spec.shape}, learner.parameter(spec.name).data()});
  save_safetensors(folder + "/head.safetensors", head, {{"format", "pt"}});
}

}  // namespace linnet
