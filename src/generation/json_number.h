// Numbers of JSON as texts of a grammar.
#pragma once
#include <optional>
#include "generation/text_grammar.h"

namespace linnet {
struct NumberLimit {
  double value;
  bool is_open;  // the number itself is beyond it
};

// A subroutine of the whole numbers, or all, from `least` to `most`, with at most 15 digits on either side of the point
// and, without limits, an exponent of two. -1: there are none.
TextGrammar::Node json_number(
    TextGrammar& grammar, bool whole, const std::optional<NumberLimit>& least, const std::optional<NumberLimit>& most);
}  // namespace linnet
