#include <gtest/gtest.h>
#include <algorithm>
#include <cmath>
#include <random>
#include "data/text/tokenizer.h"
#include "engine/exec/interpreter.h"
#include "engine/plan/plan.h"
#include "generation/engine.h"
#include "models/modules/transformer.h"
#include "models/nn/trace.h"

namespace linnet {
namespace {
using Ids = std::vector<int32_t>;
constexpr SpecialTokens kSpecial;

TransformerConfig small(int64_t vocab, bool tied = false) {
  TransformerConfig config;
  config.source_vocab = config.target_vocab = vocab;
  config.d_model = 16, config.num_heads = 2, config.d_ff = 32;
  config.max_seq_len = 32;
  config.norm_first = config.final_norm = true;
  config.share_embeddings = config.tie_head = tied;
  return config;
}

// As translations are: padding and begin are never generated.
SearchSettings searching(SearchSettings settings) {
  settings.generate.ends = {kSpecial.end}, settings.generate.never = {kSpecial.pad, kSpecial.begin};
  return settings;
}

// A model with random weights and everything it takes to generate; and, apart from all of that, the model's plain
// forward pass in float64.
struct Fixture {
  Fixture(const TransformerConfig& config, SourceOptions options, SearchSettings settings = {}, float end_bias = 0,
      uint64_t seed = 1, bool packs_weights = false)
      : model(config), layout(model) {
    const auto bytes = [](int64_t count) { return static_cast<size_t>(count) * 4; };
    const RegionId weights = store.add_region("weights", MemoryKind::kParameters, bytes(layout.parameter_count()));
    const RegionId constants = store.add_region("constants", MemoryKind::kConstants, bytes(layout.constant_count()));
    store.bind("parameters", {weights, 0}, bytes(layout.parameter_count()));
    store.bind("constants", {constants, 0}, bytes(layout.constant_count()));
    shared = {store.add_region("arena", MemoryKind::kActivations, 0),
        store.add_region("workspace", MemoryKind::kWorkspace, 0)};
    options.threads = 3;  // the most a test uses
    generator = std::make_unique<SourceGenerator>(model, layout, store, shared, options, searching(settings));
    if (packs_weights) packed = PackedWeights(generator->packable_plans(), store);
    store.allocate();
    generator->bind();
    float* parameters = store.as<float>("parameters");
    ThreadPool pool(1);
    layout.initialize_parameters(seed, parameters, pool);
    layout.initialize_constants(store.as<float>("constants"), pool);
    for (int64_t i = 0; i < layout.parameter_count(); ++i) parameters[i] *= 1.7f;  // less even probabilities
    for (const ParameterSlot& location : layout.parameters())
      if (location.spec.name == "head.bias") parameters[location.offset + kSpecial.end] += end_bias;
    packed.pack(store, pool);
  }

  // Logits [T, V] after begin and each of `ids`, without cache, padding or batch.
  std::vector<std::vector<double>> forward(const Ids& source, const Ids& ids) {
    Ids target{kSpecial.begin};
    target.insert(target.end(), ids.begin(), ids.end());
    const auto length = [](const Ids& x) { return static_cast<int64_t>(x.size()); };
    Trace trace({.dtype = DType::kF64, .layout = &layout});
    Graph& graph = trace.graph();
    const auto ints = [&](const char* name, Shape shape) { return graph.input(name, {DType::kI32, shape}); };
    graph.output("logits",
        model(ints("s", {1, length(source)}), ints("sl", {1}), ints("t", {1, length(target)}), ints("tl", {1})));
    NamedTensors inputs;
    const auto put = [&](const char* name, Shape shape, const Ids& values) {
      inputs[name] = HostTensor({DType::kI32, shape}, std::span<const int32_t>(values));
    };
    put("s", {1, length(source)}, source);
    put("sl", {1}, {static_cast<int32_t>(source.size())});
    put("t", {1, length(target)}, target);
    put("tl", {1}, {static_cast<int32_t>(target.size())});
    const auto put_floats = [&](const char* name, int64_t count) {
      const std::vector<double> values(store.as<float>(name), store.as<float>(name) + count);
      inputs[name] = HostTensor({DType::kF64, {count}}, std::span<const double>(values));
    };
    put_floats("parameters", layout.parameter_count());
    put_floats("constants", layout.constant_count());
    const std::vector<double> flat = interpret(trace.finish(), inputs).outputs.at("logits").values();
    std::vector<std::vector<double>> logits;
    const auto vocab = static_cast<std::ptrdiff_t>(model.config.target_vocab);
    for (auto row = flat.begin(); row != flat.end(); row += vocab) logits.emplace_back(row, row + vocab);
    return logits;
  }

