// Decoders of a program's own, and encoders of model folders in models of a program's own.
#include <gtest/gtest.h>
#include <linnet/linnet.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

namespace {

using namespace linnet;

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
  Modules<Block> blocks{this, "blocks", 2};
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
    texts.push_back(generator.generate({{0, 1, 4, 9}}, {.max_tokens = 20, .temperature = 0},
                                       [&](int64_t, int32_t, std::span<const float> given) {
                                         rows.emplace_back(given.begin(), given.end());
                                         return true;
                                       })[0]);
  }
  EXPECT_EQ(texts[0], texts[1]);
  ASSERT_EQ(logits[0].size(), 20u);
  ASSERT_EQ(logits[1].size(), 20u);
  // The products have the same bits; attention sums in another order for one query than for many.
  for (size_t i = 0; i < logits[0].size(); ++i)
    for (size_t v = 0; v < 11; ++v) EXPECT_NEAR(logits[0][i][v], logits[1][i][v], 1e-5) << i;
  // What training's evaluation computes of a whole sequence differs by roundings alone.
  std::vector<int32_t> whole{0, 1, 4, 9};
  whole.insert(whole.end(), texts[0].begin(), texts[0].begin() + 12);
  Arrays batch;
  batch.set("tokens", {1, 16}, whole);
  const Arrays answer = learner.predict(batch);
  for (size_t i = 0; i < 12; ++i)
    for (size_t v = 0; v < 11; ++v) EXPECT_NEAR(answer.get<float>("logits")[(i + 3) * 11 + v], logits[0][i][v], 1e-4);
}

struct Classifier : Module {
  explicit Classifier(const std::string& folder) : bert{this, "bert", folder}, head{this, "head", bert.width(), 2} {}
  PretrainedBert bert;
  Linear head;
};

TEST(PretrainedBert, IsAPartOfAModelAndIsWrittenBackWithItsHead) {
  const std::string folder = "tests/golden/pretrained/bert_model";
  const std::string out = (std::filesystem::temp_directory_path() / "linnet_bert_test").string();
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
  std::filesystem::remove_all(out);
}

}  // namespace
