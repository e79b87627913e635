// Low-rank adaptation of linear layers (Hu et al. 2022, "LoRA"): beside a constant weight W [out, in], two thin
// matrices are trained: y = x W^T + scale * (x A^T) B^T, A [rank, in], B [out, rank]. B begins with zeros, so that
// training begins with the unadapted layer.
//
// Inference may use several sets of adapters with one base: the graph has an input kAdapterChoice f32 [rows, sets],
// whose element is 1 for the set that the row uses and 0 otherwise.
#pragma once
#include <deque>
#include <string>
#include "engine/ops/matmul/matmul.h"
#include "models/nn/module.h"

namespace linnet {
// The input of graphs that says which set of adapters each row uses.
inline constexpr const char* kAdapterChoice = "adapters.choice";

// The adapters of one linear layer: up to one for each part of a stacked weight (query, key and value).
class LowRank {
 public:
  static constexpr int64_t kAlways = -1;  // every row uses this set, the only one

  // Adds the parameters "lora_A.<part>" [rank, in] and "lora_B.<part>" [rows, rank] to the layer, for its outputs
  // [first_row, first_row + rows). `set` is the column of kAdapterChoice that turns them on, or kAlways. Sets are added
  // one after another, the adapters of each by first_row.
  void add(Module& layer, const std::string& part, int64_t first_row, int64_t rows, int64_t in, int64_t rank,
      double scale, int64_t set = kAlways);
  bool empty() const { return sets_.empty(); }  // whether there are no adapters

  // What the adapters add to the layer's result: x [..., in] -> [..., out].
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
  // All B of a set, each in its rows and columns, zeros elsewhere: [out, set.rank()].
  static Tensor up(At x, int64_t out, const Set& set);
  // The factors of x A^T: [rows, 1..., sum of ranks], zeros for the sets that a row does not use.
  Tensor chosen_scales(At x) const;

  std::deque<Set> sets_;
};

// Adds scale * b a to a weight [out, in], for a [rank, in] and b [out, rank]. With a magnitude [out], each row then has
// that norm (DoRA, Liu et al. 2024).
void merge_low_rank(const Shape& shape, const float* a, const float* b, int64_t rank, double scale,
    const float* magnitude, float* weight);
}  // namespace linnet