  double log_probability(const Ids& source, Ids ids, bool finished) {
    const auto logits = forward(source, ids);
    if (finished) ids.push_back(kSpecial.end);
    double total = 0;
    for (size_t i = 0; i < ids.size(); ++i) {
      double sum = 0;
      for (double x : logits[i]) sum += std::exp(x);
      total += logits[i][static_cast<size_t>(ids[i])] - std::log(sum);
    }
    return total;
  }

  std::vector<std::vector<Hypothesis>> generate(const std::vector<Ids>& sources, int n_best = 1, int threads = 2) {
    ThreadPool pool(threads);
    return generator->generate(sources, n_best, pool);
  }

  Transformer model;
  ParameterLayout layout;
  Store store;
  SharedRegions shared;
  std::unique_ptr<SourceGenerator> generator;
  PackedWeights packed;
};

std::vector<Ids> random_sources(int count, int32_t vocab, int longest, uint32_t seed = 7) {
  std::mt19937 random(seed);
  std::vector<Ids> sources;
  for (int i = 0; i < count; ++i) {
    Ids ids(1 + random() % static_cast<uint32_t>(longest - 1));
    for (int32_t& id : ids)
      id = kSpecialTokenCount + static_cast<int32_t>(random() % static_cast<uint32_t>(vocab - kSpecialTokenCount));
    ids.push_back(kSpecial.end);
    sources.push_back(ids);
  }
  return sources;
}

void expect_same(
    const std::vector<std::vector<Hypothesis>>& a, const std::vector<std::vector<Hypothesis>>& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].size(), b[i].size());
    for (size_t j = 0; j < a[i].size(); ++j) {
      EXPECT_EQ(a[i][j].ids, b[i][j].ids) << "sentence " << i << ", hypothesis " << j;
      EXPECT_LE(std::abs(a[i][j].score - b[i][j].score), tolerance);
      EXPECT_EQ(a[i][j].finished, b[i][j].finished);
    }
  }
}

// Rows at positions of their own, as requests that began at different steps are.
TEST(SourceGenerator, CachedStepsGiveTheLogitsOfTheWholeForwardPass) {
  const int64_t beams = 3, sentences = 2, rows = sentences * beams, vocab = 11, longest = 9, late = 2;
  Fixture f(small(vocab), {.rows = sentences, .beams = beams, .max_length = longest, .source_lengths = {6}});
  const std::vector<Ids> sources{{5, 6, 7, 3}, {9, 8, 7, 6, 5, 3}};
  const auto input = [&](const char* name) { return f.store.as<int32_t>(std::string("generate.") + name); };
  std::fill_n(input("source"), 12, 0);
  for (size_t i = 0; i < 2; ++i) {
    std::copy(sources[i].begin(), sources[i].end(), input("source") + 6 * i);
    input("source_lengths")[i] = input("memory_lengths")[1 - i] = static_cast<int32_t>(sources[i].size());
    input("groups")[i] = static_cast<int32_t>(1 - i);
  }
  const Executor prefill(*f.generator->plans()[0], f.store, f.shared),
      decode(*f.generator->plans()[1], f.store, f.shared);
  ThreadPool pool(2);
  prefill.run(pool);
  // Any parents and tokens will do: cycles, twins, rows that stay.
  std::mt19937 random(3);
  std::vector<Ids> history(rows);
  for (int64_t step = 0; step < longest + late; ++step) {
    std::vector<Ids> next;
    for (int64_t r = 0; r < rows; ++r) {
      const auto position = static_cast<int32_t>(std::clamp<int64_t>(r < beams ? step : step - late, -1, longest - 1));
      const bool runs = position >= 0 && (r >= beams || step < longest);
      const auto parent = static_cast<int32_t>(r / beams * beams + random() % beams);
      const int32_t token = position <= 0 ? kSpecial.begin : static_cast<int32_t>(random() % vocab);
      input("parents")[r] = parent, input("tokens")[r] = token;
      input("positions")[r] = runs ? position : 0, input("lengths")[r] = runs ? position + 1 : 0;
      next.push_back(history[static_cast<size_t>(parent)]);
      if (position > 0) next.back().push_back(token);
    }
    history = next;
    decode.run(pool);
    const float* logits = decode.output("logits").as<float>();
    for (int64_t r = 0; r < rows; ++r) {
      if (input("lengths")[r] == 0) continue;
      const std::vector<double> want =
          f.forward(sources[static_cast<size_t>(1 - r / beams)], history[static_cast<size_t>(r)]).back();
      double error = 0, size = 0, sum = 0;
      for (int64_t v = 0; v < vocab; ++v) {
        error += std::pow(logits[r * vocab + v] - want[static_cast<size_t>(v)], 2);
        size += std::pow(want[static_cast<size_t>(v)], 2);
        sum += std::exp(want[static_cast<size_t>(v)]);
      }
      EXPECT_LE(std::sqrt(error), 2.5e-5 * std::sqrt(size)) << "row " << r << ", step " << step;
      EXPECT_NEAR(decode.output("log_sum_exp").as<float>()[r], std::log(sum), 1e-5);
    }
  }
}

