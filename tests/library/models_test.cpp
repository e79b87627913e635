// Decoders of a program's own, and encoders of model folders in models of a program's own.
#include <gtest/gtest.h>
#include <linnet/linnet.h>
#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>
#include "temporary_folder.h"

namespace {
using namespace linnet;
using linnet::testing::TemporaryFolder;

constexpr int64_t kWidth = 16;

struct Block : Module {
  Block(Module* parent, std::string name) : Module(parent, std::move(name)) {}
  Tensor operator()(Tensor x) {
    const Tensor y = norm(x);
    return x + attention(y) + down(silu(gate(y)) * up(y));
  }
  RmsNorm norm{this, "norm", kWidth};
  CausalAttention attention{this, "attention", kWidth, 4, {.kv_heads = 2, .rotary_theta = 10000}};
  Linear gate{this, "gate", kWidth, 24}, up{this, "up", kWidth, 24}, down{this, "down", 24, kWidth};
};

struct Writer : Decoder {
  Embedding tokens{this, "tokens", 11, kWidth, normal_init(0.5)},
      positions{this, "positions", 32, kWidth, normal_init(0.5)};
  ModuleList<Block> blocks{this, "blocks", 2};
  LayerNorm norm{this, "norm", kWidth};
  Tensor states(Tensor ids, Tensor at) override {
    Tensor x = tokens(ids) + positions(at);
    for (Block& block : blocks) x = block(x);
    return norm(x);
  }
  Tensor head() override { return tokens.weight; }
  int64_t vocab_size() const override { return 11; }
  int64_t max_length() const override { return 32; }
};

struct WriterOfAShortHead : Writer {
  int64_t vocab_size() const override { return 12; }
};

TEST(Decoder, MistakesOfAGeneratorAreErrors) {
  WriterOfAShortHead short_head;
  EXPECT_THROW(TextGenerator(short_head, {.threads = 1}), Error);
  Writer writer;
  Loader loader(Dataset::chunks(std::vector<int32_t>(20, 3), 4), {.batch = 1});
  Learner learner(
      writer, [&](Tracer& trace) { return decoder_loss(writer, trace); }, loader.shapes());
  TextGenerator generator(writer, {.threads = 1});
  EXPECT_THROW(generator.generate({{1, 2}}, {.max_tokens = 2}), Error);  // no weights yet
  generator.take(learner);
  EXPECT_THROW(generator.generate({{1, 2}}, {.max_tokens = 0}), Error);
  EXPECT_EQ(generator.generate({{1, 2}}, {.max_tokens = 2}).front().size(), 2u);
  const auto again = [&](int64_t, int32_t, std::span<const float>) {
    generator.generate({{1}}, {.max_tokens = 1});
    return true;
  };
  EXPECT_THROW(generator.generate({{1, 2}}, {.max_tokens = 2}, again), Error);
  EXPECT_EQ(generator.generate({{1, 2}}, {.max_tokens = 2}).front().size(), 2u);
}

// Generators write with what evaluation and files use.
TEST(Decoder, TheMovingAverageIsTaken) {
  Writer writer;
  Loader loader(Dataset::chunks(std::vector<int32_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4}, 4), {.batch = 1});
  Learner learner(
      writer, [&](Tracer& trace) { return decoder_loss(writer, trace); }, loader.shapes(), {.average_decay = 0.9});
  learner.fit(loader, {.epochs = 5, .rate = 0.05});
  const auto logits = [&](const std::function<void(TextGenerator&)>& give) {
    TextGenerator generator(writer, {.threads = 1});
    give(generator);
    std::vector<float> all;
    generator.generate({{1, 2}}, {.max_tokens = 3}, [&](int64_t, int32_t, std::span<const float> of_token) {
      all.insert(all.end(), of_token.begin(), of_token.end());
      return true;
    });
    return all;
  };
  const TemporaryFolder folder;
  const std::string path = folder / "average.safetensors";
  learner.save(path);
  EXPECT_EQ(logits([&](TextGenerator& to) { to.take(learner); }), logits([&](TextGenerator& to) { to.load(path); }));
}

