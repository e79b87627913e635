// Low-rank adaptation of linear layers (Hu et al. 2022, "LoRA"): beside a weight W [out, in] that stays as it is, two
// thin matrices are trained: y = x W^T + scale * (x A^T) B^T, A [rank, in], B [out, rank]. B begins with zeros, so that
// an adapted layer begins as the layer it was.
//
// Several sets of adapters may share one base at inference. Then each row of a batch chooses its set: the graph has an
// input kAdapterChoice f32 [rows, sets], whose element is 1 for the set that the row uses and 0 otherwise.
#pragma once
#include <deque>
#include <string>
#include "engine/ops/matmul/matmul.h"
#include "models/nn/module.h"

namespace linnet {

// The input of graphs that says which set of adapters each row uses.
inline constexpr const char* kAdapterChoice = "adapters.choice";

// The adapters of one linear layer. A layer whose weight stacks several (query, key and value) has up to one for each.
class LowRank {
 public:
  // The set that every row uses: the only one there is.
  static constexpr int64_t kAlways = -1;

  // Adds the parameters "lora_A.<part>" [rank, in] and "lora_B.<part>" [rows, rank] to the layer; they change its
  // outputs [first_row, first_row + rows). `set`: the column of kAdapterChoice that turns them on, or kAlways. Sets
  // come one after another, the adapters of each by first_row.
  void add(Module& layer, const std::string& part, int64_t first_row, int64_t rows, int64_t in, int64_t rank,
           double scale, int64_t set = kAlways);
  // Whether there are no adapters.
  bool empty() const { return sets_.empty(); }

  // What the adapters add to the layer's result of `out` features: x [..., in] -> [..., out].
  Tensor operator()(At x, int64_t out) const;

 private:
  struct Adapter {
    Adapter(Module& layer, const std::string& part, int64_t first_row, int64_t rows, int64_t in, int64_t rank);
    int64_t first_row, rows;
    Parameter a, b;
  };
  struct Set {
    int64_t index;
    double scale;
    std::deque<Adapter> adapters = {};  // by first_row; parameters do not move
    int64_t rank() const;               // of all adapters together
  };
  // All B of a set, each in its rows and columns, with zeros elsewhere: [out, set.rank()].
  static Tensor up(At x, int64_t out, const Set& set);
  // What x A^T of each row is multiplied by: [rows, 1..., sum of ranks], zeros for the sets that a row does not use.
  Tensor chosen_scales(At x) const;

  std::deque<Set> sets_;
};

}  // namespace linnet
