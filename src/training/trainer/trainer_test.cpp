#include "training/trainer/trainer.h"
#include <gtest/gtest.h>
#include <cmath>
#include <limits>
#include "engine/exec/interpreter.h"
#include "translation_fixture.h"

namespace linnet {
namespace {
using testing::make_batch;
using testing::small_config;
using testing::TokenBatch;
using testing::Training;

const std::vector<std::pair<int32_t, int32_t>> kLengths{{7, 5}, {3, 8}, {1, 1}, {6, 6}};

std::vector<TransformerConfig> variants() {
  TransformerConfig post = small_config(), pre = small_config();
  post.dropout = 0.1;
  pre.dropout = 0.2;
  pre.norm_first = pre.final_norm = pre.share_embeddings = pre.tie_head = true;
  pre.activation = Activation::kGelu;
  return {post, pre};
}

TEST(Trainer, TheFirstLossIsThatOfGuessing) {
  for (bool tied : {false, true}) {
    TransformerConfig config = small_config(1000);
    config.d_model = 256, config.num_heads = 8, config.d_ff = 512;
    config.share_embeddings = config.tie_head = tied;
    const TokenBatch batch = make_batch({{9, 9}, {12, 12}, {5, 12}, {12, 3}}, 12, 12, 1000);
    Training training(config, {batch.shape});
    training.load(batch);
    const LossTotal total = training.trainer->evaluate(0);
    EXPECT_NEAR(total.sum / static_cast<double>(total.tokens), std::log(1000.0), 0.1 * std::log(1000.0))
        << (tied ? "tied" : "untied");
  }
}

TEST(Trainer, OneBatchIsLearnedByHeart) {
  for (const TransformerConfig& variant : variants()) {
    TransformerConfig config = variant;
    config.dropout = 0;
    const TokenBatch batch = make_batch(kLengths, 8, 8, 50);
    Training training(config, {batch.shape});
    training.load(batch);
    double loss = 1;
    for (int64_t step = 1; step <= 300 && loss > 0.01; ++step) loss = training.trainer->step(0, 3e-3, step).loss;
    EXPECT_LT(loss, 0.01);
  }
}

TEST(Trainer, FourMicroBatchesOfUnequalTokensAreOneLargeBatch) {
  std::vector<std::pair<int32_t, int32_t>> all;
  std::vector<TokenBatch> micro;
  for (int32_t part = 0; part < 4; ++part) {
    const std::vector<std::pair<int32_t, int32_t>> lengths{{2 + part, 8 - 2 * part}, {5, 1 + part}};
    micro.push_back(make_batch(lengths, 8, 8, 50, 2 * part));
    all.insert(all.end(), lengths.begin(), lengths.end());
  }
  const TokenBatch whole = make_batch(all, 8, 8, 50);
  Training one(small_config(), {whole.shape}), four(small_config(), {micro[0].shape}, {.accumulate_steps = 4});
  for (int64_t step = 1; step <= 3; ++step) {
    one.load(whole);
    const StepReport expected = one.trainer->step(0, 1e-3, step);
    for (int64_t part = 0; part < 4; ++part) {
      four.load(micro[static_cast<size_t>(part)]);
      four.trainer->accumulate(0, step, part);
    }
    const StepReport got = four.trainer->apply(1e-3, step);
    EXPECT_EQ(got.tokens, expected.tokens);
    EXPECT_NEAR(got.loss, expected.loss, 1e-5 * expected.loss);
    EXPECT_NEAR(got.grad_norm, expected.grad_norm, 1e-5 * expected.grad_norm);
  }
}

struct Outcome {
  std::vector<double> losses;
  std::vector<float> parameters;
  bool operator==(const Outcome&) const = default;
};

Outcome run(const TransformerConfig& config, TrainerOptions options) {
  const TokenBatch a = make_batch(kLengths, 8, 8, 50), b = make_batch({{12, 11}, {4, 2}}, 12, 12, 50, 9);
  options.optimizer.ema_decay = 0.9;
  Training training(config, {a.shape, b.shape}, options, 0.1);
  Outcome result;
  for (int64_t step = 1; step <= 6; ++step) {
    training.load(step % 2 ? a : b);
    result.losses.push_back(training.trainer->step(step % 2 ? 0 : 1, 1e-3, step).loss);
  }
  result.parameters = training.parameters();
  return result;
}

TEST(Trainer, AnyNumberOfThreadsAndASecondRunGiveTheSameBits) {
  for (const TransformerConfig& config : variants()) {
    const Outcome one = run(config, {.threads = 1});
    for (int threads : {1, 2, 3}) EXPECT_TRUE(run(config, {.threads = threads}) == one) << threads << " threads";
    EXPECT_FALSE(run(config, {.seed = 2}) == one);
  }
}

TEST(Trainer, EachPassCanBeOffAndChangesNothingThatMatters) {
  for (const TransformerConfig& config : variants()) {
    const Outcome all_on = run(config, {});
    for (const std::string& name : pass_names()) {
      const Outcome without = run(config, {.passes = {.off = {name}}});
      for (size_t i = 0; i < all_on.losses.size(); ++i)
        EXPECT_NEAR(without.losses[i], all_on.losses[i], 1e-5 * all_on.losses[i]) << name;
    }
    // Where values lie is no arithmetic at all.
    EXPECT_TRUE(run(config, {.passes = {.off = {"make_views"}}}) == all_on);
  }
}

NamedTensors inputs_of(const Graph& graph, const Store& store) {
  NamedTensors inputs;
  for (const GraphInput& input : graph.inputs()) {
    HostTensor tensor(graph.value(input.value).type);
    std::memcpy(tensor.data(), store.data(input.name), tensor.type().bytes());
    inputs[input.name] = std::move(tensor);
  }
  return inputs;
}

// The whole training step of the model, through two ways of running it.
TEST(Trainer, TheInterpreterAndThePlannedExecutorAgreeBitForBit) {
  for (const TransformerConfig& config : variants()) {
    const TokenBatch batch = make_batch(kLengths, 8, 8, 50);
    Training training(config, {batch.shape}, {.threads = 2}, 0.1);
    training.load(batch);
    training.trainer->step(0, 1e-3, 1);
    const Executor& executor = training.trainer->plans().train_executor(0);
    const NamedTensors inputs = inputs_of(executor.plan().graph, training.store);
    const auto fast = interpret(executor.plan().graph, inputs, {.kernels = KernelSet::kFast, .threads = 3});
    // Unfused, on the reference kernels: the graph as it is traced, before any pass.
    const TranslationSizes sizes{batch.shape.batch, batch.shape.source_length, batch.shape.target_length};
    const LossFunction loss = [&](Trace& trace) { return translation_loss(training.model, trace, sizes, 0.1); };
    const Graph traced = single_graph(training.layout, loss, {.optimizer = training.trainer->options().optimizer});
    const auto reference = interpret(traced, inputs_of(traced, training.store));
    executor.run(training.trainer->pool());
    for (const auto& [name, tensor] : fast.states) {
      EXPECT_EQ(std::memcmp(training.store.data(name), tensor.data(), tensor.type().bytes()), 0) << name;
      // The reference kernels round otherwise. Adam divides by the root of a square, which makes any rounding of a
      // gradient that is really 0 (a key's bias) a whole step: its moments tell the gradients apart, weights do not.
      if (name == "parameters") continue;
      double difference = 0, norm = 0;
      const HostTensor& expected = reference.states.at(name);
      for (int64_t i = 0; i < tensor.type().shape.elements(); ++i) {
        difference += std::pow(tensor[i] - expected[i], 2);
        norm += std::pow(expected[i], 2);
      }
      EXPECT_LE(std::sqrt(difference), 1e-5 * std::sqrt(norm)) << name;
    }
    EXPECT_EQ(executor.output("loss_sum").as<float>()[0], static_cast<float>(fast.outputs.at("loss_sum")[0]));
  }
}

TEST(Trainer, AStepThatIsNotFiniteChangesNothingAndNamesItsNode) {
  const TokenBatch batch = make_batch(kLengths, 8, 8, 50);
  Training training(small_config(), {batch.shape});
  training.load(batch);
  // The last parameter by name of the second encoder layer's first projection.
  for (const ParameterSlot& slot : training.layout.parameters())
    if (slot.spec.name == "encoder.layers.1.linear1.weight")
      training.trainer->state().flat("parameters")[slot.offset + 5] = std::numeric_limits<float>::infinity();
  const std::vector<float> before = training.parameters();
  const StepReport report = training.trainer->step(0, 1e-3, 1);
  EXPECT_FALSE(report.finite);
  EXPECT_EQ(training.parameters(), before);
  training.trainer->state().flat("parameters")[0] = before[0];
  EXPECT_NE(training.trainer->find_non_finite(0), "");
}
}  // namespace
}  // namespace linnet
