// Rows of a table chosen by ids, and its gradient: rows of dy added up by id.
#pragma once
#include "engine/ir/graph.h"
#include "engine/ops/kernel.h"

namespace linnet {

// A table whose rows are divided between ranks: each gives zeros for the ids of the others' rows, and their sum over
// the ranks is the whole lookup. 0 for all_rows: the table is whole.
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

// table [V, D], ids i32 [...] in [0, V) -> [..., D]. An id outside is an error when the kernel runs.
// Lookups of the id `padding` (-1: none) give the table no gradient. On a device an id outside gives NaN.
Tensor embedding(At table, Tensor ids, int64_t padding = -1);

}  // namespace linnet
