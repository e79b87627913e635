#include <gtest/gtest.h>
#include <cmath>
#include "engine/exec/interpreter.h"
#include "generation/engine.h"
#include "models/modules/encoder_decoder.h"
#include "models/modules/t5.h"
#include "models/modules/transformer.h"
#include "models/nn/trace.h"

namespace linnet {
namespace {
using Ids = std::vector<int32_t>;
constexpr int32_t kVocab = 15, kPad = 0, kBegin = 2, kEnd = 3;

std::shared_ptr<EncoderDecoder> make_transformer(int64_t layers) {
  TransformerConfig config;
  config.source_vocab = config.target_vocab = kVocab;
  config.d_model = 16, config.num_heads = 2, config.d_ff = 24, config.max_seq_len = 24;
  config.num_encoder_layers = config.num_decoder_layers = layers;
  return std::make_shared<Transformer>(config);
}

std::shared_ptr<EncoderDecoder> make_t5() {
  T5Config config{.vocab_size = kVocab, .width = 12, .heads = 2, .head_size = 5, .hidden = 20, .encoder_layers = 1};
  config.decoder_layers = 1, config.buckets = 8, config.max_distance = 10;
  return std::make_shared<T5>(config);
}

// Weights of a seed each. Seeds that are equal belong to members that are alike.
struct Fixture {
  Fixture(std::shared_ptr<EncoderDecoder> of, const std::vector<uint64_t>& seeds,
      const std::vector<const ParameterLayout*>& members = {})
      : model(std::move(of)), layout(*model) {
    for (const auto& [name, count] :
        {std::pair{"parameters", layout.parameter_count()}, {"constants", layout.constant_count()}}) {
      const size_t bytes = static_cast<size_t>(std::max<int64_t>(count, 1)) * sizeof(float);
      store.bind(name, {store.add_region(name, MemoryKind::kParameters, bytes), 0}, bytes);
    }
    const SharedRegions shared{store.add_region("arena", MemoryKind::kActivations, 0),
        store.add_region("workspace", MemoryKind::kWorkspace, 0)};
    generator.emplace(*model, layout, store, shared,
        SourceOptions{.rows = 3, .beams = 3, .max_length = 8, .source_lengths = {8}, .threads = 2},
        SearchSettings{.generate = {.ends = {kEnd}, .never = {kPad, kBegin}}});
    store.allocate();
    generator->bind();
    layout.initialize_constants(store.as<float>("constants"), pool);
    if (members.empty()) fill(layout, seeds[0], "");
    for (size_t i = 0; i < members.size(); ++i) fill(*members[i], seeds[i], std::to_string(i) + ".");
  }

  // Draws as a model of this layout by itself does, for the parameters whose names begin with `prefix`.
  void fill(const ParameterLayout& member, uint64_t seed, const std::string& prefix) {
    std::vector<float> weights(static_cast<size_t>(member.parameter_count()));
    member.initialize_parameters(seed, weights.data(), pool);
    for (const ParameterSlot& from : member.parameters())
      for (const ParameterSlot& to : layout.parameters())
        if (to.spec.name == prefix + from.spec.name)
          for (int64_t i = 0; i < from.spec.shape.elements(); ++i)
            store.as<float>("parameters")[to.offset + i] = 1.7f * weights[static_cast<size_t>(from.offset + i)];
  }

