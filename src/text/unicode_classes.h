// Classes of characters and the rewriting that tokenizers do by them, through ICU.
#pragma once
#include <string>
#include <string_view>

namespace linnet {

bool is_word_character(char32_t c);  // \w of regular expressions: letters, marks, digits, connectors

// The start of the character before text[end]; a malformed byte is one of its own. `end` > 0.
size_t utf8_start_before(std::string_view text, size_t end);

}  // namespace linnet
