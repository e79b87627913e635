#include "models/attention_block.h"

#include "nn/trace.h"
#include "ops/attention/attention.h"
#include "ops/cache/cache.h"
#include "ops/dropout/dropout.h"
#include "ops/movement/movement.h"

namespace linnet {
namespace {

AttentionOptions options_for(const AttentionConfig& config, const Module& module) {
  Trace& trace = Trace::current();
  AttentionOptions options{.heads = config.heads};
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

}  // namespace

SelfAttention::SelfAttention(Module* parent, std::string name, const AttentionConfig& config)
    : Module(parent, std::move(name)),
      config(config),
      in_proj{this, "in_proj", config.width, 3 * config.width, or_glorot(config.projection, 3)},
      out_proj{this, "out_proj", config.width, config.width, or_glorot(config.output, 1)} {}

Tensor SelfAttention::operator()(Tensor x, Tensor lengths, bool causal, Tensor starts) {
  ModuleScope scope(*this);
  const std::vector<Tensor> qkv = split_evenly(in_proj(x), -1, 3);
  AttentionOptions options = options_for(config, *this);
  options.causal = causal;
  options.lengths = lengths, options.starts = starts;
  return out_proj(attention(qkv[0], qkv[1], qkv[2], options));
}

Tensor SelfAttention::prefill(Tensor x, const CacheShape& cache) {
  ModuleScope scope(*this);
  const int64_t width = config.width;
  const std::vector<Tensor> q_kv = split(in_proj(x), -1, {width, 2 * width});
  const Tensor state =
      x.graph->input("cache." + path(), {x.type().dtype, {x.dim(0) * cache.beams, cache.max_length, 2 * width}});
  x.graph->update(state, cache_fill(state, q_kv[1], cache.beams));
  const std::vector<Tensor> kv = split_evenly(q_kv[1], -1, 2);
  AttentionOptions options = options_for(config, *this);
  options.causal = true;
  return out_proj(attention(q_kv[0], kv[0], kv[1], options));
}

Tensor SelfAttention::step(Tensor x, const DecodeStep& step) {
  ModuleScope scope(*this);
  const int64_t width = config.width;
  const std::vector<Tensor> q_kv = split(in_proj(x), -1, {width, 2 * width});
  const Tensor state = x.graph->input("cache." + path(), {x.type().dtype, {x.dim(0), step.max_length, 2 * width}});
  const Tensor moved = step.beams > 1 ? cache_reorder(state, step.parents, step.position, step.beams) : state;
  const Tensor cache = cache_write(moved, q_kv[1], step.position);
  x.graph->update(state, cache);
  const std::vector<Tensor> kv = split_evenly(cache, -1, 2);
  AttentionOptions options = options_for(config, *this);
  options.lengths = step.lengths;
  return out_proj(attention(q_kv[0], kv[0], kv[1], options));
}

CrossAttention::CrossAttention(Module* parent, std::string name, const AttentionConfig& config)
    : Module(parent, std::move(name)),
      config(config),
      q_proj{this, "q_proj", config.width, config.width, or_glorot(config.projection, 1)},
      kv_proj{this, "kv_proj", config.width, 2 * config.width, or_glorot(config.projection, 2)},
      out_proj{this, "out_proj", config.width, config.width, or_glorot(config.output, 1)} {}

Tensor CrossAttention::attend(Tensor q, Tensor keys_values, Tensor lengths) {
  const std::vector<Tensor> kv = split_evenly(keys_values, -1, 2);
  AttentionOptions options = options_for(config, *this);
  options.lengths = lengths;
  return attention(q, kv[0], kv[1], options);
}

Tensor CrossAttention::operator()(Tensor x, Tensor memory, Tensor lengths) {
  ModuleScope scope(*this);
  return out_proj(attend(q_proj(x), project_memory(memory), lengths));
}

Tensor CrossAttention::step(Tensor x, Tensor keys_values, Tensor lengths, int64_t beams) {
  ModuleScope scope(*this);
  const Tensor q = reshape(q_proj(x), {x.dim(0) / beams, beams, config.width});
  return out_proj(reshape(attend(q, keys_values, lengths), x.shape()));
}

}  // namespace linnet