TEST(Decoder, DefinedOnceItTrainsAndWritesWithTheCacheAsWithoutIt) {
  std::vector<int32_t> ids;
  for (int i = 0; i < 400; ++i) ids.push_back(i * i % 11);
  Loader loader(Dataset::chunks(ids, 16), {.batch = 4, .shuffle = true, .drop_last = true});
  Writer writer;
  Learner learner(
      writer, [&](Tracer& trace) { return decoder_loss(writer, trace); }, loader.shapes());
  const double before = learner.evaluate(loader).loss;
  learner.fit(loader, {.epochs = 8, .rate = 5e-3});
  EXPECT_LT(learner.evaluate(loader).loss, 0.7 * before);

  using Rows = std::vector<std::vector<float>>;
  std::vector<Rows> logits;
  std::vector<std::vector<int32_t>> texts;
  for (const bool cache : {true, false}) {
    TextGenerator generator(writer, {.cache = cache, .threads = 2});
    generator.take(learner);
    Rows& rows = logits.emplace_back();
    texts.push_back(generator.generate(
        {{0, 1, 4, 9}}, {.max_tokens = 20, .temperature = 0}, [&](int64_t, int32_t, std::span<const float> given) {
          rows.emplace_back(given.begin(), given.end());
          return true;
        })[0]);
  }
  EXPECT_EQ(texts[0], texts[1]);
  ASSERT_EQ(logits[0].size(), 20u);
  ASSERT_EQ(logits[1].size(), 20u);
  for (size_t i = 0; i < logits[0].size(); ++i) EXPECT_EQ(logits[0][i], logits[1][i]) << i;
  // Another text beside it, and the faster way to read prompts.
  TextGenerator several(writer, {.slots = 3, .threads = 1});
  several.take(learner);
  EXPECT_EQ(several.generate({{3, 3}, {0, 1, 4, 9}}, {.max_tokens = 20, .temperature = 0})[1], texts[0]);
  TextGenerator fast(writer, {.same_bits = false});
  fast.take(learner);
  size_t heard = 0;
  fast.generate(
      {{0, 1, 4, 9}}, {.max_tokens = 20, .temperature = 0}, [&](int64_t, int32_t, std::span<const float> given) {
        for (size_t v = 0; v < given.size(); ++v) EXPECT_NEAR(given[v], logits[0][heard][v], 1e-4);
        return ++heard < 20;
      });
  EXPECT_EQ(heard, 20u);
  // What training's evaluation computes of a whole sequence differs by roundings alone.
  std::vector<int32_t> whole{0, 1, 4, 9};
  whole.insert(whole.end(), texts[0].begin(), texts[0].begin() + 12);
  Arrays batch;
  batch.set("tokens", {1, 16}, whole);
  const Arrays answer = learner.predict(batch);
  for (size_t i = 0; i < 12; ++i)
    for (size_t v = 0; v < 11; ++v) EXPECT_NEAR(answer.get<float>("logits")[(i + 3) * 11 + v], logits[0][i][v], 1e-4);
}

// Attention by its definition, in double: queries of x [T, 4], keys and values of memory [S, 4], two heads of 2.
std::vector<double> attend(
    const std::vector<float>& x, const std::vector<float>& memory, int64_t seen, bool causal, Learner& learner) {
  const auto in = learner.parameter("attention.in_proj_weight"), in_bias = learner.parameter("attention.in_proj_bias");
  const auto out = learner.parameter("attention.out_proj.weight"),
             out_bias = learner.parameter("attention.out_proj.bias");
  const auto line = [](std::span<const float> weight, std::span<const float> bias, size_t row, const auto* values) {
    double total = bias[row];
    for (size_t i = 0; i < 4; ++i) total += static_cast<double>(weight[row * 4 + i]) * static_cast<double>(values[i]);
    return total;
  };
  std::vector<double> result;
  for (size_t t = 0; t < x.size() / 4; ++t) {
    std::vector<double> joined;
    for (size_t head = 0; head < 2; ++head) {
      std::vector<double> weights;
      double sum = 0;
      const size_t count = causal ? t + 1 : static_cast<size_t>(seen);
      for (size_t s = 0; s < count; ++s) {
        double score = 0;
        for (size_t i = 2 * head; i < 2 * head + 2; ++i)
          score += line(in, in_bias, i, &x[4 * t]) * line(in, in_bias, 4 + i, &memory[4 * s]);
        weights.push_back(std::exp(score / std::sqrt(2.0)));
        sum += weights.back();
      }
      for (size_t i = 2 * head; i < 2 * head + 2; ++i) {
        double value = 0;
        for (size_t s = 0; s < count; ++s) value += weights[s] / sum * line(in, in_bias, 8 + i, &memory[4 * s]);
        joined.push_back(value);
      }
    }
    for (size_t row = 0; row < 4; ++row) result.push_back(line(out, out_bias, row, joined.data()));
  }
  return result;
}

