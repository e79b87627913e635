// Twenty training steps against PyTorch's nn.Transformer in float64 (tests/golden/make_transformer.py).
#include <gtest/gtest.h>
#include <cmath>
#include "engine/exec/executor.h"
#include "engine/exec/interpreter.h"
#include "engine/passes/passes.h"
#include "models/modules/encoder_decoder.h"
#include "training/trainer/step_graphs.h"
#include "transformer_golden.h"

namespace linnet {
namespace {
using testing::read_doubles;
using testing::TransformerGolden;

class Golden : public ::testing::TestWithParam<const char*>, protected TransformerGolden {
 protected:
  Golden() : TransformerGolden(GetParam()), model_(config()), layout_(model_) {
    options_.optimizer.beta1 = number("beta1");
    options_.optimizer.beta2 = number("beta2");
    options_.optimizer.epsilon = number("epsilon");
    const Shape& source = file_.at("source").type.shape;
    steps_ = source[0];
    sizes_ = {source[1], source[2], file_.at("target_in").type.shape[2]};
    const double smoothing = number("label_smoothing");
    loss_ = [this, smoothing](Trace& trace) { return translation_loss(model_, trace, sizes_, smoothing); };
  }

  std::vector<double> flat(const std::string& prefix) const { return TransformerGolden::flat(layout_, prefix); }

  // The sinusoidal table in float64: the initializer's is rounded to float32.
  std::vector<double> positions() const {
    std::vector<double> table;
    const int64_t width = model_.config.d_model;
    for (int64_t position = 0; position < model_.config.max_seq_len; ++position)
      for (int64_t i = 0; i < width; ++i) {
        const double angle = static_cast<double>(position) /
                             std::pow(10000.0, static_cast<double>(i / 2 * 2) / static_cast<double>(width));
        table.push_back(i % 2 ? std::cos(angle) : std::sin(angle));
      }
    return table;
  }

  // Batch `step` of input `name`.
  HostTensor batch(const std::string& name, int64_t step) const {
    const SafetensorsEntry& entry = file_.at(name);
    TensorType type{DType::kI32, Shape(entry.type.shape.sizes().subspan(1))};
    HostTensor tensor(type);
    std::memcpy(tensor.data(), entry.data + static_cast<size_t>(step) * type.bytes(), type.bytes());
    return tensor;
  }

  static constexpr std::array kBatchInputs{"source", "source_lengths", "target_in", "target_out", "target_lengths"};

