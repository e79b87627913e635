// Strings of JSON, without their quotes, as texts of a grammar.
#pragma once
#include "generation/text_grammar.h"

namespace linnet {
// Any one character, or any number of them, then `next`. A character is in UTF-8 or escaped.
TextGrammar::Node json_character(TextGrammar& grammar, TextGrammar::Node next);
TextGrammar::Node json_characters(TextGrammar& grammar, TextGrammar::Node next);

// A subroutine of the strings in which a regular expression of ECMA-262 is found: characters, "." and classes,
// repetitions, groups, alternatives, "^" and "$" around an alternative, \d, \s, \w. User error for anything else, and
// for a class with characters beyond ASCII.
TextGrammar::Node json_pattern(TextGrammar& grammar, std::string_view pattern);
}  // namespace linnet
