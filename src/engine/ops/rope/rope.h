// Rotary positions (Su et al. 2021) in Llama's layout: elements i of a head's first and second half are a point that
// rotates with the position,
//
//   y_i        = x_i cos(a) - x_{i+D/2} sin(a)
//   y_{i+D/2}  = x_{i+D/2} cos(a) + x_i sin(a),     a = position * frequency_i,  frequency_i = theta^(-2 i / D)
//
// Only the first `turned` elements of each head may be rotated (D above is then that number), and rotated points may be
// scaled by a magnitude. x [B, T, W] holds heads of D elements, of which the first `heads` are rotated and the others
// copied: a fused projection of queries, keys and values goes through one op, in place if nothing else reads it.
// positions i32 [B, T], or [1, T] for all rows; undefined: 0, 1, ... T - 1. The gradient rotates back.
#pragma once
#include "engine/ops/kernel.h"

namespace linnet {
enum class RopeScalingKind { kNone, kLinear, kLlama3, kDivided, kYarn };
template <> inline constexpr std::array kEnumNames<RopeScalingKind>{"none", "linear", "llama3", "divided", "yarn"};

// Longer contexts than in training. Llama 3: frequencies with fewer than `low_factor` turns in the original context are
// divided by `factor`, those with more than `high_factor` stay, others are blended. Linear: all are divided by
// `factor`. Divided: each by its own number (longrope). Yarn (Peng et al. 2024): like Llama 3's, but it blends by the
// pair's number, and `whole_pairs` rounds both bounds outwards to whole numbers.
struct RopeScaling {
  using Kind = RopeScalingKind;
  Kind kind = Kind::kNone;
  double factor = 1, low_factor = 1, high_factor = 4, original_length = 8192;
  std::vector<float> divisors = {};  // of the frequencies, one a pair
  double magnitude = 1;              // of the turned points
  bool whole_pairs = true;
  bool operator==(const RopeScaling&) const = default;
  void fields(FieldVisitor& visit) {
    visit("kind", kind), visit("factor", factor), visit("low_factor", low_factor), visit("high_factor", high_factor);
    visit("original_length", original_length), visit("divisors", divisors), visit("magnitude", magnitude),
        visit("whole_pairs", whole_pairs);
  }
};

struct RopeAttrs {
  int64_t heads = 0, head_size = 0;
  int64_t turned = 0;  // elements of each head, an even number; 0: all
  double theta = 10000;
  RopeScaling scaling = {};
  bool inverse = false, has_positions = false;
  void fields(FieldVisitor& visit) {
    visit("heads", heads), visit("head_size", head_size), visit("theta", theta), visit("scaling", scaling);
    visit("inverse", inverse), visit("has_positions", has_positions), visit("turned", turned);
  }
  int64_t half() const { return (turned > 0 ? turned : head_size) / 2; }
};

extern const OpDef kRope;

double rope_frequency(const RopeAttrs& attrs, int64_t i);  // angle of a position, scaled

Tensor rope(At x, RopeAttrs attrs, Tensor positions = {});
}  // namespace linnet