TEST(MultiHeadAttention, IsTheDefinitionOfAttention) {
  struct Net : Module {
    MultiHeadAttention attention{this, "attention", 4, 2};
  } net;
  Learner learner(net, [&](Tracer& trace) -> Loss {
    const Tensor x = trace.input("x", {DType::kF32, {1, 5, 4}}),
                 memory = trace.input("memory", {DType::kF32, {1, 3, 4}});
    const Tensor lengths = trace.input("lengths", {DType::kI32, {1}});
    trace.output("all", net.attention(x));
    trace.output("causal", net.attention(x, {.causal = true}));
    trace.output("some", net.attention(x, {.lengths = lengths}));
    trace.output("cross", net.attention(x, memory, {.lengths = lengths}));
    return {.sum = sum(square(net.attention(x))), .count = trace.number(1)};
  });
  std::vector<float> x, memory;
  for (int i = 0; i < 20; ++i) x.push_back(static_cast<float>(i * 7 % 11) / 5 - 1);
  for (int i = 0; i < 12; ++i) memory.push_back(static_cast<float>(i * 5 % 7) / 3 - 1);
  for (float& value : learner.parameter("attention.in_proj_bias")) value = 0.25f;
  learner.set("x", x);
  learner.set("memory", memory);
  learner.set<int32_t>("lengths", {2});
  learner.evaluate();
  const auto expect = [&](const char* name, const std::vector<double>& wanted) {
    const auto got = learner.output(name);
    ASSERT_EQ(got.size(), wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 1e-5) << name << " " << i;
  };
  expect("all", attend(x, x, 5, false, learner));
  expect("causal", attend(x, x, 5, true, learner));
  expect("some", attend(x, x, 2, false, learner));
  expect("cross", attend(x, memory, 2, false, learner));
}

TEST(Functions, GatherAndTopK) {
  struct Net : Module {
    Parameter table{this, "table", {4, 1, 2}, values_init({0, 1, 2, 3, 4, 5, 6, 7})};
  } net;
  Learner learner(net, [&](Tracer& trace) -> Loss {
    const Tensor rows = gather(net.table.tensor(), trace.input("ids", {DType::kI32, {3}}));
    trace.output("rows", rows);
    return {.sum = sum(square(rows)), .count = trace.number(1)};
  });
  learner.set<int32_t>("ids", {3, 0, 3});
  learner.evaluate();
  EXPECT_TRUE(std::ranges::equal(learner.output("rows"), std::vector<float>{6, 7, 0, 1, 6, 7}));
  learner.step(0.0);
  EXPECT_EQ(learner.gradient("table"), (std::vector<float>{0, 2, 0, 0, 0, 0, 24, 28}));
  const float nan = std::nanf("");
  const std::vector<float> values{1, nan, 5, 5, -2};
  EXPECT_EQ(top_k(values, 3), (std::vector<int32_t>{2, 3, 0}));
  EXPECT_EQ(top_k(values, 5).back(), 1);
  EXPECT_THROW(top_k(values, 6), Error);
}

struct Classifier : Module {
  explicit Classifier(const std::string& folder) : bert{this, "bert", folder}, head{this, "head", bert.width(), 2} {}
  PretrainedBert bert;
  Linear head;
};

TEST(PretrainedBert, AFolderIsWhatWasEvaluated) {
  const std::string folder = "tests/golden/pretrained/bert_model";
  Dataset data;
  data.add_sequences("tokens", {{1, 5, 6, 2}, {1, 7, 2}});
  data.add("labels", Shape{}, std::vector<int32_t>{0, 1});
  Loader loader(data, {.batch = 2, .buckets = {4}});
  const auto loss = [](Classifier& of) {
    return [&of](Tracer& trace) -> Loss {
      const Tensor logits = of.head(of.bert.pooled(of.bert(trace.input("tokens"), trace.input("tokens_length"))));
      trace.output("logits", logits);
      return {.sum = cross_entropy_sum(logits, trace.input("labels")), .count = count_targets(trace.input("labels"))};
    };
  };
  for (const LearnerOptions& options : {LearnerOptions{.average_decay = 0.9},
           LearnerOptions{.groups = {{.patterns = {"bert.*"}, .frozen = true, .storage = FrozenStorage::bf16}}}}) {
    Classifier model(folder);
    Learner learner(model, loss(model), loader.shapes(), options);
    model.bert.load(learner);
    learner.fit(loader, {.epochs = 3, .rate = 1e-2});
    const TemporaryFolder made;
    const std::string out = made / "bert";
    model.bert.save(learner, out);
    loader.seek({0, 0});
    const Arrays batch = loader.next();
    Classifier again(out);
    Learner second(again, loss(again), loader.shapes());
    again.bert.load(second);
    second.load(out + "/head.safetensors", {.strict = false});
    const Arrays one = learner.predict(batch), two = second.predict(batch);
    for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(one.get<float>("logits")[i], two.get<float>("logits")[i], 1e-5);
  }
}

