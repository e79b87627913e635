// Chooses the labelled examples set aside for validation or a test.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

namespace linnet {
// True for the examples to set aside: that share of each class, chosen by the seed; at least one of a class of three or
// more, at most half of a class. `labels`: the class of each example, from 0.
std::vector<bool> choose_held_out(const std::vector<int32_t>& labels, double share, uint64_t seed);

// Puts examples with equal keys (the same text) on the side of the first of them, so that no validation example was
// trained on; others replace them. If too few examples differ, `chosen` stays as it is. Logs the count of repeats.
void keep_together(std::vector<bool>& chosen, const std::vector<std::string_view>& keys);
}  // namespace linnet
