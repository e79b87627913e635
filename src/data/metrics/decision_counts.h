// Precision, recall and F1, their harmonic mean.
#pragma once
#include <cstdint>

namespace linnet {

// Decisions that are right or wrong: predicted and there.
struct DecisionCounts {
  int64_t predicted = 0, there = 0, both = 0;

  void add(bool is_predicted, bool is_there) {
    predicted += is_predicted, there += is_there, both += is_predicted && is_there;
  }
  DecisionCounts& operator+=(const DecisionCounts& other) {
    predicted += other.predicted, there += other.there, both += other.both;
    return *this;
  }
  // 0 where nothing was predicted, or is there.
  double precision() const { return share(both, predicted); }
  double recall() const { return share(both, there); }
  double f1() const { return share(2 * both, predicted + there); }

 private:
  static double share(int64_t part, int64_t all) {
    return all > 0 ? static_cast<double>(part) / static_cast<double>(all) : 0;
  }
};

}  // namespace linnet
