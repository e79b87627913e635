// Scaled dot-product attention with many heads, as one op: forward and backward never hold a Tq x Tk matrix
// (Dao et al. 2022, "FlashAttention").
//
//   p = softmax(scale * q k^T, over the visible keys);  o = dropout(p) v;  lse = log sum exp of the scaled scores
//
// q [B, Tq, H * D], k and v [B, Tk, H_kv * D], H a multiple of H_kv -> o [B, Tq, H * D], lse [B, H, Tq].
// Visible: keys before the sample's length (explicit lengths, i32 [B]); and when causal, keys j <= i + Tk - Tq.
// A query that sees no key gives zeros. q, k, v and their gradients may be strided: a slice of a fused projection is
// read and written in place.
#pragma once
#include "ir/graph.h"
#include "kernels/precision.h"
#include "ops/kernel.h"

namespace linnet {

struct AttentionAttrs {
  int64_t heads, kv_heads;
  double scale;
  bool causal = false, has_lengths = false;
  float dropout = 0;
  uint64_t dropout_site = 0;
  Precision precision = Precision::kF32;  // of the products; what they are summed to and the rest is fp32
  std::string text() const;
};

extern const OpDef kAttention, kAttentionGrad, kMaskScores;
KernelList attention_kernels();
KernelList attention_grad_kernels();
KernelList mask_scores_kernels();
void attention_reference(const KernelArgs& args);
void attention_grad_reference(const KernelArgs& args);

struct AttentionOptions {
  int64_t heads = 1, kv_heads = 0;  // 0: as many as heads
  double scale = 0;                 // 0: 1 / sqrt(head size)
  bool causal = false;
  Tensor lengths = {};  // i32 [B]; undefined: every key counts
  float dropout = 0;
  uint64_t dropout_site = 0;
  Tensor random = {};  // i32 [4], with dropout only
};

Tensor attention(At q, Tensor k, Tensor v, const AttentionOptions& options);

// scores [B, H, Tq, Tk] with -inf where a key is not visible. A piece of attention's decomposition.
Tensor mask_scores(At scores, Tensor lengths, bool causal);

}  // namespace linnet
