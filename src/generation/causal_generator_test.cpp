#include <gtest/gtest.h>
#include <cmath>
#include "base/error.h"
#include "causal_testing.h"
#include "generation/engine.h"
#include "models/modules/text_decoder.h"

namespace linnet {
namespace {
using Ids = std::vector<int32_t>;

std::unique_ptr<CausalModel> make_gpt(int64_t vocab = 30);

struct Fixture : CausalFixture {
  explicit Fixture(CausalOptions options, std::unique_ptr<CausalModel> of = make_gpt())
      : CausalFixture(std::move(options), std::move(of)) {}
};

DecoderConfig small_gpt(int64_t vocab = 30) {
  return {.vocab_size = vocab, .max_seq_len = 40, .width = 32, .heads = 4, .layers = 2, .dropout = 0.1};
}

std::unique_ptr<CausalModel> make_gpt(int64_t vocab) { return std::make_unique<TextDecoder>(small_gpt(vocab)); }

// With fewer key than query heads, whose size is not the width's share.
std::unique_ptr<CausalModel> make_llama() {
  DecoderConfig config =
      llama_kind({.vocab_size = 30, .max_seq_len = 40, .width = 32, .heads = 4, .layers = 2, .hidden = 48});
  config.kv_heads = 2, config.head_size = 6, config.deviation = 0.05;
  return std::make_unique<TextDecoder>(config);
}

GenerateSettings greedy(int64_t tokens) { return {.max_tokens = tokens, .sampling = {.temperature = 0}}; }

const std::vector<Ids> kPrompts{{3}, {5, 6, 7, 1, 2, 9, 11, 4, 28, 13, 0, 1, 2, 3, 4, 5, 6, 7, 8}, {1, 2, 3, 4, 5}};

TEST(CausalGenerator, CachedLogitsAreTheUncachedOnesAtEveryPosition) {
  for (const auto& [cache, llama] : {std::pair{true, false}, {false, false}, {true, true}, {false, true}}) {
    Fixture fixture({.rows = 3, .cache = cache}, llama ? make_llama() : make_gpt());
    std::vector<Ids> sequences = kPrompts;
    double worst = 0, largest = 0;
    const auto results = fixture.generate(kPrompts, greedy(20), [&](int64_t row, int32_t token) {
      Ids& sequence = sequences[static_cast<size_t>(row)];
      const std::vector<double> want = fixture.forward(sequence);
      const auto got = fixture.generator->last_logits();
      for (double x : want) largest = std::max(largest, std::abs(x));
      for (size_t v = 0; v < 30; ++v) worst = std::max(worst, std::abs(got[v] - want[want.size() - 30 + v]));
      sequence.push_back(token);
      return true;
    });
    EXPECT_LT(worst, 1e-5 * std::max(1.0, largest)) << (llama ? "llama" : "gpt");
    for (const Continuation& result : results) {
      EXPECT_EQ(result.tokens.size(), 20u);
      EXPECT_FALSE(result.ended);
    }
  }
}

TEST(CausalGenerator, ABatchOfUnequalPromptsIsThePromptsOneByOne) {
  for (const bool llama : {false, true}) {
    Fixture together({.rows = 4}, llama ? make_llama() : make_gpt()),
        alone({.rows = 1}, llama ? make_llama() : make_gpt());
    for (GenerateSettings settings : {greedy(15), GenerateSettings{.max_tokens = 15, .sampling = {.top_p = 0.9}}}) {
      settings.ends = {7};
      const auto batch = together.generate(kPrompts, settings);
      for (size_t i = 0; i < kPrompts.size(); ++i) {
        settings.first_sample = i;
        const auto one = alone.generate({kPrompts[i]}, settings);
        EXPECT_EQ(batch[i].tokens, one[0].tokens) << i;
        EXPECT_EQ(batch[i].ended, one[0].ended);
      }
    }
  }
}

TEST(CausalGenerator, SamplesAreOfTheirSeed) {
  Fixture fixture({.rows = 2});
  GenerateSettings settings{.max_tokens = 20};
  const std::vector<Ids> prompts{{1, 2}, {1, 2}};
  const auto first = fixture.generate(prompts, settings), again = fixture.generate(prompts, settings);
  EXPECT_EQ(first[0].tokens, again[0].tokens);
  EXPECT_NE(first[0].tokens, first[1].tokens);  // two samples of one prompt
  settings.sampling.seed = 2;
  EXPECT_NE(fixture.generate(prompts, settings)[0].tokens, first[0].tokens);
}

TEST(CausalGenerator, StopsAtAnEndAtTheLimitAndWhereTheCacheIsFull) {
  Fixture fixture({.rows = 1, .max_length = 24});
  const auto all = fixture.generate({{3, 4}}, greedy(100))[0];
  EXPECT_EQ(all.tokens.size(), 22u);
  GenerateSettings settings = greedy(100);
  settings.ends = {all.tokens[2]};
  const auto ended = fixture.generate({{3, 4}}, settings)[0];
  EXPECT_TRUE(ended.ended);
  EXPECT_LE(ended.tokens.size(), 2u);
  settings = greedy(60);
  settings.slide = true;
  const auto long_text = fixture.generate({{3, 4}}, settings)[0];
  EXPECT_EQ(long_text.tokens.size(), 60u);
  EXPECT_TRUE(std::equal(all.tokens.begin(), all.tokens.end(), long_text.tokens.begin()));
  const Ids half(long_text.tokens.begin() + 10, long_text.tokens.begin() + 22);  // what it goes on from
  EXPECT_EQ(fixture.generate({half}, greedy(1))[0].tokens[0], long_text.tokens[22]);
  int heard = 0;
  fixture.generate({{3, 4}}, greedy(100), [&](int64_t, int32_t) { return ++heard < 5; });
  EXPECT_EQ(heard, 5);
  EXPECT_THROW(fixture.generate({{}}, greedy(1)), Error);
  EXPECT_THROW(fixture.generate({Ids(24, 1)}, greedy(1)), Error);
  EXPECT_THROW(fixture.generate({{30}}, greedy(1)), Error);
}

// Beams enough for every sequence there is find the likeliest one.
TEST(CausalGenerator, AWideBeamFindsTheLikeliestText) {
  constexpr int32_t kVocab = 5;
  Fixture fixture({.rows = 2, .beams = kVocab * kVocab}, make_gpt(kVocab));
  GenerateSettings settings{.max_tokens = 3, .length_penalty = 0};
  const std::vector<Ids> prompts{{1, 2, 3}, {4}};
  const auto results = fixture.generate(prompts, settings);
  for (size_t i = 0; i < prompts.size(); ++i) {
    double best = -INFINITY;
    Ids likeliest;
    for (int32_t code = 0; code < kVocab * kVocab * kVocab; ++code) {
      const Ids text{code / (kVocab * kVocab), code / kVocab % kVocab, code % kVocab};
      Ids sequence = prompts[i];
      sequence.insert(sequence.end(), text.begin(), text.end());
      const std::vector<double> logits = fixture.forward(sequence);
      double total = 0;
      for (size_t t = 0; t < 3; ++t) {
        const double* row = logits.data() + (prompts[i].size() - 1 + t) * kVocab;
        double sum = 0;
        for (int64_t v = 0; v < kVocab; ++v) sum += std::exp(row[v]);
        total += row[text[t]] - std::log(sum);
      }
      if (total > best) best = total, likeliest = text;
    }
    EXPECT_EQ(results[i].tokens, likeliest);
  }
}
}  // namespace
}  // namespace linnet
