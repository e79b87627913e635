// Classes of characters as in the tokenizers library, whose tables are of several versions of Unicode: utf8proc's are
// restricted to what such a version assigned.
#pragma once
#include <cstdint>
#include <string_view>
#include "data/text/unicode/utf8.h"

namespace linnet {
bool is_word_character(char32_t c);  // \w of regular expressions: letters, marks, digits, connectors
bool is_python_word(char32_t c);     // \w of Python's regular expressions: letters, numbers and the underscore
// White space of Python's str.split(): Unicode's, and ASCII's four information separators.
inline bool is_python_space(char32_t c) { return is_white_space(c) || (c >= 0x1C && c <= 0x1F); }

// BERT's classes, by Unicode 8's categories.
bool is_bert_control(char32_t c);      // Cc, Cf, Co, but tab and line ends; these are taken out
bool is_bert_punctuation(char32_t c);  // ASCII's and P*: a token of its own
bool is_bert_accent(char32_t c);       // Mn
bool is_cjk_ideograph(char32_t c);     // gets a space on either side
bool is_combining_mark(char32_t c);    // M* of Unicode 9: what StripAccents takes out

// Whether normalization, with tables of Unicode 9, ignores the character and starts afresh after it.
bool is_unknown_to_normalization(char32_t c);
// Appends the decomposition of Unicode 9: the canonical one (NFD), or with `compatible` that of NFKD.
void append_decomposition(char32_t c, bool compatible, std::u32string& text);
uint8_t combining_class(char32_t c);                      // 0 but for marks, which normalization sorts by it
void append_lowercase(char32_t c, std::u32string& text);  // appends its lowercase letters, whatever is around it

// The start of the character before text[end], `end` > 0; a malformed byte counts as one.
size_t utf8_start_before(std::string_view text, size_t end);
}  // namespace linnet
