// What layouts ask of the stages of a model: apart from how they are traced, which inference does without.
#include <algorithm>
#include "engine/passes/tensor_parallel.h"
#include "models/nn/pipeline_parallel.h"

namespace linnet {

const ModelStages* stages_of(const ParameterLayout& layout) {
  return layout.division() ? layout.division()->stages.get() : nullptr;
}

const ParameterLayout& of_all_stages(const ParameterLayout& layout) {
  const ModelStages* stages = stages_of(layout);
  return stages ? *stages->all : layout;
}

const ParameterSlot* find_parameter(const ParameterLayout& layout, const std::string& name) {
  const auto found =
      std::ranges::find_if(layout.parameters(), [&](const ParameterSlot& slot) { return slot.spec.name == name; });
  return found == layout.parameters().end() ? nullptr : &*found;
}

bool is_copy(const ParameterLayout& layout, const TrainedRange& range) {
  const ModelStages* stages = stages_of(layout);
  const auto first = std::ranges::find(layout.parameters(), range.offset, &ParameterSlot::offset);
  return stages && !stages->owns(first->spec.name);
}

bool is_in_chunk(const ParameterLayout& layout, const TrainedRange& range, int chunk) {
  const ModelStages* stages = stages_of(layout);
  if (!stages) return true;
  const auto first = std::ranges::find(layout.parameters(), range.offset, &ParameterSlot::offset);
  const std::vector<int> chunks = stages->chunks_with(first->spec.name);
  return std::ranges::find(chunks, chunk) != chunks.end();
}

}  // namespace linnet
