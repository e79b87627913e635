// Numbers and strings of JSON as texts of a grammar.
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

// In strings, without their quotes: one character (UTF-8 or escaped), or any number of them, then `next`.
TextGrammar::Node json_character(TextGrammar& grammar, TextGrammar::Node next);
TextGrammar::Node json_characters(TextGrammar& grammar, TextGrammar::Node next);

// A subroutine of the strings, without their quotes, in which a regular expression of ECMA-262 is found: characters,
// "." and classes, repetitions, groups, alternatives, "^" and "$" around an alternative, \d, \s, \w. User error for
// anything else, and for a class with characters beyond ASCII.
TextGrammar::Node json_pattern(TextGrammar& grammar, std::string_view pattern);
}  // namespace linnet
