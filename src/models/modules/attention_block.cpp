#include "models/modules/attention_block.h"
#include "engine/ops/attention/attention.h"
#include "engine/ops/cache/cache.h"
#include "engine/ops/dropout/dropout.h"
#include "engine/ops/movement/movement.h"
#include "models/nn/trace.h"

namespace linnet {
namespace {
AttentionOptions options_for(const LayerConfig& config, const Module& module) {
  Trace& trace = Trace::current();
  AttentionOptions options{.heads = config.heads,
      .kv_heads = config.key_heads(),
      .scale = config.attention_scale,
      .soft_cap = config.soft_cap};
  const auto dropout = static_cast<float>(config.attention_dropout.value_or(config.dropout));
  if (trace.options().training && dropout > 0) {
    options.dropout = dropout;
    options.dropout_site = dropout_site(module.path(), "probabilities");
    options.random = trace.random();
  }
  return options;
}

Initializer scale_rows(Initializer initializer, int64_t rows, double scale) {
  if (scale == 1) return initializer;
  return [=](std::span<float> values, const Shape& shape, const std::function<double()>& uniform) {
    initializer(values, shape, uniform);
    for (float& value : values.first(rows * shape[-1])) value *= static_cast<float>(scale);
  };
}

// A state has keys and values side by side: [..., 2 key_width].
QueriesKeysValues with_queries(Tensor queries, Tensor keys_values, Tensor rows = {}) {
  const auto [keys, values] = split_keys_values(keys_values);
  return {queries, keys, values, rows};
}

std::vector<Tensor> split_queries(const SelfAttention& attention, Tensor projected) {
  return split(projected, -1, {attention.config.query_width(), 2 * attention.config.key_width()});
}

Tensor cache_state(const SelfAttention& attention, Tensor like, int64_t slots, int64_t max_length) {
  return like.graph->input(
      "cache." + attention.path(), {like.type().dtype, {slots, max_length, 2 * attention.config.key_width()}});
}

Tensor memory_state(const CrossAttention& attention, Graph& graph, DType dtype, int64_t slots, int64_t max_length) {
  return graph.input("memory." + attention.path(), {dtype, {slots, max_length, 2 * attention.config.key_width()}});
}

// [N, T, 2 T - 1] -> [N, T, T]: element (i, j) is (i, j - i + T - 1).
Tensor by_distance(Tensor x) {
  const int64_t batch = x.dim(0), length = x.dim(1);
  const Tensor flat = reshape(padded(x, 2, 0, 1), {batch, 2 * length * length});
  const Tensor shifted = slice(flat, 1, length - 1, length * (2 * length - 1));
  return slice(reshape(shifted, {batch, length, 2 * length - 1}), 2, 0, length);
}

// Each row of x [B, T, H * D] times every distance's vector [2 T - 1, H * D] per head: [H, B, T, T], by_distance().
Tensor distance_products(Tensor x, Tensor distances, int64_t heads) {
  const int64_t batch = x.dim(0), length = x.dim(1), size = x.dim(2) / heads, count = distances.dim(0);
  const Tensor rows =
      reshape(permute(reshape(x, {batch, length, heads, size}), {2, 0, 1, 3}), {heads, batch * length, size});
  const Tensor columns = permute(reshape(distances, {count, heads, size}), {1, 0, 2});
  const Tensor products = reshape(matmul(rows, columns, false, true), {heads * batch, length, count});
  return reshape(by_distance(products), {heads, batch, length, length});
}
}  // namespace

std::pair<Tensor, Tensor> split_keys_values(Tensor both) {
  const std::vector<Tensor> halves = split_evenly(both, -1, 2);
  return {halves[0], halves[1]};
}

QueriesKeysValues split_projection(const LayerConfig& config, Tensor projected) {
  const std::vector<Tensor> parts =
      split(projected, -1, {config.query_width(), config.key_width(), config.key_width()});
  return {parts[0], parts[1], parts[2]};
}

SelfAttention::SelfAttention(Module* parent, std::string name, const LayerConfig& config, const char* projection)
    : Module(parent, std::move(name)),
      config(config), in_proj{this, projection, config.width, config.query_width() + 2 * config.key_width(),
                          scale_rows(or_glorot(config.weights, 3), config.query_width(), config.query_scale),
                          config.biases.attention},
      out_proj{
          this, "out_proj", config.query_width(), config.width, or_glorot(config.residual, 1), config.biases.output} {
  if (config.query_key_norms == QueryKeyNorms::kNone) return;
  const bool whole = config.query_key_norms == QueryKeyNorms::kWhole;
  query_norm.emplace(this, "query_norm", whole ? config.query_width() : config.size(), config.epsilon, config.norms);
  key_norm.emplace(this, "key_norm", whole ? config.key_width() : config.size(), config.epsilon, config.norms);
}

Tensor SelfAttention::normalize_queries_keys(Tensor projected) {
  const auto [queries, keys, values, rows] = split_projection(config, projected);
  const auto normalized = [&](LayerNorm& norm, Tensor part, int64_t heads) {
    if (config.query_key_norms == QueryKeyNorms::kWhole) return norm(part);
    const Tensor apart = reshape(part, {part.dim(0), part.dim(1), heads, config.size()});
    return reshape(norm(apart), part.shape());
  };
  const Tensor q = normalized(*query_norm, queries, config.heads), k = normalized(*key_norm, keys, config.key_heads());
  return concat(q, std::array{k, values}, 2);
}

RopeScaling RotaryConfig::scaling_of(int64_t longest) const {
  RopeScaling chosen = scaling;
  if (!long_divisors.empty() && static_cast<double>(longest) > scaling.original_length) chosen.divisors = long_divisors;
  return chosen;
}

Tensor SelfAttention::project(Tensor x, const AttentionContext& context) {
  const Tensor projected = in_proj(x), all = query_norm ? normalize_queries_keys(projected) : projected;
  if (!config.rotary) return all;
  return rope(all,
      {.heads = config.heads + config.key_heads(),
          .head_size = config.size(),
          .turned = std::llround(config.rotary->share * static_cast<double>(config.size())),
          .theta = config.rotary->theta,
          .scaling = config.rotary->scaling_of(std::max(context.longest, x.dim(1)))},
      context.positions);
}

Tensor SelfAttention::project_part(Tensor of, int64_t first, int64_t rows) {
  const Tensor weight = in_proj.weight.tensor();
  Tensor product = matmul(of, slice(weight, 0, first, rows), false, true);
  if (!in_proj.low_rank.empty()) product = product + slice(in_proj.low_rank(of, weight.dim(0)), -1, first, rows);
  return in_proj.bias ? product + slice(in_proj.bias->tensor(), 0, first, rows) : product;
}

Tensor SelfAttention::distance_scores(Tensor queries, Tensor keys, const AttentionContext& context) {
  const int64_t width = config.query_width();
  const Tensor of_keys = project_part(context.falling, width, width),
               of_queries = project_part(context.rising, 0, width);
  const Tensor by_query = permute(distance_products(queries, of_keys, config.heads), {1, 0, 2, 3});
  return by_query + permute(distance_products(keys, of_queries, config.heads), {1, 0, 3, 2});
}

Tensor SelfAttention::operator()(Tensor x, const AttentionContext& context) {
  ModuleScope scope(*this);
  const Tensor projected = project(x, context);
  const auto [queries, keys, values, rows] =
      context.split ? context.split(*this, projected) : split_projection(config, projected);
  if (rows.defined())
    return out_proj(cached_attention(queries, keys, values, rows, context.lengths, context.starts,
        {.heads = config.heads,
            .kv_heads = config.key_heads(),
            .scale = config.attention_scale,
            .soft_cap = config.soft_cap}));
  AttentionOptions options = options_for(config, *this);
  options.causal = context.causal;
  if (context.causal) options.window = config.window;
  options.lengths = context.lengths;
  options.starts = context.starts;
  options.distance_bias = context.distance_bias;
  if (context.rising.defined()) {
    options.scale = 1 / std::sqrt(3 * static_cast<double>(config.size()));  // three scores are added
    options.score_bias = distance_scores(queries, keys, context) * options.scale;
  }
  return out_proj(attention(queries, keys, values, options));
}

Tensor SelfAttention::cross(Tensor x, Tensor memory, Tensor lengths) {
  ModuleScope scope(*this);
  // The first rows of the weight make queries, the others keys and values.
  const int64_t queries = config.query_width(), key_width = config.key_width();
  const Tensor q = project_part(x, 0, queries);
  const auto [keys, values] = split_keys_values(project_part(memory, queries, 2 * key_width));
  AttentionOptions options = options_for(config, *this);
  options.lengths = lengths;
  return out_proj(attention(q, keys, values, options));
}

CrossAttention::CrossAttention(Module* parent, std::string name, const LayerConfig& config)
    : Module(parent, std::move(name)),
      config(config), q_proj{this, "q_proj", config.width, config.query_width(),
                          scale_rows(or_glorot(config.weights, 1), config.query_width(), config.query_scale),
                          config.biases.attention},
      kv_proj{
          this, "kv_proj", config.width, 2 * config.key_width(), or_glorot(config.weights, 2), config.biases.attention},
      out_proj{
          this, "out_proj", config.query_width(), config.width, or_glorot(config.residual, 1), config.biases.output} {}

Tensor CrossAttention::operator()(Tensor x, const AttentionContext& context, Tensor memory) {
  ModuleScope scope(*this);
  Tensor queries = q_proj(x);
  const auto [keys, values] = context.memory ? context.memory(*this) : split_keys_values(project_memory(memory));
  AttentionOptions options = options_for(config, *this);
  options.lengths = context.memory_lengths;
  const int64_t rows = x.dim(0), memories = keys.dim(0);
  if (memories == rows) return out_proj(attention(queries, keys, values, options));
  queries = reshape(queries, {memories, rows * x.dim(1) / memories, config.query_width()});
  return out_proj(reshape(attention(queries, keys, values, options), {rows, x.dim(1), config.query_width()}));
}

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
    return split_keys_values(
        memory_state(attention, graph, Trace::current().options().dtype, memories, step.memory_length));
  };
}
}  // namespace linnet
