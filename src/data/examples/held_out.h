// Which labelled examples are set aside for validation or a test.
#pragma once
#include <cstdint>
#include <vector>

namespace linnet {

// True for the examples to set aside: that share of each class, chosen by the seed, at least one of a class that has
// three, never more than half of a class. `labels`: the class of each example, from 0.
std::vector<bool> choose_held_out(const std::vector<int32_t>& labels, double share, uint64_t seed);

}  // namespace linnet
