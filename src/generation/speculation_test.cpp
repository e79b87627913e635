// A draft model and a prefix cache change how fast a text is written, and nothing of it.
#include <gtest/gtest.h>
#include <algorithm>
#include <random>
#include "base/json.h"
#include "causal_testing.h"
#include "engine_testing.h"
#include "error_of.h"
#include "generation/prefix_cache.h"
#include "generation/text_grammar.h"
#include "models/modules/text_decoder.h"

namespace linnet {
namespace {
using Ids = std::vector<int32_t>;

constexpr int32_t kVocab = 20;
constexpr int64_t kLength = 160;

struct Sizes {
  int64_t width = 48, layers = 2, vocab = kVocab, length = kLength;
};

std::unique_ptr<CausalModel> make_model(bool llama, const Sizes& sizes = {}) {
  if (!llama)
    return std::make_unique<TextDecoder>(DecoderConfig{.vocab_size = sizes.vocab,
        .max_seq_len = sizes.length,
        .width = sizes.width,
        .heads = 4,
        .layers = sizes.layers});
  DecoderConfig config =
      llama_kind({.vocab_size = sizes.vocab, .max_seq_len = sizes.length, .width = sizes.width, .heads = 4});
  config.layers = sizes.layers, config.hidden = 80, config.kv_heads = 2, config.head_size = 18;
  config.deviation = 0.05, config.window = 100;
  return std::make_unique<TextDecoder>(config);
}

// An engine, with a draft model or without. Models of equal sizes have equal weights.
struct Writer {
  Writer(bool llama, CausalOptions options, std::optional<Sizes> draft_sizes = {}, int64_t draft_tokens = 3)
      : model(make_model(llama)) {
    options = model.with_threads(options);
    std::optional<DraftModel> guessing;
    if (draft_sizes) {
      draft.emplace(make_model(llama, *draft_sizes));
      guessing.emplace(DraftModel{*draft->model, draft->layout, draft->store, draft->shared, draft_tokens});
    }
    engine.emplace(*model.model, model.layout, model.store, model.shared, options, guessing);
    model.finish();
    if (draft) draft->finish();
    engine->bind();
  }
  std::map<size_t, Written> write(const std::vector<GenerateRequest>& requests, size_t most_arrivals) {
    std::vector<size_t> order(requests.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::mt19937 random(7);
    return write_all(*engine, model.pool, requests, order, most_arrivals, random);
  }

  ModelFixture model;
  std::optional<ModelFixture> draft;
  std::optional<Engine> engine;
};

// Many of them begin alike. Some are greedy, some end early, some fill the cache, and some go on where it is full.
std::vector<GenerateRequest> random_requests(int count) {
  std::mt19937 random(11);
  const auto pick = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  };
  const auto random_ids = [&](int64_t size) {
    Ids ids(static_cast<size_t>(size));
    for (int32_t& id : ids) id = static_cast<int32_t>(pick(0, kVocab - 1));
    return ids;
  };
  const Ids beginnings[] = {random_ids(100), random_ids(70), random_ids(33)};
  std::vector<GenerateRequest> requests;
  for (int i = 0; i < count; ++i) {
    GenerateRequest request;
    const Ids& beginning = beginnings[pick(0, 2)];
    if (pick(0, 3) > 0) request.prompt.assign(beginning.begin(), beginning.end() - pick(0, 9));
    const Ids rest = random_ids(pick(1, 40));
    request.prompt.insert(request.prompt.end(), rest.begin(), rest.end());
    GenerateSettings& settings = request.settings;
    settings.max_tokens = pick(1, 30);
    if (pick(0, 1)) settings.ends = {static_cast<int32_t>(pick(0, kVocab - 1))};
    settings.first_sample = static_cast<uint64_t>(pick(0, 3));
    settings.log_probabilities = pick(0, 1);
    settings.slide = pick(0, 1);
    settings.sampling.seed = random();
    if (pick(0, 1)) settings.sampling.temperature = 0;
    if (pick(0, 3) == 0) settings.sampling.repetition_penalty = 1.3;
    if (pick(0, 3) == 0) settings.sampling.top_p = 0.9;
    requests.push_back(std::move(request));
  }
  return requests;
}

void expect_all_same(
    const std::map<size_t, Written>& got, const std::map<size_t, Written>& want, const std::string& where) {
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [i, text] : got) expect_same(text, want.at(i), i, where);
}

class Speculation : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(
    Model, Speculation, testing::Bool(), [](const auto& info) { return info.param ? "Llama" : "Gpt"; });

TEST_P(Speculation, ADraftModelChangesNoTokenAndNoLogit) {
  std::vector<GenerateRequest> requests = random_requests(60);
  // Some write a list of lists of numbers.
  const auto grammar = std::make_shared<const TextGrammar>(json_schema_grammar(Json::parse(
      R"({"type": "array", "items": {"type": "array", "items": {"type": "integer"}}})", JsonLimits::request())));
  const auto texts = std::make_shared<const TokenTexts>(std::vector<std::string>{
      "[", "]", ",", "0", "1", "2", "-", "a", "[[", "]]", "], [", "12", "3", " ", "\n", "x", "4,", "[5", "6]", ""});
  for (size_t i = 0; i < requests.size(); i += 3) {
    requests[i].settings.grammar = grammar, requests[i].settings.texts = texts;
    requests[i].settings.sampling.frequency_penalty = 0.5;
  }
  const std::map<size_t, Written> want = Writer(GetParam(), {.rows = 1}).write(requests, 0);
  int whole = 0;
  for (size_t i = 0; i < requests.size(); i += 3) {
    std::string text;
    for (const int32_t token : want.at(i).finished.result.tokens) text += (*texts)[token];
    EXPECT_TRUE(text.find_first_not_of(" \n") == text.npos || text[text.find_first_not_of(" \n")] == '[') << text;
    EXPECT_EQ(text.find_first_of("ax"), text.npos) << text;
    whole += Json::parse_or_null(text, JsonLimits::request()).is_array();
  }
  EXPECT_GT(whole, 0);
  struct Draft {
    Sizes sizes;
    int64_t tokens;
    std::string name;
  };
  for (const Draft& draft : {Draft{{}, 4, "the model itself"}, Draft{{.width = 16, .layers = 1}, 1, "a small model"},
           Draft{{.width = 16, .layers = 1, .length = 90}, 6, "a model with less room"}}) {
    Writer writer(GetParam(), {.rows = 5}, draft.sizes, draft.tokens);
    expect_all_same(writer.write(requests, 3), want, draft.name);
    const EngineCounts counts = writer.engine->counts();
    EXPECT_GT(counts.guessed, 50) << draft.name;
    EXPECT_GT(counts.accepted, 0) << draft.name;
    EXPECT_LE(counts.accepted, counts.guessed);
  }
}

// What the model itself would say is what it guesses, so a step gives all tokens that it is fed, and one.
TEST_P(Speculation, AllGuessesOfTheModelItselfAreTaken) {
  Writer writer(GetParam(), {.rows = 1}, Sizes{}, 4);
  GenerateRequest request{.prompt = {1, 2, 3}, .settings = {.max_tokens = 21}};
  request.settings.sampling.temperature = 0.8;
  writer.engine->submit(request);
  int steps = 0;
  for (; writer.engine->busy(); ++steps) writer.engine->step(writer.model.pool);
  EXPECT_EQ(steps, 5);  // the prompt's, then 5 tokens each
  EXPECT_EQ(writer.engine->counts().accepted, 16);
  EXPECT_EQ(writer.engine->counts().guessed, 16);
}

TEST_P(Speculation, ThePrefixCacheChangesNoTokenAndNoLogit) {
  const std::vector<GenerateRequest> requests = random_requests(60);
  const std::map<size_t, Written> want = Writer(GetParam(), {.rows = 1}).write(requests, 0);
  Writer probe(GetParam(), {.rows = 1, .prefix_bytes = 1 << 20});
  probe.write({{.prompt = Ids(2 * PrefixCache::kBlock, 1)}}, 0);
  const int64_t block = probe.engine->counts().prefix_bytes / 2;
  for (const int64_t blocks : {2, 4, 100}) {
    Writer writer(GetParam(), {.rows = 3, .prefix_bytes = blocks * block}, Sizes{.width = 16, .layers = 1}, 2);
    const std::string where = std::to_string(blocks) + " blocks";
    expect_all_same(writer.write(requests, 2), want, where);
    const EngineCounts counts = writer.engine->counts();
    EXPECT_GT(counts.prefix_hits, blocks > 2 ? 10 : 0) << where;
    EXPECT_GT(counts.prefix_misses, 2) << where;
    EXPECT_GE(counts.reused_tokens, counts.prefix_hits * PrefixCache::kBlock);
    EXPECT_LT(counts.reused_tokens, counts.prompt_tokens);
    EXPECT_LE(counts.prefix_bytes, blocks * block);
  }
}

// Few plans are there at first, and others are made while texts are written, in the memory that there is.
TEST_P(Speculation, PlansThatAreMadeWhenTheyAreNeededChangeNoBit) {
  const std::vector<GenerateRequest> requests = random_requests(60);
  const std::map<size_t, Written> want = Writer(GetParam(), {.rows = 1}).write(requests, 0);
  for (const bool draft : {false, true}) {
    Writer writer(GetParam(), {.rows = 5, .prefix_bytes = 1 << 20, .plan_on_demand = true},
        draft ? std::optional(Sizes{.width = 16, .layers = 1}) : std::nullopt);
    EXPECT_EQ(writer.engine->plans().size(), 2u);
    const size_t bytes = writer.model.store.total_bytes();
    expect_all_same(writer.write(requests, 3), want, draft ? "with a draft model" : "alone");
    EXPECT_GT(writer.engine->plans().size(), 5u);
    EXPECT_EQ(writer.model.store.total_bytes(), bytes);
  }
}

// Searches go on from a prefix, too, though they have no draft model.
TEST_P(Speculation, ASearchGoesOnFromAPrefix) {
  std::vector<GenerateRequest> requests = random_requests(20);
  for (GenerateRequest& request : requests) {
    request.settings.slide = false;
    request.beams = 3;
  }
  const CausalOptions plain{.rows = 2, .beams = 3};
  CausalOptions kept = plain;
  kept.prefix_bytes = 1 << 20;
  Writer writer(GetParam(), kept);
  expect_all_same(writer.write(requests, 2), Writer(GetParam(), plain).write(requests, 2), "a search");
  EXPECT_GT(writer.engine->counts().prefix_hits, 5);
}

TEST(Speculation, WhatCannotBeDoneIsSaid) {
  const auto problem = [](const CausalOptions& options, const std::optional<Sizes>& draft) {
    return error_of([&] { Writer(false, options, draft); });
  };
  EXPECT_PRED2(has_text, problem({}, Sizes{.vocab = kVocab + 1}), "21 tokens and the model one of 20");
  EXPECT_PRED2(has_text, problem({.beams = 2}, Sizes{}), "not for beam search");
  EXPECT_PRED2(has_text, problem({.cache = false}, Sizes{}), "needs the cache");
  EXPECT_PRED2(has_text, problem({.prefix_bytes = 100}, {}), "of this model take");
  EXPECT_PRED2(has_text, problem({.cache = false, .prefix_bytes = 1 << 20}, {}), "needs the CPU and the cache");
}
}  // namespace
}  // namespace linnet
