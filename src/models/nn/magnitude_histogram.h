// How often magnitudes |x| of which size occur, and the bound that 8 bits should reach up to. The histogram has a fixed
// number of bins of equal width; a value beyond the last one doubles the width, so that values come in any order and
// none is kept.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace linnet {

// How a bound is chosen. Values beyond it are clipped.
enum class CalibrationMethod : uint8_t {
  kMinMax,      // the largest magnitude: nothing is clipped
  kPercentile,  // 99.99% of the magnitudes lie below it
  kEntropy,     // the values as they are and as 8 bits have them are distributed most alike (least_divergence())
};
// "minmax", "percentile" or "entropy"; user error naming them for another.
CalibrationMethod calibration_method(const std::string& name);
const std::vector<std::string>& calibration_methods();

class MagnitudeHistogram {
 public:
  static constexpr size_t kBins = 4096;

  // User error for a value that is not finite.
  void add(std::span<const float> values);
  int64_t count() const { return count_; }
  float maximum() const { return maximum_; }  // exact

  // 0 where all values were 0 or there were none.
  float bound(CalibrationMethod method) const;
  // The upper edge of the bin below which, with it, lies this share of all values; at most maximum().
  float percentile(double share) const;
  // The bound at which clipping and rounding to 128 magnitudes changes the distribution least, by the
  // Kullback-Leibler divergence (Migacz 2017, "8-bit inference with TensorRT"). At most maximum().
  float least_divergence() const;

 private:
  void widen();

  std::vector<int64_t> bins_ = std::vector<int64_t>(kBins);
  float width_ = 0;  // of a bin; 0: no value above 0 was seen
  float maximum_ = 0;
  int64_t count_ = 0;
};

}  // namespace linnet
