#include "linnet/decoder.h"
#include "api/cpp/helpers.h"
#include "api/cpp/learner_state.h"
#include "api/cpp/pretrained_state.h"
#include "engine/ops/cross_entropy/cross_entropy.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/movement/movement.h"
#include "generation/engine.h"
#include "models/modules/causal_model.h"
#include "models/nn/model_store.h"
#include "training/trainer/checkpoint.h"

namespace linnet {
namespace {
// Adapts a program's decoder to the engine.
struct DecoderModel : CausalModel {
  explicit DecoderModel(Decoder& decoder) : decoder(decoder) {}
  int64_t vocab_size() const override { return decoder.vocab_size(); }
  int64_t max_length() const override { return decoder.max_length(); }
  Tensor head_weight() override {
    const Tensor head = decoder.head();
    if (head.type().shape.rank() != 2 || head.dim(0) != vocab_size())
      fail_user("the head of the decoder is ", head.type(), ", and its vocabulary has ", vocab_size(),
          " tokens: it needs a row for each");
    return head;
  }
  Tensor hidden(const TokenRows& rows) override {
    const AttentionContext context = rows.context();
    const Tensor positions = rows.positions.defined() ? rows.positions : counted_positions(rows.tokens);
    Trace& trace = Trace::current();
    trace.decoding = &context;  // an exception ends the trace, too
    const Tensor states = decoder.states(rows.tokens, positions);
    trace.decoding = nullptr;
    return states;
  }

  Decoder& decoder;
};

void check_options(const GeneratorOptions& options, int64_t max_length) {
  if (options.slots < 1 || options.slots > 4096 || options.threads < 0 || options.max_length < 0 ||
      options.max_length > max_length)
    fail_user("a generator has 1 to 4096 slots, threads that are not negative, and at most the ", max_length,
        " positions of its decoder");
}
}  // namespace

Loss decoder_loss(Decoder& decoder, Tracer& trace) {
  const Tensor tokens = trace.input("tokens"), targets = trace.input("targets");
  const Tensor states = decoder.states(tokens, counted_positions(tokens));
  if (!trace.training()) trace.output("logits", matmul(states, decoder.head(), false, true));
  return {linear_cross_entropy_sum(states, decoder.head(), std::nullopt, targets),
      count_targets(targets, states.type().dtype)};
}

struct TextGenerator::State {
  // `root`: the module with the layout's parameters.
  State(std::unique_ptr<CausalModel> made, CausalModel& model, const Module& root, const GeneratorOptions& options)
      : made(std::move(made)), layout(root), shared(declare_model(store, layout)),
        generator(model, layout, store, shared,
            {.rows = options.slots,
                .max_length = options.max_length > 0 ? options.max_length : model.max_length(),
                .cache = options.cache,
                .independent_prompts = options.same_bits,
                .threads = threads_or_all(options.threads)}),
        pool(threads_or_all(options.threads)) {
    store.allocate();
    store.touch();
    if (layout.constant_count() > 0) layout.initialize_constants(store.as<float>(state::kConstants), pool);
    generator.bind();
  }

  const std::unique_ptr<CausalModel> made;  // around a program's decoder
  ParameterLayout layout;
  Store store;
  SharedRegions shared;
  CausalGenerator generator;
  ThreadPool pool;
  bool has_weights = false;
  std::atomic<bool> busy = false;
};

TextGenerator::TextGenerator(Decoder& decoder, const GeneratorOptions& options) {
  const DefaultFloats floats;
  check_options(options, decoder.max_length());
  auto made = std::make_unique<DecoderModel>(decoder);
  CausalModel& model = *made;
  state_ = std::make_unique<State>(std::move(made), model, decoder, options);
}

TextGenerator::TextGenerator(PretrainedDecoder& decoder, const GeneratorOptions& options) {
  const DefaultFloats floats;
  check_options(options, decoder.max_length());
  const PretrainedModel& folder = decoder.state_->model;
  state_ = std::make_unique<State>(nullptr, folder.as<CausalModel>(), *folder.module, options);
  load_parameters(folder, decoder.state_->layout, state_->store.as<float>(state::kParameters));
  state_->has_weights = true;
}

TextGenerator::~TextGenerator() = default;

void TextGenerator::take(Learner& learner) {
  float* flat = state_->store.as<float>(state::kParameters);
  const auto& trained = LearnerAccess::state(learner).weights();
  const ParameterValues values = trained.evaluated_values();
  std::vector<float> unpacked;
  for (const ParameterSlot& slot : state_->layout.parameters()) {
    const ParameterSlot& learned = trained.slot_of(slot.spec.name);
    if (learned.spec.shape != slot.spec.shape)
      fail_user("parameter \"", slot.spec.name, "\" of the learner is of another shape than the decoder's");
    std::copy_n(values.of(learned, unpacked), slot.spec.shape.elements(), flat + slot.offset);
  }
  state_->has_weights = true;
}

void TextGenerator::load(const std::string& path) {
  load_model(path, state_->layout, state_->store.as<float>(state::kParameters));
  state_->has_weights = true;
}

std::vector<std::vector<int32_t>> TextGenerator::generate(
    const std::vector<std::vector<int32_t>>& prompts, const GenerateOptions& options, const Listener& listener) {
  const Busy busy(state_->busy, "a generator");
  if (!state_->has_weights && state_->layout.parameter_count() > 0)
    fail_user("the generator has no weights yet: take() those of a learner, or load() a file");
  if (options.max_tokens < 1) fail_user("max_tokens is ", options.max_tokens, "; at least 1 is needed");
  GenerateSettings settings{.max_tokens = options.max_tokens, .ends = options.ends};
  settings.sampling = {
      .temperature = options.temperature, .top_k = options.top_k, .top_p = options.top_p, .seed = options.seed};
  CausalGenerator& generator = state_->generator;
  CausalGenerator::Listener hear;
  if (listener) hear = [&](int64_t row, int32_t token) { return listener(row, token, generator.last_logits()); };
  return mapped(generator.generate(prompts, settings, state_->pool, hear),
      [](Continuation& text) { return std::move(text.tokens); });
}
}  // namespace linnet
