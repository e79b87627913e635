// Rows of a table chosen by ids, and its gradient: rows of dy added up by id.
#pragma once
#include "ir/graph.h"
#include "ops/kernel.h"

namespace linnet {

struct EmbeddingAttrs {
  int64_t padding = -1;
  void fields(FieldVisitor& visit) { visit("padding", padding); }
};

struct EmbeddingGradAttrs {
  int64_t vocab_size = 0;
  int64_t padding = -1;
  bool accumulate = false;  // set by the fuse pass
  void fields(FieldVisitor& visit) {
    visit("vocab_size", vocab_size), visit("padding", padding), visit("accumulate", accumulate);
  }
};

extern const OpDef kEmbedding, kEmbeddingGrad;
KernelList embedding_kernels();
KernelList embedding_grad_kernels();
void embedding_to_onnx(OnnxLowering& to);

// table [V, D], ids i32 [...] in [0, V) -> [..., D]. An id outside is an error when the kernel runs.
// Lookups of the id `padding` (-1: none) give the table no gradient. On a device an id outside gives NaN.
Tensor embedding(At table, Tensor ids, int64_t padding = -1);

}  // namespace linnet
