// The share of outputs that are exactly right.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace linnet {

// Equal but for white space (and so a carriage return) at either end.
bool is_exact_match(std::string_view hypothesis, std::string_view reference);

// The fraction of exact matches, 0..1; 0 for empty lists. The lists must be equally long.
double exact_match(const std::vector<std::string>& hypotheses, const std::vector<std::string>& references);

}  // namespace linnet