  // The probabilities [V] behind begin and `ids`, without cache, padding or batch, in float64.
  std::vector<double> probabilities(const Ids& source, Ids ids) {
    ids.insert(ids.begin(), kBegin);
    Trace trace({.dtype = DType::kF64, .layout = &layout});
    NamedTensors inputs;
    const auto put = [&](const char* name, Shape shape, const Ids& values) {
      inputs[name] = HostTensor({DType::kI32, shape}, std::span<const int32_t>(values));
      return trace.graph().input(name, {DType::kI32, shape});
    };
    const auto size = [](const Ids& x) { return static_cast<int32_t>(x.size()); };
    const Tensor logits =
        model->target_logits(put("source", {1, size(source)}, source), put("lengths", {1}, {size(source)}),
            put("target", {1, size(ids)}, ids), put("target_lengths", {1}, {size(ids)}));
    trace.graph().output("logits", logits);
    for (const auto& [name, count] :
        {std::pair{"parameters", layout.parameter_count()}, {"constants", layout.constant_count()}}) {
      const std::vector<double> values(store.as<float>(name), store.as<float>(name) + count);
      inputs[name] = HostTensor({DType::kF64, {count}}, std::span<const double>(values));
    }
    const std::vector<double> all = interpret(trace.finish(), inputs).outputs.at("logits").values();
    std::vector<double> last(all.end() - kVocab, all.end());
    double sum = 0;
    for (double& x : last) sum += x = std::exp(x);
    for (double& x : last) x /= sum;
    return last;
  }

  std::vector<std::vector<Hypothesis>> generate(const std::vector<Ids>& sources) {
    return generator->generate(sources, 3, pool);
  }

  std::shared_ptr<EncoderDecoder> model;
  ParameterLayout layout;
  Store store;
  ThreadPool pool{2};
  std::optional<SourceGenerator> generator;
};

const std::vector<Ids> kSources{{5, 6, 3}, {7, 14, 13, 12, 3}, {4, 3}, {9, 9, 9, 8, 11, 4, 3}};

TEST(Ensemble, TheSameModelTwiceGivesTheHypothesesOfTheOneBitForBit) {
  Fixture one(make_transformer(2), {5});
  const ParameterLayout member(*make_transformer(2));
  const auto twice = [&] {
    return std::make_shared<Ensemble>(
        std::vector<std::shared_ptr<EncoderDecoder>>{make_transformer(2), make_transformer(2)});
  };
  Fixture same(twice(), {5, 5}, {&member, &member}), different(twice(), {5, 6}, {&member, &member});
  const auto want = one.generate(kSources), got = same.generate(kSources), other = different.generate(kSources);
  bool all_equal = true;
  for (size_t i = 0; i < want.size(); ++i)
    for (size_t j = 0; j < want[i].size(); ++j) {
      EXPECT_EQ(got[i][j].ids, want[i][j].ids);
      EXPECT_EQ(got[i][j].score, want[i][j].score);
      all_equal = all_equal && other[i][j].score == want[i][j].score;
    }
  EXPECT_FALSE(all_equal);
}

// Three members of different kinds and depths.
TEST(Ensemble, ScoresAreThoseOfTheMeanOfTheProbabilities) {
  const auto members = [] {
    return std::vector<std::shared_ptr<EncoderDecoder>>{make_transformer(1), make_t5(), make_transformer(2)};
  };
  std::vector<std::unique_ptr<Fixture>> alone;
  std::vector<const ParameterLayout*> layouts;
  for (uint64_t i = 0; i < 3; ++i) {
    alone.push_back(std::make_unique<Fixture>(members()[i], std::vector<uint64_t>{i + 1}));
    layouts.push_back(&alone.back()->layout);
  }
  Fixture ensemble(std::make_shared<Ensemble>(members()), {1, 2, 3}, layouts);
  const auto found = ensemble.generate(kSources);
  for (size_t i = 0; i < kSources.size(); ++i)
    for (const Hypothesis& hypothesis : found[i]) {
      Ids tokens = hypothesis.ids, before;
      if (hypothesis.finished) tokens.push_back(kEnd);
      double total = 0;
      for (const int32_t token : tokens) {
        double mean = 0;
        for (const auto& member : alone)
          mean += member->probabilities(kSources[i], before)[static_cast<size_t>(token)] / 3;
        EXPECT_NEAR(ensemble.probabilities(kSources[i], before)[static_cast<size_t>(token)], mean, 1e-9);
        total += std::log(mean);
        before.push_back(token);
      }
      EXPECT_NEAR(hypothesis.log_probability, total, 1e-4);
    }
}
}  // namespace
}  // namespace linnet
