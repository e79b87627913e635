#include "models/nn/model_store.h"
#include <set>
#include "base/process.h"
#include "engine/plan/store.h"

namespace linnet {
namespace {
void unpack(const PackedWeight& weight, int64_t row, int64_t end, std::vector<float>& out) {
  out.resize((end - row) * weight.shape.columns);
  dequantize_rows(weight, row, end, out.data());
}
}  // namespace

void declare_flat(
    Store& store, const ParameterLayout& layout, const std::string& name, MemoryKind kind, bool with_untrained) {
  const size_t all = float_bytes(with_untrained ? layout.stored_count() : layout.trained_count());
  const RegionId region = store.add_region(name, kind, all);
  store.bind(name, {region, 0}, all);  // also the input of the first range, which begins here
  for (const TrainedRange& range : layout.ranges())
    if (!range.suffix.empty())
      store.bind(name + range.suffix, {region, float_bytes(range.offset)}, float_bytes(range.count));
  if (!with_untrained) return;
  const size_t frozen = float_bytes(layout.trained_count()), buffers = float_bytes(layout.buffer_offset());
  if (!layout.frozen().empty()) store.bind(kFrozenInput, {region, frozen}, buffers - frozen);
  if (!layout.buffers().empty()) store.bind(kBufferInput, {region, buffers}, all - buffers);
}

void declare_shared(Store& store, const ParameterLayout& layout, const Store& owner) {
  const RegionId region = store.share_region(owner, owner.find(state::kParameters, 0).region);
  std::span<const ParameterSlot> trained = layout.trained();
  for (const TrainedRange& range : layout.ranges()) {
    store.bind(state::kParameters + range.suffix, {region, float_bytes(layout.offset_at_owner(trained.front()))},
        float_bytes(range.count));
    trained = trained.subspan(layout.slots_in(range));
  }
  for (const ParameterSlot& slot : layout.frozen())
    store.bind(shared_input(slot), {region, float_bytes(layout.offset_at_owner(slot))},
        float_bytes(slot.spec.shape.elements()));
  if (!layout.buffers().empty())
    store.bind(kBufferInput, {region, float_bytes(layout.owner()->buffer_offset())},
        float_bytes(layout.stored_count() - layout.buffer_offset()));
}

void declare_quantized(Store& store, const ParameterLayout& layout) {
  if (layout.quantized().empty()) return;
  const RegionId region = store.add_region("packed weights", MemoryKind::kParameters, layout.quantized_bytes());
  for (const QuantizedSlot& slot : layout.quantized())
    store.bind(slot.input(), {region, slot.offset}, slot.shape.bytes());
}

void write_quantized(const Store& store, const QuantizedSlot& slot, const float* values, ThreadPool& pool) {
  pack_weight(slot.shape, values, store.data(slot.input()), pool);
  store.push(slot.input());
}

void load_into(const Store& store, const ParameterLayout& layout, ThreadPool& pool,
    const std::function<void(const ParameterTarget& parameters)>& load) {
  if (layout.quantized().empty()) return load(store.as<float>(state::kParameters));
  // Addresses for all parameters; only those being read have memory.
  const auto floats = std::make_unique_for_overwrite<float[]>(static_cast<size_t>(layout.parameter_count()));
  std::set<int64_t> finished;  // offsets
  ParameterTarget target = floats.get();
  target.finished = [&](const ParameterSlot& slot) {
    if (!finished.insert(slot.offset).second) return;
    float* values = floats.get() + slot.offset;
    if (layout.is_in_blocks(slot)) {
      const QuantizedSlot& quantized = layout.quantized_slot(slot);
      pack_blocks(quantized.shape, reinterpret_cast<const std::byte*>(values), store.data(quantized.input()), pool);
      store.push(quantized.input());
    } else if (layout.is_quantized(slot)) write_quantized(store, layout.quantized_slot(slot), values, pool);
    else std::copy_n(values, slot.spec.shape.elements(), store.as<float>(state::kParameters) + slot.offset);
    give_back_pages(values, float_bytes(slot.spec.shape.elements()));
  };
  load(target);
  for (const ParameterSlot& slot : layout.parameters()) target.finish(slot);
}

void initialize_quantized(const Store& store, const ParameterLayout& layout, uint64_t seed, ThreadPool& pool) {
  std::vector<float> values;
  for (const QuantizedSlot& quantized : layout.quantized()) {
    values.resize(quantized.slot.spec.shape.elements());
    initialize(quantized.slot.spec, seed, values.data());
    write_quantized(store, quantized, values.data(), pool);
  }
}

ParameterValues::ParameterValues(const Store& store, const ParameterLayout& layout, const float* trained)
    : store_(store), layout_(layout), trained_(trained), untrained_(store.as<float>(state::kParameters)) {}

const float* ParameterValues::of(const ParameterSlot& slot, std::vector<float>& unpacked) const {
  if (slot.offset < layout_.trained_count()) return trained_ + slot.offset;
  if (!layout_.is_quantized(slot)) return untrained_ + slot.offset;
  const PackedWeight weight = packed(slot);
  unpack(weight, 0, weight.shape.rows, unpacked);
  return unpacked.data();
}

std::span<const float> ParameterValues::from(
    const ParameterSlot& slot, int64_t first, std::vector<float>& unpacked) const {
  if (slot.offset < layout_.trained_count() || !layout_.is_quantized(slot))
    return {of(slot, unpacked) + first, static_cast<size_t>(slot.spec.shape.elements() - first)};
  constexpr int64_t kElements = 1 << 20, kRows = 8;  // so many rows are whole vectors of bytes
  const PackedWeight weight = packed(slot);
  const int64_t row = first / weight.shape.columns;
  const int64_t rows = std::max<int64_t>(kElements / weight.shape.columns / kRows, 1) * kRows;
  unpack(weight, row, std::min(row + rows, weight.shape.rows), unpacked);
  return unpacked;
}

PackedWeight ParameterValues::packed(const ParameterSlot& slot) const {
  const QuantizedSlot& quantized = layout_.quantized_slot(slot);
  return {quantized.shape, store_.data(quantized.input())};
}

SharedRegions declare_model(Store& store, const ParameterLayout& layout) {
  declare_flat(store, layout, state::kParameters, MemoryKind::kParameters, /*with_untrained=*/true);
  declare_quantized(store, layout);
  store.declare(state::kConstants, MemoryKind::kConstants, float_bytes(layout.constant_count()));
  return add_shared_regions(store);
}
}  // namespace linnet
