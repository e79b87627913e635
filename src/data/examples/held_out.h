// Which labelled examples are set aside for validation or a test.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

namespace linnet {

// True for the examples to set aside: that share of each class, chosen by the seed, at least one of a class that has
// three, never more than half of a class. `labels`: the class of each example, from 0.
std::vector<bool> choose_held_out(const std::vector<int32_t>& labels, double share, uint64_t seed);

// Examples with equal keys (the same text) go to one side, that of the first of them, so that what is validated was not
// learned; others make up for the number that was chosen. Where too few examples differ for that, `chosen` stays as it
// is. The log says how many repeat an earlier one.
void keep_together(std::vector<bool>& chosen, const std::vector<std::string_view>& keys);

}  // namespace linnet
