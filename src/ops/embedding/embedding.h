// Rows of a table chosen by ids, and its gradient: rows of dy added up by id.
#pragma once
#include "ir/graph.h"
#include "ops/kernel.h"

namespace linnet {

struct EmbeddingGradAttrs {
  int64_t vocab_size;
  bool accumulate = false;  // set by the fuse pass
  std::string text() const;
};

extern const OpDef kEmbedding, kEmbeddingGrad;
KernelList embedding_kernels();
KernelList embedding_grad_kernels();

// table [V, D], ids i32 [...] in [0, V) -> [..., D]. An id outside is an error when the kernel runs.
Tensor embedding(At table, Tensor ids);

}  // namespace linnet
