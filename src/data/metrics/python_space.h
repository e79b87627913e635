// White space as Python's str.split() takes it, which sacreBLEU's scores depend on.
#pragma once
#include "data/text/unicode/utf8.h"

namespace linnet {

// Unicode's white space, and the four information separators of ASCII.
inline bool is_python_space(char32_t c) { return is_white_space(c) || (c >= 0x1C && c <= 0x1F); }

}  // namespace linnet
