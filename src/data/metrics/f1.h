// F1 of a classifier: the harmonic mean of precision and recall.
#pragma once
#include <cstdint>
#include <span>

namespace linnet {

// Of two classes: F1 of class 1. Of more: the mean over all classes ("macro"), 0 for a class that is neither predicted
// nor there. Rows with a negative label are left out.
double f1_score(std::span<const int32_t> predictions, std::span<const int32_t> labels, int64_t classes);

}  // namespace linnet