  Transformer model_;
  ParameterLayout layout_;
  StepOptions options_;
  LossFunction loss_;
  TranslationSizes sizes_;
  int64_t steps_;
};

double norm(std::span<const double> x) {
  double sum = 0;
  for (double v : x) sum += v * v;
  return std::sqrt(sum);
}

TEST_P(Golden, TheFloat64InterpreterAgreesWithLossesGradientsAndFinalParameters) {
  options_.dtype = DType::kF64;
  const Graph step = single_graph(layout_, loss_, options_), accumulate = accumulate_graph(layout_, loss_, options_);
  const TensorType flat_type{DType::kF64, {layout_.parameter_count()}};
  NamedTensors inputs;
  inputs["parameters"] = HostTensor(flat_type, std::span<const double>(flat("init")));
  for (const char* state : {"moment1", "moment2", "gradient"}) inputs[state] = HostTensor(flat_type);
  inputs["constants"] = HostTensor({DType::kF64, {layout_.constant_count()}}, std::span<const double>(positions()));
  inputs["control"] = HostTensor({DType::kF64, {2}});
  for (const char* scalar : {"loss_sum", "token_count"}) inputs[scalar] = HostTensor({DType::kF64, {}});
  const std::vector<double> losses = read_doubles(file_.at("losses"));
  for (int64_t i = 0; i < steps_; ++i) {
    for (const char* name : kBatchInputs) inputs[name] = batch(name, i);
    inputs["control"].as<double>()[0] = number("lr");
    inputs["control"].as<double>()[1] = static_cast<double>(i + 1);
    if (i == 0) {
      const HostTensor gradient = interpret(accumulate, inputs).states.at("gradient");
      const double count = interpret(step, inputs).outputs.at("token_count")[0];
      const std::vector<double> reference = flat("grad");
      for (size_t j = 0; j < reference.size(); ++j)
        EXPECT_NEAR(gradient[static_cast<int64_t>(j)] / count, reference[j], 1e-9 * std::abs(reference[j]) + 1e-12)
            << j;
    }
    InterpreterResult result = interpret(step, inputs);
    EXPECT_NEAR(result.outputs.at("loss_sum")[0] / result.outputs.at("token_count")[0], losses[static_cast<size_t>(i)],
        1e-9 * losses[static_cast<size_t>(i)])
        << "step " << i;
    for (const char* state : {"parameters", "moment1", "moment2"}) inputs[state] = result.states.at(state);
  }
  const std::vector<double> final = flat("final");
  for (size_t j = 0; j < final.size(); ++j)
    EXPECT_NEAR(inputs["parameters"][static_cast<int64_t>(j)], final[j], 1e-8) << j;
}

// The fp32 planned executor, with every pass on.
TEST_P(Golden, ThePlannedExecutorAgreesInFloat32) {
  Store store;
  const auto bytes = [](int64_t count) { return static_cast<size_t>(count) * 4; };
  const RegionId states = store.add_region(
      "states", MemoryKind::kParameters, bytes(5 * layout_.parameter_count() + layout_.constant_count() + 4096));
  size_t offset = 0;
  const auto bind = [&](const char* name, int64_t count) {
    store.bind(name, {states, offset}, bytes(count));
    offset += (bytes(count) + 63) / 64 * 64;
  };
  for (const char* name : {"parameters", "moment1", "moment2", "gradient"}) bind(name, layout_.parameter_count());
  bind("constants", layout_.constant_count());
  for (const char* name : {"control", "loss_sum", "token_count"}) bind(name, 2);
  for (const char* name : kBatchInputs) bind(name, file_.at(name).type.shape.elements() / steps_);
  const SharedRegions shared{
      store.add_region("arena", MemoryKind::kActivations, 0), store.add_region("workspace", MemoryKind::kWorkspace, 0)};
  const Plan step = make_plan(optimize(single_graph(layout_, loss_, options_)), store, shared, {.threads = 2});
  const Plan accumulate =
      make_plan(optimize(accumulate_graph(layout_, loss_, options_)), store, shared, {.threads = 2});
  store.allocate();
  const Executor run_step(step, store, shared), run_accumulate(accumulate, store, shared);

  const std::vector<double> init = flat("init"), losses = read_doubles(file_.at("losses"));
  std::copy(init.begin(), init.end(), store.as<float>("parameters"));
  ThreadPool pool(2);
  layout_.initialize_constants(store.as<float>("constants"), pool);
  for (int64_t i = 0; i < steps_; ++i) {
    for (const char* name : kBatchInputs) {
      const HostTensor input = batch(name, i);
      std::memcpy(store.data(name), input.data(), input.type().bytes());
    }
    store.as<float>("control")[0] = static_cast<float>(number("lr"));
    store.as<float>("control")[1] = static_cast<float>(i + 1);
    if (i == 0) {
      run_accumulate.run(pool);
      const double count = store.as<float>("token_count")[0];
      const std::vector<double> reference = flat("grad");
      for (const ParameterSlot& slot : layout_.parameters()) {
        const auto size = static_cast<size_t>(slot.spec.shape.elements());
        const std::span<const double> expected(reference.data() + slot.offset, size);
        std::vector<double> difference;
        for (size_t j = 0; j < size; ++j)
          difference.push_back(
              store.as<float>("gradient")[slot.offset + static_cast<int64_t>(j)] / count - expected[j]);
        EXPECT_LE(norm(difference), 1e-4 * norm(expected) + 1e-7 * norm(reference)) << slot.spec.name;
      }
    }
    run_step.run(pool);
    const double loss = run_step.output("loss_sum").as<float>()[0] / run_step.output("token_count").as<float>()[0];
    EXPECT_NEAR(loss, losses[static_cast<size_t>(i)], 1e-5 * losses[static_cast<size_t>(i)]) << "step " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(PyTorch, Golden, ::testing::Values("post_ln_relu", "pre_ln_gelu"),
    [](const auto& info) { return std::string(info.param); });
}  // namespace
}  // namespace linnet
