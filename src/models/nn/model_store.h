// Declares the memory of a model, and moves parameters into it and out of it.
#pragma once
#include "base/thread_pool.h"
#include "engine/plan/plan.h"
#include "models/nn/parameter_layout.h"

namespace linnet {
// Binds "parameters", "constants" and any quantized weights, and adds the arena and the workspace that plans share.
SharedRegions declare_model(Store& store, const ParameterLayout& layout);

// A region for a flat buffer in the order of the layout, bound as a whole by `name` and by the inputs of each trained
// range and, with `with_untrained` (the parameters themselves), those of the frozen parameters and of the buffers.
void declare_flat(
    Store& store, const ParameterLayout& layout, const std::string& name, MemoryKind kind, bool with_untrained);

// Binds the parameters and buffers of a layout with an owner to the owner's memory.
void declare_shared(Store& store, const ParameterLayout& layout, const Store& owner);

// A region for the packed weights, each bound by its input's name; none if no parameter is quantized.
void declare_quantized(Store& store, const ParameterLayout& layout);

// Has `load` fill a buffer and puts the values where graphs read them, on the host. The buffer is "parameters" itself
// or, if some are quantized, reserved addresses whose memory is freed as each parameter is finished. The caller pushes.
void load_into(const Store& store, const ParameterLayout& layout, ThreadPool& pool,
    const std::function<void(const ParameterTarget& parameters)>& load);

// Rounds and packs the values of one parameter.
void write_quantized(const Store& store, const QuantizedSlot& slot, const float* values, ThreadPool& pool);

// Draws and packs the quantized parameters, which initialize_parameters() leaves out.
void initialize_quantized(const Store& store, const ParameterLayout& layout, uint64_t seed, ThreadPool& pool);

// Values of all parameters. Trained ones may come from another buffer than "parameters", such as a moving average.
class ParameterValues {
 public:
  ParameterValues(const Store& store, const ParameterLayout& layout, const float* trained);
  // A quantized parameter is unpacked into `unpacked`.
  const float* of(const ParameterSlot& slot, std::vector<float>& unpacked) const;
  // The values from element `first` on, which begins a row: for a quantized parameter some whole rows, about a million
  // values; for any other the rest.
  std::span<const float> from(const ParameterSlot& slot, int64_t first, std::vector<float>& unpacked) const;

 private:
  PackedWeight packed(const ParameterSlot& slot) const;

  const Store& store_;
  const ParameterLayout& layout_;
  const float *trained_, *untrained_;
};
}  // namespace linnet
