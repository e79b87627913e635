#include "models/nn/magnitude_histogram.h"
#include <algorithm>
#include <cmath>
#include <limits>
#include "base/error.h"

namespace linnet {

const std::vector<std::string>& calibration_methods() {
  static const std::vector<std::string> names{"minmax", "percentile", "entropy"};
  return names;
}

CalibrationMethod calibration_method(const std::string& name) {
  const auto& names = calibration_methods();
  const auto found = std::ranges::find(names, name);
  if (found == names.end())
    fail_user("\"" + name + "\" is no way to calibrate; there are minmax, percentile and entropy");
  return static_cast<CalibrationMethod>(found - names.begin());
}

void MagnitudeHistogram::widen() {
  for (size_t i = 0; i < kBins / 2; ++i) bins_[i] = bins_[2 * i] + bins_[2 * i + 1];
  std::fill(bins_.begin() + kBins / 2, bins_.end(), 0);
  width_ *= 2;
}

void MagnitudeHistogram::add(std::span<const float> values) {
  float most = 0;
  for (const float value : values) {
    const float magnitude = std::fabs(value);
    if (!(magnitude <= std::numeric_limits<float>::max())) fail_user("an activation is not a finite number");
    most = std::max(most, magnitude);
  }
  count_ += std::ssize(values);
  maximum_ = std::max(maximum_, most);
  // Powers of two, so that bins of different runs agree; the least one keeps 1 / width finite.
  if (width_ == 0 && most > 0) width_ = std::max(std::exp2(std::ceil(std::log2(most)) - 12), 0x1p-120F);
  while (most > width_ * static_cast<float>(kBins)) widen();
  const float inverse = width_ > 0 ? 1 / width_ : 0;
  for (const float value : values) ++bins_[std::min(static_cast<size_t>(std::fabs(value) * inverse), kBins - 1)];
}

float MagnitudeHistogram::bound(CalibrationMethod method) const {
  constexpr double kShare = 0.9999;
  switch (method) {
    case CalibrationMethod::kMinMax: return maximum_;
    case CalibrationMethod::kPercentile: return percentile(kShare);
    case CalibrationMethod::kEntropy: return least_divergence();
  }
  fail_internal("no such way to calibrate");
}

float MagnitudeHistogram::percentile(double share) const {
  const double wanted = share * static_cast<double>(count_);
  int64_t below = 0;
  for (size_t i = 0; i < kBins; ++i) {
    below += bins_[i];
    if (static_cast<double>(below) >= wanted) return std::min(maximum_, width_ * static_cast<float>(i + 1));
  }
  return maximum_;
}

namespace {

constexpr size_t kLevels = 128;  // magnitudes that 8 bits have

// The divergence of the first `used` bins, to whose last one all further values are clipped, from what is left of them
// when equally many neighbors become one level. Within a level the values keep to the bins that had some.
double divergence(std::span<const int64_t> bins, size_t used, int64_t clipped, int64_t total) {
  const size_t per_level = used / kLevels;
  double sum = 0;
  for (size_t level = 0; level < kLevels; ++level) {
    const auto part = bins.subspan(level * per_level, per_level);
    int64_t count = 0, filled = 0;
    for (const int64_t bin : part) count += bin, filled += bin > 0;
    for (size_t i = 0; i < per_level; ++i) {
      const bool last = level * per_level + i + 1 == used;
      const int64_t bin = part[i] + (last ? clipped : 0);
      if (bin == 0) continue;
      const double p = static_cast<double>(bin) / static_cast<double>(total);
      // Clipped values fall in a bin that may have had none of its own: then nothing stands for them.
      const double q =
          part[i] > 0 ? static_cast<double>(count) / static_cast<double>(filled * (total - clipped)) : 1e-12;
      sum += p * std::log(p / q);
    }
  }
  return sum;
}

}  // namespace

float MagnitudeHistogram::least_divergence() const {
  int64_t clipped = count_;
  size_t best = kBins;
  double least = std::numeric_limits<double>::infinity();
  for (size_t used = 0; used < kBins && width_ > 0;) {
    for (size_t i = 0; i < kLevels; ++i) clipped -= bins_[used + i];
    used += kLevels;
    if (clipped == count_) continue;
    const double found = divergence(bins_, used, clipped, count_);
    if (found < least) least = found, best = used;
    if (clipped == 0) break;
  }
  return std::min(maximum_, width_ * static_cast<float>(best));
}

}  // namespace linnet
