// A profile as a tree of modules, for `linnet profile`.
#pragma once
#include <string>

#include "engine/profile/profile.h"

namespace linnet {

// One line for each module down to `depth` names: milliseconds, forward and backward side by side, their ratio, the
// share of the machine's peak, what its forward pass keeps in memory for the backward pass. Modules next to each other
// whose names differ by a number alone (layers.0, layers.1, ...) are one line with their mean, unless `each` is set.
std::string layer_table(const ProfileSummary& summary, int depth, bool each);

// The modules whose backward pass takes longer than twice the forward pass, by the time that is beyond it, and the ops
// farthest from what arithmetic and memory allow, by the time they lose: at most `count` lines each.
std::string worst_ratios(const ProfileSummary& summary, size_t count);

}  // namespace linnet
