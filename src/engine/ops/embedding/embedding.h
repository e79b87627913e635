// Table lookup by ids, and its gradient: rows of dy summed by id.
#pragma once
#include "engine/ops/kernel.h"

namespace linnet {
// For a table whose rows are divided between ranks: each gives zeros for ids of others' rows, so that the sum over
// ranks is the whole lookup. all_rows 0: the table is whole.
struct EmbeddingAttrs {
  int64_t padding = -1;
  int64_t all_rows = 0, first_row = 0;
  void fields(FieldVisitor& visit) {
    visit("padding", padding), visit("all_rows", all_rows), visit("first_row", first_row);
  }
};

struct EmbeddingGradAttrs {
  int64_t vocab_size = 0;
  int64_t padding = -1;
  double scale = 1;                     // of the sums; set, as accumulate, by the fuse passes
  bool accumulate = false;              // to what operand 2 holds
  int64_t all_rows = 0, first_row = 0;  // as above; vocab_size is of this rank's rows
  void fields(FieldVisitor& visit) {
    visit("vocab_size", vocab_size), visit("padding", padding), visit("scale", scale);
    visit("accumulate", accumulate);
    visit("all_rows", all_rows), visit("first_row", first_row);
  }
};

extern const OpDef kEmbedding, kEmbeddingGrad;

// table [V, D], ids i32 [...] in [0, V) -> [..., D]. An id outside is an error when the kernel runs, on a device NaN.
// Lookups of the id `padding` (-1: none) give the table no gradient.
Tensor embedding(At table, Tensor ids, int64_t padding = -1);
}  // namespace linnet
