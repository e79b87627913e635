// Models of random sizes and options, prompts of random lengths: what is generated on the cache, in a batch, must be
// what each prompt gives alone and what the plain forward pass says.
#include <gtest/gtest.h>
#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include "causal_testing.h"
#include "generation/engine.h"
#include "models/modules/t5.h"
#include "models/modules/text_decoder.h"
#include "models/modules/transformer.h"

namespace linnet {
namespace {
using Ids = std::vector<int32_t>;

class Random {
 public:
  explicit Random(uint32_t seed) : bits_(seed) {}
  int64_t operator()(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(bits_() % static_cast<uint64_t>(high - low + 1));
  }
  bool coin() { return (*this)(0, 1) == 1; }
  Ids ids(int64_t length, int64_t first, int64_t vocab) {
    Ids result(static_cast<size_t>(length));
    for (int32_t& id : result) id = static_cast<int32_t>((*this)(first, vocab - 1));
    return result;
  }

 private:
  std::mt19937 bits_;
};

constexpr int64_t kPositions = 40;

std::unique_ptr<CausalModel> random_gpt(Random random) {
  DecoderConfig config{.vocab_size = random(20, 70), .max_seq_len = kPositions, .layers = random(1, 3)};
  config.heads = random(1, 5), config.width = config.heads * random(2, 12), config.hidden = random(8, 60);
  config.norms = random.coin() ? NormKind::kLayer : NormKind::kBare, config.tied_head = random.coin();
  config.activation = random.coin() ? Activation::kGelu : Activation::kRelu;
  return std::make_unique<TextDecoder>(config);
}

std::unique_ptr<CausalModel> random_llama(Random random) {
  DecoderConfig config =
      llama_kind({.vocab_size = random(20, 70), .max_seq_len = kPositions, .width = 8 * random(1, 6)});
  config.kv_heads = random(1, 3), config.heads = config.kv_heads * random(1, 4);
  config.layers = random(1, 3), config.head_size = 2 * random(1, 10), config.hidden = random(8, 60);
  config.biases = {random.coin(), random.coin(), random.coin()};
  config.window = random.coin() ? random(1, 12) : 0;
  config.tied_head = random.coin(), config.deviation = 0.05;
  if (random.coin()) config.rotary->scaling = {.kind = RopeScaling::Kind::kLlama3, .factor = 4, .original_length = 16};
  if (random.coin()) config.query_key_norms = random.coin() ? QueryKeyNorms::kHeads : QueryKeyNorms::kWhole;
  config.norm_place = static_cast<NormPlace>(random(0, 3)), config.parallel = random.coin();
  config.soft_cap = random.coin() ? 20 : 0, config.logit_cap = random.coin() ? 30 : 0;
  config.rotary->share = random.coin() ? 1 : 0.5;
  if (config.head_size % 4 != 0) config.rotary->share = 1;
  if (random.coin())  // every other layer sees all positions, and does not turn them
    for (int64_t i = 0; i < config.layers; ++i)
      config.layer_kinds.push_back(i % 2 == 0 ? LayerKind{config.window, config.rotary} : LayerKind{});
  return std::make_unique<TextDecoder>(config);
}

class CausalFuzz : public testing::TestWithParam<uint32_t> {
 protected:
  std::unique_ptr<CausalModel> model() const {
    return GetParam() % 3 == 0 ? random_gpt(Random(GetParam())) : random_llama(Random(GetParam()));
  }
  CausalFuzz() : random_(GetParam() + 1000), vocab_(model()->vocab_size()) {
    const int64_t count = random_(2, 4);
    for (int64_t i = 0; i < count; ++i) prompts_.push_back(random_.ids(random_(1, 30), 0, vocab_));
  }
  int64_t rows() const { return static_cast<int64_t>(prompts_.size()); }
  GenerateSettings settings() {
    GenerateSettings settings{.max_tokens = random_(5, 20), .slide = random_.coin()};
    settings.sampling.temperature = 0.2 * static_cast<double>(random_(0, 8));
    settings.sampling.repetition_penalty = random_.coin() ? 1.3 : 1;
    settings.sampling.top_k = random_.coin() ? random_(1, 20) : 0;
    settings.sampling.top_p = random_.coin() ? 0.8 : 1;
    settings.sampling.seed = static_cast<uint64_t>(random_(0, 1000));
    settings.ends = {static_cast<int32_t>(random_(0, vocab_ - 1)), static_cast<int32_t>(random_(0, vocab_ - 1))};
    return settings;
  }

