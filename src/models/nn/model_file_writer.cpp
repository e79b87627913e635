#include <set>
#include <vector>
#include "models/nn/frozen_weights.h"
#include "models/nn/model_file.h"

namespace linnet {

void save_model(const std::string& path, const ParameterLayout& layout, const ParameterValues& values,
                const Metadata& metadata) {
  std::vector<SafetensorsTensor> tensors;
  std::map<std::string, const ParameterSlot*> quantized;
  std::vector<float> unpacked;
  std::set<std::string> apart;
  if (metadata.contains(kFrozenKey))
    for (const QuantizedSlot* slot : frozen_packed(layout)) apart.insert(slot->slot.spec.name);
  for (const ParameterSlot& slot : layout.parameters()) {
    if (apart.contains(slot.spec.name)) continue;
    const bool is_quantized = layout.is_quantized(slot);
    if (is_quantized) quantized[slot.spec.name] = &slot;
    tensors.push_back(
        {slot.spec.name, {DType::kF32, slot.spec.shape}, is_quantized ? nullptr : values.of(slot, unpacked)});
  }
  save_safetensors(path, tensors, metadata, [&](const SafetensorsTensor& tensor, size_t first) {
    return std::as_bytes(
        values.from(*quantized.at(tensor.name), static_cast<int64_t>(first / sizeof(float)), unpacked));
  });
}

}  // namespace linnet
