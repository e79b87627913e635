// How well two series of numbers go together, from -1 to 1.
#pragma once
#include <span>

namespace linnet {

// Pearson's correlation; 0 where either series is constant. The series are equally long.
double pearson_correlation(std::span<const double> a, std::span<const double> b);
// Spearman's: Pearson's of the ranks; equal numbers share the mean of their ranks.
double spearman_correlation(std::span<const double> a, std::span<const double> b);

}  // namespace linnet
