#include "models/modules/key_value_cache.h"
#include "engine/ops/cache/cache.h"
#include "engine/ops/movement/movement.h"
#include "models/nn/trace.h"

namespace linnet {
namespace {

// A state has keys and values side by side: [..., 2 key_width].
QueriesKeysValues with_queries(Tensor queries, Tensor keys_values, Tensor rows = {}) {
  const std::vector<Tensor> both = split_evenly(keys_values, -1, 2);
  return {queries, both[0], both[1], rows};
}

std::vector<Tensor> split_queries(const SelfAttention& attention, Tensor projected) {
  return split(projected, -1, {attention.config.query_width(), 2 * attention.config.key_width()});
}

Tensor cache_state(const SelfAttention& attention, Tensor like, int64_t slots, int64_t max_length) {
  return like.graph->input("cache." + attention.path(),
                           {like.type().dtype, {slots, max_length, 2 * attention.config.key_width()}});
}

Tensor memory_state(const CrossAttention& attention, Graph& graph, DType dtype, int64_t slots, int64_t max_length) {
  return graph.input("memory." + attention.path(), {dtype, {slots, max_length, 2 * attention.config.key_width()}});
}

}  // namespace

Tensor DecodeStep::positions() const { return reshape(position, {position.dim(0), 1}); }

SplitProjection fill_cache(const CacheSlots& cache) {
  return [cache](const SelfAttention& attention, Tensor projected) {
    const std::vector<Tensor> parts = split_queries(attention, projected);
    const Tensor state = cache_state(attention, projected, cache.slots, cache.max_length);
    projected.graph->update(state, cache_fill(state, parts[1], cache.rows));
    return with_queries(parts[0], parts[1]);
  };
}

SplitProjection step_cache(const DecodeStep& step) {
  return [step](const SelfAttention& attention, Tensor projected) {
    const std::vector<Tensor> parts = split_queries(attention, projected);
    if (step.cache_rows.defined()) {
      const Tensor state = cache_state(attention, projected, step.slots, step.max_length);
      const Tensor cache = cache_put(state, parts[1], step.cache_rows, step.position);
      projected.graph->update(state, cache);
      return with_queries(parts[0], cache, step.cache_rows);
    }
    const Tensor state = cache_state(attention, projected, projected.dim(0), step.max_length);
    const Tensor moved = step.beams > 1 ? cache_reorder(state, step.parents, step.position, step.beams) : state;
    const Tensor cache = cache_write(moved, parts[1], step.position);
    projected.graph->update(state, cache);
    return with_queries(parts[0], cache);
  };
}

void keep_memory(CrossAttention& attention, Tensor memory, const CacheSlots& cache) {
  ModuleScope scope(attention);
  const Tensor state = memory_state(attention, *memory.graph, memory.type().dtype, cache.slots, cache.max_length);
  memory.graph->update(state, cache_fill(state, attention.project_memory(memory), cache.rows));
}

MemoryKeys kept_memory(Graph& graph, const DecodeStep& step) {
  return [&graph, step](CrossAttention& attention) {
    const int64_t memories = step.memory_lengths.dim(0);
    const Tensor state = memory_state(attention, graph, Trace::current().options().dtype, memories, step.memory_length);
    const std::vector<Tensor> both = split_evenly(state, -1, 2);
    return std::pair(both[0], both[1]);
  };
}

}  // namespace linnet
