// The engine with encoder-decoders: what a request gets must not depend on the others.
#include <gtest/gtest.h>
#include <algorithm>
#include <array>
#include <map>
#include <random>
#include "base/error.h"
#include "engine_testing.h"
#include "models/modules/t5.h"
#include "models/modules/transformer.h"

namespace linnet {
namespace {
using Ids = std::vector<int32_t>;

constexpr int32_t kVocab = 40, kEnd = 3, kPad = 0, kBegin = 2;
constexpr int64_t kMostBeams = 4, kMostTokens = 12;
const std::vector<int64_t> kSourceLengths{5, 16, 100};

enum class Kind { kTransformer, kMarian, kT5 };

std::unique_ptr<EncoderDecoder> make_model(Kind kind) {
  if (kind == Kind::kT5) {
    T5Config config{.vocab_size = kVocab, .width = 40, .heads = 4, .head_size = 9, .hidden = 56};
    config.encoder_layers = config.decoder_layers = 2, config.buckets = 8, config.max_distance = 12;
    return std::make_unique<T5>(config);
  }
  TransformerConfig config;
  config.source_vocab = config.target_vocab = kVocab;
  config.d_model = 48, config.num_heads = 4, config.d_ff = 72, config.max_seq_len = 100;
  const bool marian = kind == Kind::kMarian;
  config.share_embeddings = config.tie_head = marian;
  if (marian) config.positions = Positions::kHalved;
  config.norm_first = config.final_norm = !marian;
  return std::make_unique<Transformer>(config);
}

struct EngineFixture {
  EngineFixture(Kind kind, SourceOptions options) : model(make_model(kind)), layout(*model) {
    for (const auto& [name, count] :
        {std::pair{"parameters", layout.parameter_count()}, {"constants", layout.constant_count()}}) {
      const size_t bytes = static_cast<size_t>(count) * sizeof(float);
      store.bind(name, {store.add_region(name, MemoryKind::kParameters, bytes), 0}, bytes);
    }
    const SharedRegions shared{store.add_region("arena", MemoryKind::kActivations, 0),
        store.add_region("workspace", MemoryKind::kWorkspace, 0)};
    options.max_length = kMostTokens, options.source_lengths = kSourceLengths;
    options.begin = kBegin, options.threads = pool.size();
    engine.emplace(*model, layout, store, shared, options);
    store.allocate();
    engine->bind();
    float* parameters = store.as<float>("parameters");
    layout.initialize_parameters(1, parameters, pool);
    layout.initialize_constants(store.as<float>("constants"), pool);
    for (int64_t i = 0; i < layout.parameter_count(); ++i) parameters[i] *= 1.7f;  // less even probabilities
  }

