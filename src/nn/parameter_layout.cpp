#include "nn/parameter_layout.h"

#include "base/thread_pool.h"

namespace linnet {

ParameterLayout::ParameterLayout(const Module& model) {
  const std::vector<ParameterSpec> specs = model.parameters();
  for (bool decay : {true, false}) {
    for (const ParameterSpec& spec : specs) {
      if (!spec.trainable || spec.weight_decay != decay) continue;
      trainable_.push_back({spec, parameter_count_});
      parameter_count_ += spec.shape.elements();
    }
    if (decay) decay_count_ = parameter_count_;
  }
  for (const ParameterSpec& spec : specs) {
    if (spec.trainable) continue;
    constants_.push_back({spec, constant_count_});
    constant_count_ += spec.shape.elements();
  }
}

namespace {

// Each by its own name: in any order, on any thread.
void initialize_all(const std::vector<ParameterPlace>& places, uint64_t seed, float* buffer, ThreadPool& pool) {
  pool.run(static_cast<int64_t>(places.size()), [&](int64_t i, int) {
    const auto& [spec, offset] = places[static_cast<size_t>(i)];
    initialize(spec.initializer, spec.name, seed, spec.shape,
               {buffer + offset, static_cast<size_t>(spec.shape.elements())});
  });
}

}  // namespace

void ParameterLayout::initialize_parameters(uint64_t seed, float* parameters, ThreadPool& pool) const {
  initialize_all(trainable_, seed, parameters, pool);
}
void ParameterLayout::initialize_constants(float* constants, ThreadPool& pool) const {
  initialize_all(constants_, 0, constants, pool);
}

}  // namespace linnet
