// Attention with many heads: of a sequence to itself, to what stands before each position, or to another sequence.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include "linnet/module.h"
#include "linnet/tensor.h"

namespace linnet {
// How a MultiHeadAttention attends.
struct MultiHeadAttentionOptions {
  // Heads of keys and values, each for heads / kv_heads of the queries (Ainslie et al. 2023); 0: as many as heads.
  int64_t kv_heads = 0;
  // The probability with which attention weights are zeroed in training, in [0, 1).
  float dropout = 0;
  // Base of rotary positions (Su et al. 2021), usually 10000; 0: none. Attention to another sequence has none.
  double rotary_theta = 0;
  // Whether the projections have biases.
  bool biases = true;
};

// Which positions are seen.
struct AttentionMask {
  // i32 [B]: how many positions of each row count; undefined: all.
  Tensor lengths = {};
  // Whether a position sees itself and those before it alone.
  bool causal = false;
};

// softmax(q k^T / sqrt(D)) v for each head, without projections: q [B, T, heads * D], k and v [B, S, kv_heads * D] ->
// [B, T, heads * D], where heads is a multiple of kv_heads. mask.lengths are of k and v. A causal query i sees keys up
// to i + S - T. The T x S matrix of weights is never whole in memory. Throws Error(kShape) when sizes do not fit.
Tensor attention(At q, Tensor k, Tensor v, int64_t heads, const AttentionMask& mask = {});

// Scaled dot-product attention with many heads (Vaswani et al. 2017). The memory that it takes grows with the length of
// the sequence, not with its square. Parameters are named as PyTorch's: in_proj_weight [width + 2 kv_heads * (width /
// heads), width] stacks queries, keys and values, out_proj.weight is [width, width].
class MultiHeadAttention : public Module {
 public:
  // Throws Error(kUser) unless width is a multiple of heads and heads of kv_heads, and for a dropout out of range.
  MultiHeadAttention(
      Module* parent, std::string name, int64_t width, int64_t heads, const MultiHeadAttentionOptions& options = {});
  // Takes its parts.
  MultiHeadAttention(MultiHeadAttention&& other) noexcept;
  // Frees it.
  ~MultiHeadAttention() override;
  // Of a sequence to itself: x [B, T, width] -> [B, T, width]. While a TextGenerator writes, causal attention keeps
  // keys and values of earlier positions; the code that calls it is the same. There, attention that is not causal is an
  // Error(kUser), as it would see positions that are not written yet.
  Tensor operator()(Tensor x, const AttentionMask& mask = {});
  // Of x [B, T, width] to another sequence: memory [B, S, width] -> [B, T, width]; mask.lengths are of the memory.
  // Throws Error(kUser) for a causal mask.
  Tensor operator()(Tensor x, Tensor memory, const AttentionMask& mask = {});

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Attention of each position to itself and those before it, for decoders.
class CausalAttention : public MultiHeadAttention {
 public:
  using MultiHeadAttention::MultiHeadAttention;
  // x [B, T, width] -> [B, T, width].
  Tensor operator()(Tensor x) { return MultiHeadAttention::operator()(x, {.causal = true}); }
};
}  // namespace linnet
