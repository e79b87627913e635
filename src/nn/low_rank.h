// Low-rank adaptation of linear layers (Hu et al. 2022, "LoRA"): beside a weight W [out, in] that stays as it is, two
// thin matrices are trained: y = x W^T + scale * (x A^T) B^T, A [rank, in], B [out, rank]. B begins with zeros, so that
// an adapted layer begins as the layer it was.
#pragma once
#include <deque>
#include <string>

#include "nn/module.h"
#include "ops/matmul/matmul.h"

namespace linnet {

// The adapters of one linear layer. A layer whose weight stacks several (query, key and value) has up to one for each.
class LowRank {
 public:
  // Adds the parameters "lora_A.<part>" [rank, in] and "lora_B.<part>" [rows, rank] to the layer; they change its
  // outputs [first_row, first_row + rows).
  void add(Module& layer, const std::string& part, int64_t first_row, int64_t rows, int64_t in, int64_t rank,
           double scale);
  // Whether there are no adapters.
  bool empty() const { return adapters_.empty(); }

  // What the adapters add to the layer's result of `out` features: x [..., in] -> [..., out].
  Tensor operator()(At x, int64_t out) const;

 private:
  struct Adapter {
    Adapter(Module& layer, const std::string& part, int64_t first_row, int64_t rows, int64_t in, int64_t rank);
    int64_t first_row, rows;
    Parameter a, b;
  };
  // All B, each in its rows and columns, with zeros elsewhere: [out, sum of ranks].
  Tensor up(At x, int64_t out) const;

  std::deque<Adapter> adapters_;  // by first_row; parameters do not move
  double scale_ = 1;
};

}  // namespace linnet
