#include <gtest/gtest.h>
#include <algorithm>
#include <cmath>
#include "engine/exec/interpreter.h"
#include "generation/engine.h"
#include "models/modules/t5.h"
#include "models/nn/trace.h"

namespace linnet {
namespace {
using Ids = std::vector<int32_t>;
constexpr SpecialTokens kSpecial{.pad = 0, .unknown = 2, .begin = 0, .end = 1};

struct Fixture {
  explicit Fixture(SourceOptions options) : model(config()), layout(model) {
    const auto bytes = static_cast<size_t>(layout.parameter_count()) * 4;
    store.bind("parameters", {store.add_region("weights", MemoryKind::kParameters, bytes), 0}, bytes);
    const SharedRegions shared{store.add_region("arena", MemoryKind::kActivations, 0),
        store.add_region("workspace", MemoryKind::kWorkspace, 0)};
    options.threads = 2, options.begin = kSpecial.begin;
    generator.emplace(model, layout, store, shared, options,
        SearchSettings{.generate = {.ends = {kSpecial.end}, .never = {kSpecial.pad}}});
    store.allocate();
    generator->bind();
    layout.initialize_parameters(3, store.as<float>("parameters"), pool);
  }

  static T5Config config() {
    T5Config config{.vocab_size = 20, .width = 16, .heads = 2, .head_size = 6, .hidden = 24, .encoder_layers = 2};
    config.decoder_layers = 2, config.buckets = 8, config.max_distance = 10, config.gated = true;
    config.tied_head = config.scaled_head = false;
    return config;
  }

  // The logits [V] behind begin and `ids`, without cache, padding or batch, in float64.
  std::vector<double> forward(const Ids& source, Ids ids) {
    ids.insert(ids.begin(), kSpecial.begin);
    Trace trace({.dtype = DType::kF64, .layout = &layout});
    NamedTensors inputs;
    const auto put = [&](const char* name, Shape shape, const Ids& values) {
      inputs[name] = HostTensor({DType::kI32, shape}, std::span<const int32_t>(values));
      return trace.input(name, {DType::kI32, shape});
    };
    const auto count = [](const Ids& x) { return static_cast<int64_t>(x.size()); };
    const Tensor from = put("source", {1, count(source)}, source),
                 lengths = put("lengths", {1}, {static_cast<int32_t>(source.size())}),
                 to = put("target", {1, count(ids)}, ids);
    trace.graph().output("logits", model.logits(model.hidden(from, lengths, to)));
    const float* parameters = store.as<float>("parameters");
    const std::vector<double> weights(parameters, parameters + layout.parameter_count());
    inputs["parameters"] = HostTensor({DType::kF64, {layout.parameter_count()}}, std::span<const double>(weights));
    const std::vector<double> all = interpret(trace.finish(), inputs).outputs.at("logits").values();
    return {all.end() - 20, all.end()};
  }

  T5 model;
  ParameterLayout layout;
  Store store;
  std::optional<SourceGenerator> generator;
  ThreadPool pool{2};
};

// Sentences of unequal lengths at once, on the cache: the tokens, and the probability of them all.
TEST(T5Generator, OneBeamIsGreedySearchAndCachedStepsGiveTheSameProbabilities) {
  Fixture fixture({.rows = 3, .max_length = 18, .source_lengths = {4, 14}});
  const std::vector<Ids> sources{{5, 1}, {3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 1}, {19, 2, 2, 17, 1}};
  const auto results = fixture.generator->generate(sources, 1, fixture.pool);
  size_t generated = 0;
  for (size_t i = 0; i < sources.size(); ++i) {
    Ids ids;
    double total = 0;
    bool ended = false;
    while (ids.size() < 18 && !ended) {
      const std::vector<double> logits = fixture.forward(sources[i], ids);
      const auto best = std::max_element(logits.begin() + 1, logits.end());  // padding is never generated
      double sum = 0;
      for (double x : logits) sum += std::exp(x);
      total += *best - std::log(sum);
      ended = best - logits.begin() == kSpecial.end;
      if (!ended) ids.push_back(static_cast<int32_t>(best - logits.begin()));
    }
    EXPECT_EQ(results[i][0].ids, ids);
    EXPECT_NEAR(results[i][0].log_probability, total, 1e-4);
    generated += ids.size();
  }
  EXPECT_GT(generated, 15u);
}

// Beams move between the rows of the cache.
TEST(T5Generator, TheBestOfABeamHasTheProbabilityOfItsTokens) {
  Fixture fixture({.rows = 2, .beams = 4, .max_length = 8, .source_lengths = {6}});
  const std::vector<Ids> sources{{5, 9, 1}, {3, 4, 5, 6, 7, 1}};
  const auto results = fixture.generator->generate(sources, 4, fixture.pool);
  for (size_t i = 0; i < sources.size(); ++i)
    for (const Hypothesis& hypothesis : results[i]) {
      Ids tokens = hypothesis.ids, before;
      if (hypothesis.finished) tokens.push_back(kSpecial.end);
      double total = 0;
      for (const int32_t token : tokens) {
        const std::vector<double> logits = fixture.forward(sources[i], before);
        double sum = 0;
        for (double x : logits) sum += std::exp(x);
        total += logits[static_cast<size_t>(token)] - std::log(sum);
        before.push_back(token);
      }
      EXPECT_NEAR(hypothesis.log_probability, total, 1e-4);
    }
}
}  // namespace
}  // namespace linnet
