#include <algorithm>
#include <list>
#include "api/cpp/learner_state.h"
#include "api/cpp/pretrained_state.h"
#include "base/fail.h"
#include "base/process.h"
#include "formats/safetensors.h"
#include "models/modules/causal_model.h"
#include "models/modules/encoder_decoder.h"
#include "models/modules/image_model.h"
#include "models/modules/text_encoder.h"

namespace linnet {
PretrainedModule::PretrainedModule(Module* parent, std::string name, std::unique_ptr<State> state)
    : Module(parent, std::move(name)), state_(std::move(state)) {
  adopt(*state_->model.module, "");
}

PretrainedModule::PretrainedModule(PretrainedModule&& other) noexcept = default;
PretrainedModule::~PretrainedModule() = default;

void PretrainedModule::begin(Learner& learner) { load(learner); }

LoadReport PretrainedModule::load(Learner& learner) {
  const DefaultFloats floats;
  LoadReport report{.unused = state_->model.unused};
  auto& s = LearnerAccess::state(learner).weights();
  s.trainer->state().pull();
  const std::string above = path().empty() ? "" : path() + ".";
  // Addresses for all parameters; only the one being read takes memory.
  const auto flat = std::make_unique_for_overwrite<float[]>(static_cast<size_t>(state_->layout.parameter_count()));
  ParameterTarget target = flat.get();
  target.finished = [&](const ParameterSlot& slot) {
    float* read = flat.get() + slot.offset;
    report.taken.push_back(above + slot.spec.name);
    s.trainer->state().set_parameter(s.slot_of(report.taken.back()),
        [&](std::span<float> values) { std::copy_n(read, values.size(), values.data()); });
    give_back_pages(read, float_bytes(slot.spec.shape.elements()));
  };
  load_parameters(state_->model, state_->layout, target);
  const std::set<std::string> taken(report.taken.begin(), report.taken.end());
  for (const ParameterSpec& spec : learner.parameters())
    if (!taken.contains(spec.name)) report.fresh.push_back(spec.name);
  learner.push();
  return report;
}

void PretrainedModule::save(Learner& learner, const std::string& folder) const {
  std::vector<float> flat(state_->layout.parameter_count());
  std::set<std::string> own;
  const std::string above = path().empty() ? "" : path() + ".";
  const auto& trained = LearnerAccess::state(learner).weights();
  const ParameterValues values = trained.evaluated_values();
  std::vector<float> unpacked;
  for (const ParameterSlot& slot : state_->layout.parameters()) {
    const std::string name = above + slot.spec.name;
    std::copy_n(values.of(trained.slot_of(name), unpacked), slot.spec.shape.elements(), flat.data() + slot.offset);
    own.insert(name);
  }
  save_pretrained(state_->model, state_->layout, flat.data(), folder);
  std::vector<SafetensorsTensor> head;
  std::list<std::vector<float>> of_head;
  for (const ParameterSpec& spec : learner.parameters())
    if (!own.contains(spec.name))
      head.push_back(
          {spec.name, {DType::kF32, spec.shape}, values.of(trained.slot_of(spec.name), of_head.emplace_back())});
  if (!head.empty()) save_safetensors(folder + "/head.safetensors", head, {{"format", "pt"}});
}

PretrainedEncoder::PretrainedEncoder(Module* parent, std::string name, const std::string& folder)
    : PretrainedModule(parent, std::move(name), State::open<SentenceEncoder>(folder, {.head = ModelHead::kNone})) {}

Tensor PretrainedEncoder::operator()(Tensor tokens, Tensor lengths, Tensor types) {
  return state_->model.as<SentenceEncoder>().encoder(tokens, lengths, types);
}
Tensor PretrainedEncoder::pooled(Tensor states) {
  auto& encoder = state_->model.as<SentenceEncoder>();
  if (!encoder.pooler) fail_user("a model of type \"", state_->model.family->model_type, "\" has no pooler");
  return (*encoder.pooler)(states);
}
int64_t PretrainedEncoder::width() const { return state_->model.as<SentenceEncoder>().encoder.config.width; }
int64_t PretrainedEncoder::max_length() const { return state_->model.as<SentenceEncoder>().encoder.config.max_seq_len; }

PretrainedDecoder::PretrainedDecoder(Module* parent, std::string name, const std::string& folder)
    : PretrainedModule(parent, std::move(name), State::open<CausalModel>(folder)) {}

Tensor PretrainedDecoder::operator()(Tensor tokens, Tensor lengths) {
  return state_->model.as<CausalModel>().hidden({.tokens = tokens, .lengths = lengths});
}
Tensor PretrainedDecoder::logits(Tensor states) { return state_->model.as<CausalModel>().logits(states); }
Tensor PretrainedDecoder::head_weight() { return state_->model.as<CausalModel>().head_weight(); }
int64_t PretrainedDecoder::width() const {
  for (const ParameterSlot& slot : state_->layout.parameters())
    if (slot.spec.table && slot.spec.shape[0] >= vocab_size()) return slot.spec.shape[1];
  fail_internal("a decoder without a table of tokens");
}
int64_t PretrainedDecoder::vocab_size() const { return state_->model.as<CausalModel>().vocab_size(); }
int64_t PretrainedDecoder::max_length() const { return state_->model.as<CausalModel>().max_length(); }

PretrainedEncoderDecoder::PretrainedEncoderDecoder(Module* parent, std::string name, const std::string& folder)
    : PretrainedModule(parent, std::move(name), State::open<EncoderDecoder>(folder)) {}

Tensor PretrainedEncoderDecoder::encode(Tensor source, Tensor source_lengths) {
  return state_->model.as<EncoderDecoder>().encode(source, source_lengths);
}
Tensor PretrainedEncoderDecoder::logits(Tensor source, Tensor source_lengths, Tensor target_in, Tensor target_lengths) {
  return state_->model.as<EncoderDecoder>().target_logits(source, source_lengths, target_in, target_lengths);
}
Tensor PretrainedEncoderDecoder::loss_sum(Tensor source, Tensor source_lengths, Tensor target_in, Tensor target_lengths,
    Tensor targets, double label_smoothing) {
  return state_->model.as<EncoderDecoder>().loss(
      source, source_lengths, target_in, target_lengths, targets, label_smoothing);
}
int64_t PretrainedEncoderDecoder::width() const { return state_->model.as<EncoderDecoder>().width(); }
int64_t PretrainedEncoderDecoder::vocab_size() const { return state_->model.as<EncoderDecoder>().output_vocab_size(); }

PretrainedImageModel::PretrainedImageModel(Module* parent, std::string name, const std::string& folder)
    : PretrainedModule(parent, std::move(name), State::open<ImageModel>(folder)) {}

Tensor PretrainedImageModel::operator()(Tensor images) { return state_->model.as<ImageModel>()(images); }
Shape PretrainedImageModel::image_shape() const {
  const ImageShape& images = state_->model.as<ImageModel>().images;
  return {images.height, images.width, images.channels};
}
int64_t PretrainedImageModel::classes() const { return state_->model.as<ImageModel>().images.classes; }
}  // namespace linnet