TEST(PretrainedBert, IsAPartOfAModelAndIsWrittenBackWithItsHead) {
  const std::string folder = "tests/golden/pretrained/bert_model";
  const TemporaryFolder made;
  const std::string out = made / "bert";
  const auto tokenizer = load_pretrained_tokenizer(folder);
  std::vector<std::vector<int32_t>> tokens;
  for (const char* text : {"the dog runs", "the cat runs", "tax law", "the dog"})
    tokens.push_back(tokenizer->encode(text, {.offsets = false}).ids);
  Dataset data;
  data.add_sequences("tokens", tokens);
  data.add("labels", Shape{}, std::vector<int32_t>{0, 1, 0, 1});
  Loader loader(data, {.batch = 4, .buckets = {12}});

  Classifier model(folder);
  const auto loss = [&](Classifier& of) {
    return [&of](Tracer& trace) -> Loss {
      const Tensor logits = of.head(of.bert.pooled(of.bert(trace.input("tokens"), trace.input("tokens_length"))));
      trace.output("logits", logits);
      const Tensor labels = trace.input("labels");
      return {.sum = cross_entropy_sum(logits, labels), .count = count_targets(labels)};
    };
  };
  const LearnerOptions options{.groups = {{.patterns = {"bert.bert.words.*", "bert.bert.layers.0.*"}, .frozen = true}}};
  Learner learner(model, loss(model), loader.shapes(), options);
  const LoadReport report = model.bert.load(learner);
  EXPECT_EQ(report.fresh, (std::vector<std::string>{"head.weight", "head.bias"}));
  const auto copy = [&](const std::string& name) {
    const auto values = learner.parameter(name);
    return std::vector<float>(values.begin(), values.end());
  };
  const std::vector<float> words = copy("bert.bert.words.weight"), pooler = copy("bert.pooler.dense.weight");
  learner.fit(loader, {.epochs = 3, .rate = 1e-3});
  EXPECT_EQ(copy("bert.bert.words.weight"), words);
  EXPECT_NE(copy("bert.pooler.dense.weight"), pooler);
  model.bert.save(learner, out);

  Classifier again(out);
  Learner second(again, loss(again), loader.shapes(), options);
  again.bert.load(second);
  const LoadReport head = second.load(out + "/head.safetensors", {.strict = false});
  EXPECT_EQ(head.taken, (std::vector<std::string>{"head.weight", "head.bias"}));
  EXPECT_TRUE(head.unused.empty());
  loader.seek({0, 0});
  const Arrays batch = loader.next();
  const Arrays one = learner.predict(batch), two = second.predict(batch);
  EXPECT_TRUE(std::ranges::equal(one.get<float>("logits"), two.get<float>("logits")));
}

// The model of examples/library/bert.cpp.
struct FineTuned : Module {
  explicit FineTuned(const std::string& folder) : bert{this, "bert", folder} {}
  Tensor operator()(Tensor tokens, Tensor lengths) {
    const Tensor states = bert(tokens, lengths);
    return out(relu(hidden(reshape(slice(states, 1, 0, 1), {tokens.dim(0), bert.width()}))));
  }
  PretrainedBert bert;
  Linear hidden{this, "hidden", bert.width(), 32}, out{this, "out", 32, 2};
};

TEST(PretrainedBert, WhatAProgramSavedGivesTheLogitsOfTransformers) {
  const std::string folder = "tests/golden/fine_tuned";
  FineTuned model(folder);
  Learner learner(model,
      [&](Tracer& trace) -> Loss {
        const Tensor logits = model(trace.input("tokens"), trace.input("tokens_length"));
        trace.output("logits", logits);
        return {.sum = sum(logits), .count = trace.number(1)};
      },
      {{{"tokens", {DType::kI32, {1, 16}}}, {"tokens_length", {DType::kI32, {1}}}}}, {.training = false});
  const LoadReport report = model.bert.load(learner);
  EXPECT_EQ(report.fresh, (std::vector<std::string>{"hidden.weight", "out.weight", "hidden.bias", "out.bias"}));
  EXPECT_EQ(report.unused, std::vector<std::string>{});
  EXPECT_EQ(learner.load(folder + "/head.safetensors", {.strict = false}).taken, report.fresh);
  std::ifstream lines(folder + "/logits.txt");
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    std::istringstream words(line);
    std::vector<int32_t> tokens;
    for (std::string word; words >> word && word != "|";) tokens.push_back(std::stoi(word));
    const auto length = static_cast<int32_t>(tokens.size());
    tokens.resize(16);
    Arrays request;
    request.set("tokens", {1, 16}, tokens);
    request.set("tokens_length", {1}, {length});
    const Arrays answer = learner.predict(request);
    for (const float logit : answer.get<float>("logits")) {
      double wanted = 0;
      words >> wanted;
      EXPECT_NEAR(logit, wanted, 1e-5) << line;
    }
  }
  EXPECT_EQ(count, 6);
}
}  // namespace
