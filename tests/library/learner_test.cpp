// A learner of several batch shapes: resumed steps have the bits of undisturbed ones, frozen parameters keep theirs,
// and files are compared by name.
#include <gtest/gtest.h>
#include <linnet/linnet.h>
#include <algorithm>
#include <cfenv>
#include <cmath>
#include <cstring>
#include <limits>
#include "temporary_folder.h"

namespace {
using namespace linnet;
using linnet::testing::TemporaryFolder;

struct Reader : Module {
  Embedding words{this, "words", 20, 8, normal_init(0.5)};
  Dropout dropout{this, "dropout", 0.2f};
  Linear hidden{this, "hidden", 8, 16}, out{this, "out", 16, 3};
  Tensor operator()(Tensor tokens) { return out(relu(hidden(dropout(mean(words(tokens), 1))))); }
};

Dataset sentences() {
  std::vector<std::vector<int32_t>> tokens;
  std::vector<int32_t> labels;
  for (int32_t i = 0; i < 60; ++i) {
    std::vector<int32_t>& sentence = tokens.emplace_back();
    for (int32_t j = 0; j < 2 + i % 7; ++j) sentence.push_back((i * 7 + j * 3) % 20);
    labels.push_back(i % 3);
  }
  Dataset data;
  data.add_sequences("tokens", tokens);
  return data.add("labels", Shape{}, labels);
}

TracedLoss loss_of(Reader& reader) {
  return [&reader](Tracer& trace) -> Loss {
    const Tensor logits = reader(trace.input("tokens")), labels = trace.input("labels");
    trace.output("logits", logits);
    return {.sum = cross_entropy_sum(logits, labels), .count = count_targets(labels)};
  };
}

const LoaderOptions kBatches{.batch = 5, .shuffle = true, .workers = 2, .buckets = {4, 8}};

std::vector<float> weights_of(Learner& learner) {
  std::vector<float> all;
  for (const ParameterSpec& spec : learner.parameters()) {
    const std::span<const float> values = learner.parameter(spec.name);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// One's own loop: so many steps of one or two micro-batches.
void steps(Learner& learner, Loader& loader, int count, int accumulate) {
  for (int i = 0; i < count; ++i) {
    std::vector<Arrays> micro;
    for (int j = 0; j < accumulate; ++j) micro.push_back(loader.next());
    ASSERT_TRUE(learner.step(micro, 0.01).finite);
  }
}

TEST(Learner, ResumedStepsHaveTheBitsOfUndisturbedOnes) {
  for (const int accumulate : {1, 2}) {
    const LearnerOptions options{.optimizer = AdamW{}, .clip_norm = 1, .average_decay = 0.9, .accumulate = accumulate};
    Reader reader;
    Loader loader(sentences(), kBatches);
    ASSERT_EQ(loader.shapes().size(), 2u);
    Learner undisturbed(reader, loss_of(reader), loader.shapes(), options);
    steps(undisturbed, loader, 11, accumulate);

    const TemporaryFolder folder;
    const std::string path = folder / "reader.state";
    {
      Loader first(sentences(), kBatches);
      Learner stopped(reader, loss_of(reader), first.shapes(), options);
      steps(stopped, first, 4, accumulate);
      stopped.save_state(path, first.position());
      steps(stopped, first, 2, accumulate);  // lost
    }
    Loader second(sentences(), kBatches);
    Learner resumed(reader, loss_of(reader), second.shapes(), options);
    second.seek(resumed.load_state(path));
    EXPECT_EQ(resumed.steps(), 4);
    steps(resumed, second, 7, accumulate);
    EXPECT_EQ(resumed.steps(), undisturbed.steps());
    EXPECT_TRUE(same_bits(weights_of(resumed), weights_of(undisturbed))) << accumulate;
  }
}

TEST(Learner, FrozenParametersKeepTheirBits) {
  Reader reader;
  Loader loader(sentences(), kBatches);
  Learner learner(reader, loss_of(reader), loader.shapes(), {.groups = {{.patterns = {"words.*"}, .frozen = true}}});
  const auto copy = [&](const char* name) {
    const auto values = learner.parameter(name);
    return std::vector<float>(values.begin(), values.end());
  };
  const std::vector<float> frozen = copy("words.weight"), trained = copy("hidden.weight");
  steps(learner, loader, 3, 1);
  EXPECT_TRUE(same_bits(frozen, copy("words.weight")));
  EXPECT_FALSE(same_bits(trained, copy("hidden.weight")));
}

TEST(Learner, APartialLoadTellsWhatIsFreshAndUnused) {
  struct Other : Module {
    Embedding words{this, "words", 20, 8, normal_init(0.5)};
    Linear hidden{this, "hidden", 8, 4}, head{this, "head", 4, 1};
  } other;
  Learner saved(other, [&](Tracer& trace) -> Loss {
    const Tensor x = mean(other.words(trace.input("tokens", {DType::kI32, {2, 3}})), 1);
    return {.sum = sum(other.head(other.hidden(x))), .count = trace.number(2)};
  });
  const TemporaryFolder folder;
  const std::string path = folder / "other.safetensors";
  saved.save(path);
  Reader reader;
  Loader loader(sentences(), kBatches);
  Learner learner(reader, loss_of(reader), loader.shapes());
  EXPECT_THROW(learner.load(path), Error);
  const LoadReport report = learner.load(path, {.strict = false});
  using Names = std::vector<std::string>;
  EXPECT_EQ(report.taken, Names{"words.weight"});
  EXPECT_EQ(report.fresh, (Names{"out.weight", "out.bias"}));
  EXPECT_EQ(report.different, (Names{"hidden.weight", "hidden.bias"}));
  EXPECT_EQ(report.unused.size(), 2u);
  const auto taken = learner.parameter("words.weight"), given = saved.parameter("words.weight");
  EXPECT_TRUE(std::ranges::equal(taken, given));
}

TEST(Learner, PredictionOfFewRowsIsThatOfTheWholeBatch) {
  Reader reader;
  Learner learner(reader, loss_of(reader), {{{"tokens", {DType::kI32, {4, 3}}}, {"labels", {DType::kI32, {4}}}}});
  Arrays whole, part;
  whole.set<int32_t>("tokens", {4, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  part.set<int32_t>("tokens", {2, 3}, {1, 2, 3, 4, 5, 6});
  const Arrays all = learner.predict(whole), two = learner.predict(part);
  EXPECT_EQ(two.type("logits").shape, (Shape{2, 3}));
  EXPECT_TRUE(std::ranges::equal(two.get<float>("logits"), all.get<float>("logits").first(6)));
}

// y_hat of x, and its distance to y.
struct Line : Module {
  Linear line{this, "line", 2, 1};
  TracedLoss loss() {
    return [this](Tracer& trace) -> Loss {
      const Tensor found = line(trace.input("x", {DType::kF32, {4, 2}}));
      const Tensor error = found - trace.input("y", {DType::kF32, {4, 1}});
      trace.output("found", found), trace.output("error", error);
      return {.sum = sum(square(error)), .count = trace.number(4)};
    };
  }
};

TEST(Learner, PredictsNothingOfAnInputThatIsNotThere) {
  Line model;
  Learner learner(model, model.loss());
  Arrays batch;
  batch.set<float>("x", {4, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  const Arrays some = learner.predict(batch);
  EXPECT_TRUE(some.has("found"));
  EXPECT_FALSE(some.has("error") || some.has("loss_sum"));
  batch.set<float>("y", {4, 1}, {1, 2, 3, 4});
  EXPECT_TRUE(learner.predict(batch).has("error"));
  batch.set<float>("y", {2, 1}, {1, 2});
  EXPECT_THROW(learner.predict(batch), Error) << "4 rows beside 2";
  Arrays misspelt;
  misspelt.set<float>("y", {4, 1}, {1, 2, 3, 4});
  misspelt.set<float>("X", {4, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  try {
    learner.predict(misspelt);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "predict() was not given \"x\", on which the output \"found\" depends");
  }
}

TEST(Learner, ANaNChangesNoStatistics) {
  struct Net : Module {
    BatchNorm norm{this, "norm", 2};
    Linear line{this, "line", 2, 1};
  } net;
  Learner learner(net, [&](Tracer& trace) -> Loss {
    const Tensor y = net.line(net.norm(trace.input("x", {DType::kF32, {4, 2}})));
    return {.sum = sum(square(y)), .count = trace.number(4)};
  });
  const auto step = [&](float last) {
    learner.set<float>("x", {1, 2, 3, 4, 5, 6, 7, last});
    return learner.step(0.1).finite;
  };
  EXPECT_TRUE(step(8));
  const std::vector<float> before = weights_of(learner);
  EXPECT_FALSE(step(std::numeric_limits<float>::quiet_NaN()));
  const std::vector<float> after = weights_of(learner);
  EXPECT_TRUE(std::ranges::all_of(after, [](float value) { return std::isfinite(value); }));
  EXPECT_TRUE(step(9));
  EXPECT_FALSE(same_bits(before, weights_of(learner)));
}

// A sign is a finite gradient of a distance that is not.
TEST(Learner, ALossThatIsNotFiniteChangesNothing) {
  for (const Optimizer& optimizer : std::vector<Optimizer>{Sgd{}, AdamW{}, Muon{}, Adafactor{}})
    for (const int64_t micros : {1, 2}) {
      struct Net : Module {
        Linear line{this, "line", 2, 3};
      } net;
      const InputTypes types{{"x", {DType::kF32, {4, 2}}}, {"y", {DType::kF32, {4, 3}}}};
      Learner learner(net,
          [&](Tracer& trace) -> Loss {
            return {.sum = sum(abs(net.line(trace.input("x")) - trace.input("y"))), .count = trace.number(4)};
          },
          {types}, {.optimizer = optimizer, .accumulate = micros});
      const auto step = [&](float wanted) {
        Arrays batch(types);
        std::ranges::fill(batch.get<float>("x"), 1.0F);
        std::ranges::fill(batch.get<float>("y"), wanted);
        return learner.step(std::vector<Arrays>(static_cast<size_t>(micros), batch), 0.1);
      };
      EXPECT_TRUE(step(2).finite);
      const std::vector<float> before = weights_of(learner);
      for (const float wrong : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
        EXPECT_FALSE(step(wrong).finite);
        EXPECT_TRUE(same_bits(before, weights_of(learner)));
      }
    }
}

// What PyTorch's batch norms count is no parameter.
TEST(Learner, LoadsAFileWithCountsOfBatches) {
  struct Theirs : Module {
    Linear line{this, "line", 2, 1};
    Parameter counted{this, "num_batches_tracked", {1}, constant_init(5)};
  } theirs;
  Learner saved(theirs, [&](Tracer& trace) -> Loss {
    const Tensor y = theirs.line(trace.input("x", {DType::kF32, {4, 2}})) * theirs.counted;
    return {.sum = sum(y), .count = trace.number(4)};
  });
  const TemporaryFolder folder;
  const std::string path = folder / "theirs.safetensors";
  saved.save(path);
  struct Ours : Module {
    Linear line{this, "line", 2, 1};
  } ours;
  Learner learner(ours, [&](Tracer& trace) -> Loss {
    return {.sum = sum(ours.line(trace.input("x", {DType::kF32, {4, 2}}))), .count = trace.number(4)};
  });
  EXPECT_TRUE(learner.load(path).unused.empty());
  EXPECT_TRUE(std::ranges::equal(learner.parameter("line.weight"), saved.parameter("line.weight")));
}

// A callback may evaluate the data that is trained on.
TEST(Learner, FitGoesOnBehindAnEvaluationOfItsLoader) {
  const auto trained = [](bool evaluates) {
    Reader reader;
    Loader loader(sentences(), kBatches);
    Learner learner(reader, loss_of(reader), loader.shapes());
    const FitReport report = learner.fit(loader, {.epochs = 2, .on_step = [&](const FitEvent& event) {
                                                    if (evaluates && event.step % 3 == 0) learner.evaluate(loader);
                                                    return event.step < 100;
                                                  }});
    EXPECT_EQ(report.reason, "epochs");
    return weights_of(learner);
  };
  EXPECT_TRUE(same_bits(trained(false), trained(true)));
}

TEST(Learner, GradientsAreThoseOfDifferences) {
  Reader reader;
  reader.dropout.probability = 0;
  Learner learner(reader, loss_of(reader), {{{"tokens", {DType::kI32, {2, 3}}}, {"labels", {DType::kI32, {2}}}}},
      {.optimizer = Sgd{}});
  learner.set<int32_t>("tokens", {1, 2, 3, 4, 5, 6});
  learner.set<int32_t>("labels", {0, 2});
  learner.step(0);
  const std::vector<float> gradient = learner.gradient("out.bias");
  const std::span<float> bias = learner.parameter("out.bias");
  for (size_t i = 0; i < 3; ++i) {
    const float value = bias[i];
    bias[i] = value + 0.01f;
    const double above = learner.evaluate();
    bias[i] = value - 0.01f;
    EXPECT_NEAR(gradient[i], (above - learner.evaluate()) / 0.02, 1e-3);
    bias[i] = value;
  }
}

TEST(Learner, MemoryIsKnownBeforeTheFirstStepAndAddsUp) {
  Reader reader;
  Loader loader(sentences(), kBatches);
  Learner learner(reader, loss_of(reader), loader.shapes());
  size_t total = 0;
  for (const MemoryUse& use : learner.memory()) total += use.bytes;
  EXPECT_EQ(total, learner.memory_bytes());
  const size_t before = learner.memory_bytes();
  steps(learner, loader, 2, 1);
  EXPECT_EQ(learner.memory_bytes(), before);
}

TEST(Learner, FitStopsWhereValidationGetsNoBetterAndReturnsToTheBest) {
  Reader reader;
  const auto [train, validation] = sentences().split(0.5);
  Loader batches(train, kBatches), held_out(validation, kBatches);
  Learner learner(reader, loss_of(reader), batches.shapes());
  const FitReport report = learner.fit(
      batches, {.epochs = 200, .rate = 0.05, .validation = &held_out, .metrics = {accuracy()}, .patience = 3});
  EXPECT_EQ(report.reason, "patience");
  EXPECT_LT(report.epochs, 200);
  EXPECT_DOUBLE_EQ(learner.evaluate(held_out).loss, report.best->loss);
}

// Traps of feenableexcept() would end the process; a rounding mode would depend on which thread computes.
TEST(Learner, ComputesAlikeInEveryFloatingPointEnvironmentOfTheHost) {
  const auto trained = [](int threads, int early, int late) {
    std::fesetround(early);
    Reader reader;
    Loader loader(sentences(), kBatches);
    Learner learner(reader, loss_of(reader), loader.shapes(), {.clip_norm = 0.1, .threads = threads});
    std::fesetround(late);
    steps(learner, loader, 5, 1);
    EXPECT_EQ(std::fegetround(), late);
    std::fesetround(FE_TONEAREST);
    return weights_of(learner);
  };
  const std::vector<float> usual = trained(1, FE_TONEAREST, FE_TONEAREST);
  for (const int threads : {1, 3}) {
    EXPECT_TRUE(same_bits(trained(threads, FE_TONEAREST, FE_UPWARD), usual)) << threads;
    EXPECT_TRUE(same_bits(trained(threads, FE_DOWNWARD, FE_TONEAREST), usual)) << threads;
    ::feenableexcept(FE_INVALID | FE_DIVBYZERO | FE_OVERFLOW);
    EXPECT_TRUE(same_bits(trained(threads, FE_TONEAREST, FE_TONEAREST), usual)) << threads;
    EXPECT_EQ(::fegetexcept(), FE_INVALID | FE_DIVBYZERO | FE_OVERFLOW);
    ::fedisableexcept(FE_ALL_EXCEPT);
  }
}
}  // namespace