TEST(SourceGenerator, OneBeamIsGreedySearch) {
  int grown = 0, cut = 0;
  for (const float end_bias : {0.0f, 4.0f, 6.0f, 8.0f}) {
    Fixture f(small(11, end_bias < 5), {.rows = 4, .max_length = 8, .source_lengths = {5, 10}}, {}, end_bias);
    const std::vector<Ids> sources = random_sources(9, 11, 10);
    const auto results = f.generate(sources);
    for (size_t i = 0; i < sources.size(); ++i) {
      Ids ids;
      bool ended = false;
      while (ids.size() < 8 && !ended) {
        std::vector<double> logits = f.forward(sources[i], ids).back();
        logits[static_cast<size_t>(kSpecial.pad)] = logits[static_cast<size_t>(kSpecial.begin)] = -1e30;
        const auto best = static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
        ended = best == kSpecial.end;
        if (!ended) ids.push_back(best);
      }
      ASSERT_EQ(results[i].size(), 1u);
      EXPECT_EQ(results[i][0].ids, ids) << "sentence " << i;
      EXPECT_EQ(results[i][0].finished, ended);
      if (!ended) ++cut;
      if (ended && !ids.empty()) ++grown;
    }
  }
  EXPECT_GT(grown, 0) << "the test should see some sentences end after a while";
  EXPECT_GT(cut, 0) << "and some not";
}

// All sequences of up to three tokens: 21 that end in time, 64 that do not, ranked together.
TEST(SourceGenerator, WithEnoughBeamsTheBestOfAllSequencesAreFound) {
  for (const double penalty : {0.0, 1.0, 2.0}) {
    Fixture f(small(7), {.rows = 2, .beams = 90, .max_length = 3, .source_lengths = {5}},
        {.generate = {.length_penalty = penalty}});
    const Ids source{4, 6, 5, 3};
    std::vector<Hypothesis> all;
    const std::function<void(Ids)> visit = [&](Ids ids) {
      const bool finished = ids.size() < 3;
      const double log_probability = f.log_probability(source, ids, finished);
      const double length = static_cast<double>(ids.size()) + (finished ? 1 : 0);
      all.push_back({ids, log_probability / std::pow(length, penalty), log_probability, finished});
      for (const int32_t next : {1, 4, 5, 6})
        if (finished) {
          Ids longer = ids;
          longer.push_back(next);
          visit(longer);
        }
    };
    visit({});
    std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.score > b.score; });
    const auto results = f.generate({source}, 90);
    ASSERT_EQ(results[0].size(), 21u + 64u);
    for (size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ(results[0][i].ids, all[i].ids) << "rank " << i;
      EXPECT_NEAR(results[0][i].score, all[i].score, 1e-4);
      EXPECT_EQ(results[0][i].finished, all[i].finished);
    }
  }
}

