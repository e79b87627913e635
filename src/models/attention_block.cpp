#include "models/attention_block.h"

#include <tuple>

#include "nn/trace.h"
#include "ops/attention/attention.h"
#include "ops/cache/cache.h"
#include "ops/dropout/dropout.h"
#include "ops/movement/movement.h"

namespace linnet {
namespace {

AttentionOptions options_for(const AttentionConfig& config, const Module& module) {
  Trace& trace = Trace::current();
  AttentionOptions options{.heads = config.heads, .kv_heads = config.key_heads(), .scale = config.scale};
  if (trace.options().training && config.dropout > 0) {
    options.dropout = config.dropout;
    options.dropout_site = dropout_site(module.path(), "probabilities");
    options.random = trace.random();
  }
  return options;
}

Initializer or_glorot(const Initializer& initializer, int64_t parts) {
  return initializer ? initializer : glorot_uniform(parts);
}

// The first `rows` of a weight are scaled.
Initializer scale_rows(Initializer initializer, int64_t rows, double scale) {
  if (scale == 1) return initializer;
  return [=](std::span<float> values, const Shape& shape, const std::function<double()>& uniform) {
    initializer(values, shape, uniform);
    for (float& value : values.first(static_cast<size_t>(rows * shape[-1]))) value *= static_cast<float>(scale);
  };
}

}  // namespace

SelfAttention::SelfAttention(Module* parent, std::string name, const AttentionConfig& config)
    : Module(parent, std::move(name)),
      config(config),
      in_proj{this,
              "in_proj",
              config.width,
              config.query_width() + 2 * config.key_width(),
              scale_rows(or_glorot(config.projection, 3), config.query_width(), config.query_scale),
              config.biases},
      out_proj{this, "out_proj", config.query_width(), config.width, or_glorot(config.output, 1), config.output_bias} {}

Tensor SelfAttention::project(Tensor x, Tensor positions) {
  const Tensor all = in_proj(x);
  if (!config.rotary) return all;
  return rope(all, {.heads = config.heads + config.key_heads(),
                    .head_size = config.size(),
                    .theta = config.rotary->theta,
                    .scaling = config.rotary->scaling,
                    .positions = positions});
}

Tensor SelfAttention::operator()(Tensor x, const Sight& sight) {
  ModuleScope scope(*this);
  const int64_t key_width = config.key_width();
  auto qkv = split(project(x, sight.positions), -1, {config.query_width(), key_width, key_width});
  if (sight.extend) std::tie(qkv[1], qkv[2]) = sight.extend(*this, qkv[1], qkv[2]);
  AttentionOptions options = options_for(config, *this);
  options.causal = sight.causal;
  options.window = config.window;
  options.lengths = sight.lengths;
  options.starts = sight.starts;
  options.distance_bias = sight.distance_bias;
  return out_proj(attention(qkv[0], qkv[1], qkv[2], options));
}

Tensor SelfAttention::prefill(Tensor x, const CacheSlots& cache) {
  ModuleScope scope(*this);
  const int64_t kv_width = 2 * config.key_width();
  const std::vector<Tensor> q_kv = split(project(x, {}), -1, {config.query_width(), kv_width});
  const Tensor state = x.graph->input("cache." + path(), {x.type().dtype, {cache.slots, cache.max_length, kv_width}});
  x.graph->update(state, cache_fill(state, q_kv[1], cache.rows));
  const std::vector<Tensor> kv = split_evenly(q_kv[1], -1, 2);
  AttentionOptions options = options_for(config, *this);
  options.causal = true;
  options.window = config.window;
  return out_proj(attention(q_kv[0], kv[0], kv[1], options));
}

Tensor SelfAttention::step(Tensor x, const DecodeStep& step, Tensor distance_bias) {
  ModuleScope scope(*this);
  const int64_t kv_width = 2 * config.key_width();
  const Tensor positions = reshape(step.position, {step.position.dim(0), 1});
  const std::vector<Tensor> q_kv = split(project(x, positions), -1, {config.query_width(), kv_width});
  const Tensor state = x.graph->input("cache." + path(), {x.type().dtype, {x.dim(0), step.max_length, kv_width}});
  const Tensor moved = step.beams > 1 ? cache_reorder(state, step.parents, step.position, step.beams) : state;
  const Tensor cache = cache_write(moved, q_kv[1], step.position);
  x.graph->update(state, cache);
  const std::vector<Tensor> kv = split_evenly(cache, -1, 2);
  AttentionOptions options = options_for(config, *this);
  options.lengths = step.lengths;
  options.starts = step.starts;
  options.distance_bias = distance_bias;
  return out_proj(attention(q_kv[0], kv[0], kv[1], options));
}

CrossAttention::CrossAttention(Module* parent, std::string name, const AttentionConfig& config)
    : Module(parent, std::move(name)),
      config(config),
      q_proj{this,
             "q_proj",
             config.width,
             config.query_width(),
             scale_rows(or_glorot(config.projection, 1), config.query_width(), config.query_scale),
             config.biases},
      kv_proj{this, "kv_proj", config.width, 2 * config.key_width(), or_glorot(config.projection, 2), config.biases},
      out_proj{this, "out_proj", config.query_width(), config.width, or_glorot(config.output, 1), config.output_bias} {}

Tensor CrossAttention::attend(Tensor q, Tensor keys, Tensor values, Tensor lengths) {
  AttentionOptions options = options_for(config, *this);
  options.lengths = lengths;
  return attention(q, keys, values, options);
}

Tensor CrossAttention::operator()(Tensor x, Tensor memory, Tensor lengths) {
  ModuleScope scope(*this);
  const Tensor q = q_proj(x);
  const std::vector<Tensor> kv = split_evenly(project_memory(memory), -1, 2);
  return out_proj(attend(q, kv[0], kv[1], lengths));
}

Tensor CrossAttention::operator()(Tensor x, const MemoryKeys& memory, Tensor lengths) {
  ModuleScope scope(*this);
  const Tensor q = q_proj(x);
  const auto [keys, values] = memory(*this);
  return out_proj(attend(q, keys, values, lengths));
}

Tensor CrossAttention::memory_state(Graph& graph, DType dtype, int64_t slots, int64_t max_length) const {
  return graph.input("memory." + path(), {dtype, {slots, max_length, 2 * config.key_width()}});
}

void CrossAttention::prefill(Tensor memory, const CacheSlots& cache) {
  ModuleScope scope(*this);
  const Tensor state = memory_state(*memory.graph, memory.type().dtype, cache.slots, cache.max_length);
  memory.graph->update(state, cache_fill(state, project_memory(memory), cache.rows));
}

Tensor CrossAttention::step(Tensor x, const DecodeStep& step) {
  ModuleScope scope(*this);
  const int64_t memories = x.dim(0) / step.beams;
  const Tensor q = reshape(q_proj(x), {memories, step.beams, config.query_width()});
  const Tensor keys_values = memory_state(*x.graph, x.type().dtype, memories, step.memory_length);
  const std::vector<Tensor> kv = split_evenly(keys_values, -1, 2);
  const Tensor attended = attend(q, kv[0], kv[1], step.memory_lengths);
  return out_proj(reshape(attended, {x.dim(0), 1, config.query_width()}));
}

}  // namespace linnet