  std::unique_ptr<EncoderDecoder> model;
  ParameterLayout layout;
  Store store;
  ThreadPool pool{2};
  std::optional<Engine> engine;
};

GenerateRequest random_request(std::mt19937& random) {
  const auto pick = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  };
  GenerateRequest request;
  request.prompt.resize(static_cast<size_t>(pick(0, 2) ? pick(1, 20) : pick(1, kSourceLengths.back())));
  for (int32_t& id : request.prompt) id = static_cast<int32_t>(pick(0, kVocab - 1));
  GenerateSettings& settings = request.settings;
  settings.max_tokens = pick(1, kMostTokens + 3);
  settings.ends = {kEnd, static_cast<int32_t>(pick(0, kVocab - 1))};
  settings.never = {kPad, kBegin};
  settings.first_sample = static_cast<uint64_t>(pick(0, 3));
  settings.log_probabilities = pick(0, 1);
  const int64_t kind = pick(0, 3);
  if (kind == 0) settings.sampling.temperature = 0;
  if (kind == 1)
    settings.sampling = {
        .repetition_penalty = 1.2, .temperature = 1.2, .top_k = pick(0, 1) * 20, .top_p = 0.95, .seed = random()};
  if (kind >= 2) request.search = true, request.beams = kind == 2 ? 1 : pick(2, kMostBeams);
  request.n_best = request.beams;
  settings.forced_end = pick(0, 1);
  return request;
}

std::string kind_name(const testing::TestParamInfo<Kind>& info) {
  const std::array<const char*, 3> names{"Transformer", "Marian", "T5"};
  return names[static_cast<size_t>(info.param)];
}

class SourceEngineOf : public testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(
    Model, SourceEngineOf, testing::Values(Kind::kTransformer, Kind::kMarian, Kind::kT5), kind_name);

// With few slots and with so many that steps run decode plans of several sizes.
TEST_P(SourceEngineOf, ARequestGetsTheSameBitsAloneAndBesideOthersInAnySlot) {
  for (const int64_t rows : {1, 2, 11, 16}) {
    std::mt19937 random(static_cast<uint32_t>(rows));
    std::vector<GenerateRequest> requests;
    for (int i = 0; i < 60; ++i) requests.push_back(random_request(random));
    std::vector<size_t> order(requests.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    EngineFixture fixture(GetParam(), {.rows = rows, .beams = kMostBeams});
    const std::map<size_t, Written> want = write_all(*fixture.engine, fixture.pool, requests, order, 0, random);
    ASSERT_EQ(want.size(), requests.size());
    std::map<EndReason, int> reasons;
    for (const auto& [i, text] : want) ++reasons[text.finished.reason];
    EXPECT_GT(reasons[EndReason::kEndToken], 5);
    EXPECT_GT(reasons[EndReason::kMaxTokens], 5);
    EXPECT_GT(reasons[EndReason::kCacheFull], 0);
    for (const size_t most_arrivals : {3, 40}) {
      std::shuffle(order.begin(), order.end(), random);
      const std::map<size_t, Written> got =
          write_all(*fixture.engine, fixture.pool, requests, order, most_arrivals, random);
      ASSERT_EQ(got.size(), requests.size());
      for (const auto& [i, text] : got) expect_same(text, want.at(i), i, "beside others");
    }
  }
}

// Also with one slot for each text.
TEST_P(SourceEngineOf, SampledTextsAreTheSameAloneAndBesideOthers) {
  std::mt19937 random(9);
  std::vector<GenerateRequest> requests;
  while (requests.size() < 60)
    if (GenerateRequest request = random_request(random); request.beams == 1) requests.push_back(std::move(request));
  std::vector<size_t> order(requests.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  EngineFixture fixture(GetParam(), {.rows = 40});
  const std::map<size_t, Written> want = write_all(*fixture.engine, fixture.pool, requests, order, 0, random);
  for (const auto& [i, text] : write_all(*fixture.engine, fixture.pool, requests, order, 60, random))
    expect_same(text, want.at(i), i, "beside others");
}

TEST(SourceEngine, ACancelledRequestGivesItsSlotsToTheNextAndABadSourceIsRefused) {
  EngineFixture fixture(Kind::kTransformer, {.rows = 2, .beams = 2});
  Engine& engine = *fixture.engine;
  const auto request = [](Ids source, int64_t tokens) {
    return GenerateRequest{
        .prompt = std::move(source), .settings = {.max_tokens = tokens, .sampling = {.temperature = 0}}};
  };
  EXPECT_THROW(engine.submit(request({}, 1)), Error);
  EXPECT_THROW(engine.submit(request(Ids(101, 5), 1)), Error);
  const auto run = [&] {
    std::map<RequestId, FinishedRequest> all;
    while (engine.busy()) engine.step(fixture.pool);
    for (FinishedRequest& finished : engine.take_finished()) all.emplace(finished.id, finished);
    return all;
  };
  const RequestId alone = engine.submit(request({5, 6, 7}, 6));
  const Ids want = run().at(alone).result.tokens;
  const RequestId first = engine.submit(request({8}, 12)), second = engine.submit(request({9, 4}, 12)),
                  third = engine.submit(request({5, 6, 7}, 6));
  for (int i = 0; i < 4; ++i) engine.step(fixture.pool);
  engine.cancel(first);
  const auto all = run();
  EXPECT_EQ(all.at(first).reason, EndReason::kCancelled);
  EXPECT_EQ(all.at(first).result.tokens.size(), 3u);  // a source is encoded in the first step
  EXPECT_EQ(all.at(second).result.tokens.size(), 12u);
  EXPECT_EQ(all.at(third).result.tokens, want);
}

TEST(SourceEngine, BrokenWeightsAreToldAtTheFirstToken) {
  EngineFixture fixture(Kind::kT5, {.rows = 1});
  fixture.store.as<float>("parameters")[0] = std::numeric_limits<float>::quiet_NaN();
  fixture.engine->submit({.prompt = {0, 5}, .settings = {.max_tokens = 3}});
  EXPECT_THROW(
      {
        while (fixture.engine->busy()) fixture.engine->step(fixture.pool);
      },
      Error);
}
}  // namespace
}  // namespace linnet
