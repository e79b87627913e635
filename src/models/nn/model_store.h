// The memory every model needs to run, declared in one call; and how parameters come into it and out of it.
#pragma once
#include <functional>
#include "base/thread_pool.h"
#include "engine/plan/plan.h"
#include "models/nn/parameter_layout.h"

namespace linnet {

// Binds "parameters" and "constants" in regions of their own, and quantized weights if there are any, and adds the
// arena and the workspace that plans share.
SharedRegions declare_model(Store& store, const ParameterLayout& layout);

// A region for a flat buffer in the order of the layout, bound by `name` as a whole and by the inputs of graphs: one
// for each trained range, and, for the parameters themselves (`with_untrained`), one for the frozen ones
// behind them and one for buffers.
void declare_flat(Store& store, const ParameterLayout& layout, const std::string& name, MemoryKind kind,
                  bool with_untrained);

// Binds the parameters and buffers of a layout with an owner to the owner's memory, which is there already.
void declare_shared(Store& store, const ParameterLayout& layout, const Store& owner);

// A region for the packed weights, each bound by its input's name; none when there are no quantized parameters.
void declare_quantized(Store& store, const ParameterLayout& layout);

// Has `load` fill a buffer with the parameters and puts them where graphs read them: that buffer is "parameters"
// itself, or, where some are quantized, one of addresses alone, whose memory is given back parameter by parameter as
// they are finished. The host's copies; the caller pushes them.
void load_into(const Store& store, const ParameterLayout& layout, ThreadPool& pool,
               const std::function<void(const ParameterTarget& parameters)>& load);

// Rounds and packs the values of one parameter.
void write_quantized(const Store& store, const QuantizedSlot& slot, const float* values, ThreadPool& pool);

// Draws what initialize_parameters() leaves out: quantized parameters, packed.
void initialize_quantized(const Store& store, const ParameterLayout& layout, uint64_t seed, ThreadPool& pool);

// Values of all parameters, wherever they lie. Trained ones may come from another buffer than "parameters": a moving
// average, say.
class ParameterValues {
 public:
  ParameterValues(const Store& store, const ParameterLayout& layout, const float* trained);
  // `unpacked` takes the values of a quantized parameter.
  const float* of(const ParameterSlot& slot, std::vector<float>& unpacked) const;
  // The values from element `first` on, which begins a row: of a quantized parameter some whole rows, about a million
  // values; of any other parameter the rest.
  std::span<const float> from(const ParameterSlot& slot, int64_t first, std::vector<float>& unpacked) const;

 private:
  PackedWeight packed(const ParameterSlot& slot) const;

  const Store& store_;
  const ParameterLayout& layout_;
  const float *trained_, *untrained_;
};

}  // namespace linnet
