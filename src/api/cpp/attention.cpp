#include "linnet/attention.h"
#include "api/cpp/helpers.h"
#include "engine/ops/attention/attention.h"
#include "models/modules/attention_block.h"
#include "models/nn/trace.h"

namespace linnet {
Tensor attention(At q, Tensor k, Tensor v, int64_t heads, const AttentionMask& mask) {
  const int64_t width = q.value.dim(-1), size = heads > 0 ? width / heads : 0;
  if (heads < 1 || size < 1 || width % heads != 0 || k.dim(-1) % size != 0)
    fail_shape(q, "attention: queries ", q.value.shape(), " and keys ", k.shape(), " do not have ", heads,
        " heads of one size");
  AttentionOptions options{.heads = heads, .kv_heads = k.dim(-1) / size};
  options.causal = mask.causal, options.lengths = mask.lengths;
  return attention(q, k, v, options);
}

struct MultiHeadAttention::State {
  State(Module* parent, const LayerConfig& config) : attention(parent, "", config, "in_proj_") {}
  SelfAttention attention;
};

MultiHeadAttention::MultiHeadAttention(
    Module* parent, std::string name, int64_t width, int64_t heads, const MultiHeadAttentionOptions& options)
    : Module(parent, std::move(name)) {
  const int64_t kv_heads = options.kv_heads > 0 ? options.kv_heads : heads;
  if (heads < 1 || width < 1 || options.kv_heads < 0 || width % heads != 0 || heads % kv_heads != 0)
    fail_user("attention \"", path(), "\" of width ", width, " with ", heads, " heads and ", kv_heads,
        " of keys: each must be a multiple of the next");
  if (!(options.dropout >= 0 && options.dropout < 1))
    fail_user("attention \"", path(), "\" has a dropout of ", options.dropout, ", which is not in [0, 1)");
  LayerConfig config{.width = width, .heads = heads, .dropout = options.dropout, .kv_heads = options.kv_heads};
  config.biases.attention = config.biases.output = options.biases;
  if (options.rotary_theta > 0) config.rotary = RotaryConfig{.theta = options.rotary_theta};
  state_ = std::make_unique<State>(this, config);
}

MultiHeadAttention::MultiHeadAttention(MultiHeadAttention&& other) noexcept = default;
MultiHeadAttention::~MultiHeadAttention() = default;

Tensor MultiHeadAttention::operator()(Tensor x, const AttentionMask& mask) {
  const AttentionContext* context = Trace::current().decoding;
  if (!context) return state_->attention(x, {.lengths = mask.lengths, .causal = mask.causal});
  if (!mask.causal || mask.lengths.defined())
    fail_user("attention \"", path(), "\" of a decoder that writes is not causal, or has lengths: it would see ",
        "positions that are not written yet");
  return state_->attention(x, *context);
}

Tensor MultiHeadAttention::operator()(Tensor x, Tensor memory, const AttentionMask& mask) {
  if (mask.causal) fail_user("attention \"", path(), "\" to another sequence cannot be causal");
  return state_->attention.cross(x, memory, mask.lengths);
}
}  // namespace linnet
