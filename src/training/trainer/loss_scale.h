// The factor of the loss in fp16 training (Micikevicius et al. 2018): gradients that fp16 would round to zero are
// scaled up. It grows while nothing overflows, and is halved when something does; that step changes nothing.
#pragma once
#include <algorithm>
#include <cstdint>

namespace linnet {

struct LossScaleOptions {
  double initial = 0;           // a power of two from 1 to 2^24; 0: the loss is not scaled
  int64_t growth_steps = 2000;  // the scale doubles after so many steps in a row without an overflow
  bool is_on() const { return initial > 0; }
};

struct LossScale {
  static constexpr double kLeast = 1, kMost = 1 << 24;
  double value = 1;
  int64_t clean_steps = 0;    // since the scale changed last
  int64_t skipped_steps = 0;  // of the whole run

  // An overflow at the least scale is no matter of the scale.
  bool can_skip() const { return value > kLeast; }
  // Counts a step that was applied, or one that was skipped because its gradient overflowed.
  void count(bool finite, int64_t growth_steps) {
    if (!finite) {
      value = std::max(value / 2, kLeast), clean_steps = 0, ++skipped_steps;
    } else if (++clean_steps >= growth_steps) {
      value = std::min(value * 2, kMost), clean_steps = 0;
    }
  }
  bool operator==(const LossScale&) const = default;
};

}  // namespace linnet
