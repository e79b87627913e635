// Dropout with a mask that is computed, never stored: a function of (seed, step, micro-step, site, sample, element)
// alone (engine/kernels/random/philox.h), so that the backward pass, a recomputation and any device draw the same.
#pragma once
#include <string_view>
#include "engine/kernels/random/philox.h"
#include "engine/ops/kernel.h"

namespace linnet {
// How elements are counted: in a dense tensor by position within the sample (the first axis); in attention
// probabilities [B, H, Tq, Tk] by (head, query, key), independent of padding.
enum class DropoutLayout { kDense, kAttention };
template <> inline constexpr std::array kEnumNames<DropoutLayout>{"dense", "attention"};

struct DropoutAttrs {
  float probability = 0;
  uint64_t site = 0;  // a hash of the module path and a name: stable, whatever order the model is traced in
  DropoutLayout layout = DropoutLayout::kDense;
  // For a dense tensor whose last axis is divided between ranks: all columns, and x's first, multiples of 8; 0: whole.
  int64_t all_columns = 0, first_column = 0;
  bool is_whole() const { return all_columns == 0; }
  void fields(FieldVisitor& visit) {
    visit("probability", probability), visit("site", site), visit("layout", layout);
    visit("all_columns", all_columns), visit("first_column", first_column);
  }
};

struct RandomUniformAttrs {
  TensorType type = {};  // of the result, a float type
  uint64_t site = 0;     // dropout_site()
  void fields(FieldVisitor& visit) { visit("type", type), visit("site", site); }
};

extern const OpDef kDropout, kRandomUniform;

// x [...], random i32 [4] = {seed low, seed high, step, micro-step}
Tensor dropout(At x, Tensor random, float probability, uint64_t site, DropoutLayout layout = DropoutLayout::kDense);

// Numbers uniform in [0, 1), new in each step; `random` as above. No gradient.
//   element i = (word i % 4 of Philox block {i / 4, kUniformDraw, i / 2^34, 0} >> 8) / 2^24
constexpr uint32_t kUniformDraw = 0xA11;
Tensor random_uniform(At random, const TensorType& type, uint64_t site);

void expect_random(const TensorType& random);  // expects an operand `random` i32 [4]

uint64_t dropout_site(std::string_view module_path, std::string_view name);
}  // namespace linnet
