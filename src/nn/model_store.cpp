#include "nn/model_store.h"

#include <algorithm>
#include <memory>

#include "base/error.h"

namespace linnet {

void declare_flat(Store& store, const ParameterLayout& layout, const std::string& name, MemoryKind kind,
                  bool with_untrained) {
  const auto bytes = [](int64_t count) { return static_cast<size_t>(count) * sizeof(float); };
  const size_t all = bytes(with_untrained ? layout.stored_count() : layout.trained_count());
  const RegionId region = store.add_region(name, kind, all);
  store.bind(name, {region, 0}, all);  // also the input of the first range, which begins here
  for (const TrainedRange& range : layout.ranges())
    if (!range.suffix.empty()) store.bind(name + range.suffix, {region, bytes(range.offset)}, bytes(range.count));
  if (!with_untrained) return;
  const size_t frozen = bytes(layout.trained_count()), buffers = bytes(layout.buffer_offset());
  if (!layout.frozen().empty()) store.bind(kFrozenInput, {region, frozen}, buffers - frozen);
  if (!layout.buffers().empty()) store.bind(kBufferInput, {region, buffers}, all - buffers);
}

void declare_quantized(Store& store, const ParameterLayout& layout) {
  if (layout.quantized().empty()) return;
  if (!store.device().is_host()) fail_user("quantized weights are for the CPU: leave --quantize or --device out");
  const RegionId region = store.add_region("quantized weights", MemoryKind::kParameters, layout.quantized_bytes());
  for (const QuantizedSlot& slot : layout.quantized())
    store.bind(slot.input(), {region, slot.offset}, slot.shape.bytes());
}

void load_into(const Store& store, const ParameterLayout& layout, ThreadPool& pool,
               const std::function<void(float* parameters)>& load) {
  if (layout.quantized().empty()) return load(store.as<float>("parameters"));
  const auto all = std::make_unique_for_overwrite<float[]>(static_cast<size_t>(layout.parameter_count()));
  load(all.get());
  std::copy_n(all.get(), layout.stored_count(), store.as<float>("parameters"));
  for (const QuantizedSlot& slot : layout.quantized())
    pack_weight(slot.shape, all.get() + slot.slot.offset, store.data(slot.input()), pool);
}

SharedRegions declare_model(Store& store, const ParameterLayout& layout) {
  const auto declare = [&](const char* name, MemoryKind kind, int64_t count) {
    const size_t bytes = static_cast<size_t>(count) * sizeof(float);
    store.bind(name, {store.add_region(name, kind, bytes), 0}, bytes);
  };
  declare_flat(store, layout, "parameters", MemoryKind::kParameters, /*with_untrained=*/true);
  declare_quantized(store, layout);
  declare("constants", MemoryKind::kConstants, layout.constant_count());
  return {store.add_region("arena", MemoryKind::kActivations, 0),
          store.add_region("workspace", MemoryKind::kWorkspace, 0)};
}

}  // namespace linnet
