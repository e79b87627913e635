// For tests of generation with decoder-only models.
#pragma once
#include <memory>
#include <vector>
#include "engine/exec/interpreter.h"
#include "generation/engine.h"
#include "models/nn/trace.h"

namespace linnet {
// A model with random weights and the memory that it takes to generate.
struct ModelFixture {
  explicit ModelFixture(std::unique_ptr<CausalModel> of) : model(std::move(of)), layout(*model) {
    const auto bytes = static_cast<size_t>(layout.parameter_count()) * 4;
    store.bind("parameters", {store.add_region("weights", MemoryKind::kParameters, bytes), 0}, bytes);
    shared = {store.add_region("arena", MemoryKind::kActivations, 0),
        store.add_region("workspace", MemoryKind::kWorkspace, 0)};
  }
  CausalOptions with_threads(CausalOptions options) const {
    options.threads = 2;
    return options;
  }
  // After all plans have been made.
  void finish() {
    store.allocate();
    float* parameters = store.as<float>("parameters");
    layout.initialize_parameters(1, parameters, pool);
    for (int64_t i = 0; i < layout.parameter_count(); ++i) parameters[i] *= 3;  // less even probabilities
  }

  std::unique_ptr<CausalModel> model;
  ParameterLayout layout;
  Store store;
  SharedRegions shared{};
  ThreadPool pool{2};
};

// With a generator; and, apart from it, the model's plain forward pass in float64.
struct CausalFixture : ModelFixture {
  CausalFixture(const CausalOptions& options, std::unique_ptr<CausalModel> of) : ModelFixture(std::move(of)) {
    generator = std::make_unique<CausalGenerator>(*model, layout, store, shared, with_threads(options));
    finish();
    generator->bind();
  }

  // Logits [T, V] behind each of `ids`, without cache, padding or batch.
  std::vector<double> forward(const std::vector<int32_t>& ids) {
    Trace trace({.dtype = DType::kF64, .layout = &layout});
    const TensorType type{DType::kI32, {1, static_cast<int64_t>(ids.size())}};
    trace.graph().output("logits", model->logits(model->hidden({trace.input("tokens", type)})));
    const int64_t count = layout.parameter_count();
    const std::vector<double> weights(store.as<float>("parameters"), store.as<float>("parameters") + count);
    NamedTensors inputs;
    inputs["tokens"] = HostTensor(type, std::span<const int32_t>(ids));
    inputs["parameters"] = HostTensor({DType::kF64, {count}}, std::span<const double>(weights));
    return interpret(trace.finish(), inputs).outputs.at("logits").values();
  }

  std::vector<Continuation> generate(const std::vector<std::vector<int32_t>>& prompts, const GenerateSettings& settings,
      const CausalGenerator::Listener& listener = {}) {
    return generator->generate(prompts, settings, pool, listener);
  }

  std::unique_ptr<CausalGenerator> generator;
};
}  // namespace linnet