  Random random_;
  int64_t vocab_;
  std::vector<Ids> prompts_;
};

// Logits at every position, row after row, and what was drawn from them.
struct Heard {
  std::vector<std::vector<float>> logits;
  std::vector<int32_t> tokens;
};

Heard listen(CausalFixture& fixture, const std::vector<Ids>& prompts, const GenerateSettings& settings) {
  Heard heard;
  fixture.generate(prompts, settings, [&](int64_t, int32_t token) {
    const auto logits = fixture.generator->last_logits();
    heard.logits.emplace_back(logits.begin(), logits.end());
    heard.tokens.push_back(token);
    return true;
  });
  return heard;
}

template <class A, class B> double largest_difference(const A& a, const B& b) {
  double worst = 0, largest = 1;
  for (size_t i = 0; i < b.size(); ++i) {
    worst = std::max(worst, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
    largest = std::max(largest, std::abs(static_cast<double>(b[i])));
  }
  return worst / largest;
}

TEST_P(CausalFuzz, CachedLogitsAreTheUncachedOnesAtEveryPosition) {
  GenerateSettings settings = this->settings();
  settings.ends.clear(), settings.slide = false;
  CausalFixture cached({.rows = rows()}, model()), uncached({.rows = rows(), .cache = false}, model());
  const Heard ours = listen(cached, prompts_, settings), theirs = listen(uncached, prompts_, settings);
  ASSERT_EQ(ours.tokens, theirs.tokens);
  for (size_t i = 0; i < ours.logits.size(); ++i) {
    float largest = 1;
    for (const float logit : theirs.logits[i]) largest = std::max(largest, std::abs(logit));
    EXPECT_LT(largest_difference(ours.logits[i], theirs.logits[i]), 2e-6 * largest) << i;
  }
}

// Looser: some of these models lose two digits in float32, whichever way they are computed.
TEST_P(CausalFuzz, LogitsAreThoseOfTheForwardPassInFloat64) {
  GenerateSettings settings = this->settings();
  settings.ends.clear(), settings.slide = false, settings.max_tokens = 5;
  CausalFixture fixture({.rows = 1}, model());
  Ids sequence = prompts_[0];
  const Heard heard = listen(fixture, {prompts_[0]}, settings);
  for (size_t i = 0; i < heard.logits.size(); ++i) {
    const std::vector<double> all = fixture.forward(sequence);
    EXPECT_LT(largest_difference(heard.logits[i], std::span(all).last(heard.logits[i].size())), 1e-4) << i;
    sequence.push_back(heard.tokens[i]);
  }
}

TEST_P(CausalFuzz, ABatchSamplesWhatItsPromptsDoAlone) {
  CausalFixture together({.rows = rows()}, model()), alone({.rows = 1}, model());
  GenerateSettings settings = this->settings();
  const auto batch = together.generate(prompts_, settings), again = together.generate(prompts_, settings);
  for (size_t i = 0; i < prompts_.size(); ++i) {
    settings.first_sample = i;
    const auto one = alone.generate({prompts_[i]}, settings);
    EXPECT_EQ(batch[i].tokens, one[0].tokens);
    EXPECT_EQ(batch[i].ended, one[0].ended);
    EXPECT_EQ(batch[i].tokens, again[i].tokens);
  }
}

TEST_P(CausalFuzz, ABatchFindsWhatASearchOfEachPromptFinds) {
  const int64_t beams = random_(2, 5);
  CausalFixture together({.rows = rows(), .beams = beams}, model()), alone({.rows = 1, .beams = beams}, model());
  GenerateSettings settings = this->settings();
  settings.length_penalty = random_.coin() ? 0.6 : 1;
  settings.slide = false;
  const auto batch = together.generate(prompts_, settings);
  for (size_t i = 0; i < prompts_.size(); ++i) {
    const auto one = alone.generate({prompts_[i]}, settings);
    EXPECT_EQ(batch[i].tokens, one[0].tokens);
    EXPECT_EQ(batch[i].ended, one[0].ended);
    for (const int32_t end : settings.ends)
      EXPECT_EQ(std::count(batch[i].tokens.begin(), batch[i].tokens.end(), end), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, CausalFuzz, testing::Range(1u, 13u));

constexpr SpecialTokens kSpecial{.pad = 0, .unknown = 2, .begin = 0, .end = 1};

// A T5 or a Transformer (Marian's kind), the generator of it, and its plain forward pass in float64.
class EncoderDecoderFixture {
 public:
  EncoderDecoderFixture(uint32_t seed, SourceOptions options) : model_(make(Random(seed))), layout_(*model_) {
    options.threads = 2, options.begin = kSpecial.begin;
    options.source_lengths = {7, 20}, options.max_length = 14;
    for (const auto& [name, count] :
        {std::pair{"parameters", layout_.parameter_count()}, {"constants", layout_.constant_count()}}) {
      const size_t bytes = static_cast<size_t>(count) * sizeof(float);
      store_.bind(name, {store_.add_region(name, MemoryKind::kParameters, bytes), 0}, bytes);
    }
    const SharedRegions shared{store_.add_region("arena", MemoryKind::kActivations, 0),
        store_.add_region("workspace", MemoryKind::kWorkspace, 0)};
    generator_.emplace(*model_, layout_, store_, shared, options,
        SearchSettings{.generate = {.ends = {kSpecial.end}, .never = {kSpecial.pad}}});
    store_.allocate();
    generator_->bind();
    layout_.initialize_parameters(seed, store_.as<float>("parameters"), pool_);
    layout_.initialize_constants(store_.as<float>("constants"), pool_);
  }

  int64_t vocab() const { return model_->output_vocab_size(); }
  std::vector<std::vector<Hypothesis>> generate(const std::vector<Ids>& sources, int64_t n_best) {
    return generator_->generate(sources, n_best, pool_);
  }

  double log_probability(const Ids& source, Ids target, bool finished) {
    Ids before = target;
    before.insert(before.begin(), kSpecial.begin);
    if (finished) target.push_back(kSpecial.end);
    Trace trace({.dtype = DType::kF64, .layout = &layout_});
    NamedTensors inputs;
    const auto put = [&](const char* name, Shape shape, const Ids& values) {
      inputs[name] = HostTensor({DType::kI32, shape}, std::span<const int32_t>(values));
      return trace.graph().input(name, {DType::kI32, shape});
    };
    const auto size = [](const Ids& ids) { return static_cast<int32_t>(ids.size()); };
    trace.graph().output(
        "logits", logits_(put("source", {1, size(source)}, source), put("lengths", {1}, {size(source)}),
                      put("target", {1, size(before)}, before), put("target_lengths", {1}, {size(before)})));
    for (const auto& [name, count] :
        {std::pair{"parameters", layout_.parameter_count()}, {"constants", layout_.constant_count()}}) {
      const std::vector<double> values(store_.as<float>(name), store_.as<float>(name) + count);
      inputs[name] = HostTensor({DType::kF64, {count}}, std::span<const double>(values));
    }
    const std::vector<double> logits = interpret(trace.finish(), inputs).outputs.at("logits").values();
    double total = 0;
    for (size_t i = 0; i < target.size(); ++i) {
      const double* row = logits.data() + static_cast<int64_t>(i) * vocab();
      double sum = 0;
      for (int64_t v = 0; v < vocab(); ++v) sum += std::exp(row[v]);
      total += row[target[i]] - std::log(sum);
    }
    return total;
  }

 private:
  std::unique_ptr<EncoderDecoder> make(Random random) { return random.coin() ? make_t5(random) : make_marian(random); }

  std::unique_ptr<EncoderDecoder> make_t5(Random& random) {
    T5Config config{.vocab_size = random(12, 40), .width = 4 * random(1, 8), .heads = random(1, 5)};
    config.head_size = random(1, 9), config.hidden = random(8, 40);
    config.encoder_layers = random(1, 3), config.decoder_layers = random(1, 3);
    config.buckets = 4 * random(1, 4), config.max_distance = config.buckets / 2 + random(1, 20);
    config.gated = random.coin(), config.tied_head = config.scaled_head = random.coin();
    auto model = std::make_unique<T5>(config);
    logits_ = [&t5 = *model](Tensor source, Tensor lengths, Tensor target, Tensor) {
      return t5.logits(t5.hidden(source, lengths, target));
    };
    return model;
  }

  std::unique_ptr<EncoderDecoder> make_marian(Random& random) {
    TransformerConfig config;
    config.source_vocab = config.target_vocab = random(12, 40);
    config.num_heads = random(1, 5), config.d_model = 2 * config.num_heads * random(1, 6);
    config.d_ff = random(8, 40), config.num_encoder_layers = random(1, 3), config.num_decoder_layers = random(1, 3);
    config.max_seq_len = 24;
    config.norm_first = config.final_norm = random.coin();
    config.share_embeddings = random.coin(), config.tie_head = random.coin();
    config.positions = random.coin() ? Positions::kHalved : Positions::kAlternating,
    config.scale_embedding = random.coin();
    auto model = std::make_unique<Transformer>(config);
    logits_ = [&marian = *model](Tensor source, Tensor lengths, Tensor target, Tensor target_lengths) {
      return marian(source, lengths, target, target_lengths);
    };
    return model;
  }

  std::function<Tensor(Tensor, Tensor, Tensor, Tensor)> logits_;
  std::unique_ptr<EncoderDecoder> model_;
  ParameterLayout layout_;
  Store store_;
  std::optional<SourceGenerator> generator_;
  ThreadPool pool_{2};
};

class EncoderDecoderFuzz : public testing::TestWithParam<uint32_t> {};

TEST_P(EncoderDecoderFuzz, ABatchGivesWhatEachSourceGivesAndTheForwardPassSays) {
  Random random(GetParam() + 500);
  const int64_t beams = random(1, 4), count = random(2, 4);
  EncoderDecoderFixture together(GetParam(), {.rows = count, .beams = beams}),
      alone(GetParam(), {.rows = 1, .beams = beams});
  std::vector<Ids> sources;
  for (int64_t i = 0; i < count; ++i) {
    sources.push_back(random.ids(random(1, 18), 3, together.vocab()));
    sources.back().push_back(kSpecial.end);
  }
  const auto batch = together.generate(sources, beams);
  for (size_t i = 0; i < sources.size(); ++i) {
    const auto one = alone.generate({sources[i]}, beams);
    ASSERT_EQ(batch[i].size(), one[0].size());
    for (size_t j = 0; j < batch[i].size(); ++j) {
      const Hypothesis& hypothesis = batch[i][j];
      EXPECT_EQ(hypothesis.ids, one[0][j].ids);
      const double want = together.log_probability(sources[i], hypothesis.ids, hypothesis.finished);
      EXPECT_NEAR(hypothesis.log_probability, want, 1e-5 * std::max(1.0, std::abs(want)));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, EncoderDecoderFuzz, testing::Range(1u, 21u));
}  // namespace
}  // namespace linnet
