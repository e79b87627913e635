// "Did you mean ...?"
#pragma once
#include <span>
#include <string>
#include <string_view>

namespace linnet {

// Insertions, deletions, substitutions and swaps of neighbours that turn one text into the other.
int edit_distance(std::string_view a, std::string_view b);

// The candidate a user most likely meant: the fewest edits, letter case aside, and '-' read as '_'; a candidate that
// holds all of `text` counts as near. Empty only when there are no candidates.
std::string nearest(std::string_view text, std::span<const std::string> candidates);

}  // namespace linnet