TEST(SourceGenerator, ABatchGivesWhatSentencesGiveAloneInTheirOrder) {
  for (const int64_t beams : {1, 4}) {
    Fixture f(small(13), {.rows = 4, .beams = beams, .max_length = 12, .source_lengths = {4, 7, 12}}, {}, 1.0f);
    const std::vector<Ids> sources = random_sources(11, 13, 12);
    const auto together = f.generate(sources, static_cast<int>(beams));
    std::vector<std::vector<Hypothesis>> alone;
    for (const Ids& source : sources) alone.push_back(f.generate({source}, static_cast<int>(beams))[0]);
    expect_same(together, alone, 0);
  }
}

TEST(SourceGenerator, TheNumberOfThreadsChangesNoBit) {
  Fixture f(small(50), {.rows = 5, .beams = 3, .max_length = 20, .source_lengths = {12}}, {}, 0.5f);
  const std::vector<Ids> sources = random_sources(12, 50, 12);
  const auto one = f.generate(sources, 3, 1);
  expect_same(one, f.generate(sources, 3, 2), 0);
  expect_same(one, f.generate(sources, 3, 3), 0);
}

TEST(SourceGenerator, NBestIsSortedDistinctAndScoredByTheModel) {
  Fixture f(small(13), {.rows = 4, .beams = 5, .max_length = 12, .source_lengths = {12}},
      {.generate = {.length_penalty = 0.7}}, 1.5f);
  const std::vector<Ids> sources = random_sources(6, 13, 12);
  const auto results = f.generate(sources, 5);
  for (size_t i = 0; i < sources.size(); ++i) {
    ASSERT_EQ(results[i].size(), 5u);
    for (size_t j = 0; j < 5; ++j) {
      const Hypothesis& h = results[i][j];
      EXPECT_NEAR(h.log_probability, f.log_probability(sources[i], h.ids, h.finished), 1e-4);
      EXPECT_NEAR(h.score, h.log_probability / std::pow(h.ids.size() + (h.finished ? 1.0 : 0.0), 0.7), 1e-9);
      for (int32_t id : h.ids) EXPECT_TRUE(id != kSpecial.pad && id != kSpecial.begin && id != kSpecial.end);
      if (j == 0) continue;
      EXPECT_GE(results[i][j - 1].score, h.score);
      for (size_t k = 0; k < j; ++k) EXPECT_FALSE(results[i][k].ids == h.ids && results[i][k].finished == h.finished);
    }
  }
}

TEST(SourceGenerator, LimitsLengthAndRefusesWhatDoesNotFit) {
  Fixture f(small(13), {.rows = 2, .max_length = 100, .source_lengths = {6}}, {.length_ratio = 1, .length_margin = 3},
      -100.0f);
  ThreadPool pool(1);
  EXPECT_TRUE(f.generator->generate({}, 1, pool).empty());
  const std::vector<Ids> sources{{5, 3}, {5, 6, 7, 8, 3}, {3}};
  const auto results = f.generator->generate(sources, 1, pool);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(results[i][0].ids.size(), sources[i].size() + 3);
  EXPECT_FALSE(results[0][0].finished);
  EXPECT_THROW(f.generate({{5, 5, 5, 5, 5, 5, 3}}), Error);
  EXPECT_THROW(f.generate(sources, 2), Error);
}

// Encoding, and steps of 16 rows and more, read weights that were packed once; a step of 8 rows reads them as they are.
TEST(SourceGenerator, PackedWeightsGiveTheSameTexts) {
  TransformerConfig config = small(64);
  config.d_model = 32, config.d_ff = 64;
  const auto sources = random_sources(11, 64, 12);
  std::vector<size_t> weights;
  for (const int64_t rows : {4, 16}) {
    const SourceOptions options{.rows = rows, .beams = 2, .max_length = 16, .source_lengths = {12}};
    Fixture plain(config, options), packing(config, options, {}, 0, 1, /*packs_weights=*/true);
    expect_same(packing.generate(sources, 2), plain.generate(sources, 2), 0);
    weights.push_back(packing.packed.size());
  }
  EXPECT_GT(weights[0], 0U) << "the encoder's";
  EXPECT_GT(weights[1], weights[0]) << "the decoder's, too";
}
}  // namespace
}  // namespace linnet
