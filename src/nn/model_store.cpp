#include "nn/model_store.h"

namespace linnet {

SharedRegions declare_model(Store& store, const ParameterLayout& layout) {
  const auto declare = [&](const char* name, MemoryKind kind, int64_t count) {
    const size_t bytes = static_cast<size_t>(count) * sizeof(float);
    store.bind(name, {store.add_region(name, kind, bytes), 0}, bytes);
  };
  declare("parameters", MemoryKind::kParameters, layout.parameter_count());
  declare("constants", MemoryKind::kConstants, layout.constant_count());
  return {store.add_region("arena", MemoryKind::kActivations, 0),
          store.add_region("workspace", MemoryKind::kWorkspace, 0)};
}

}  // namespace linnet
