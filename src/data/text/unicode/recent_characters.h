// Characters that are newer than PCRE2's tables.
#pragma once
#include <string>
#include <string_view>

namespace linnet {

// Debian 12's PCRE2 knows Unicode 14, the tokenizers that Linnet follows know Unicode 16. Each character that was added
// in between, and those few whose class PCRE2 sees differently, is replaced by an older one of the same class and the
// same number of bytes, so that matches have the same places. Returns `text` itself when it holds none of them, which
// is nearly always; otherwise a view of `storage`. `text` must be valid UTF-8.
std::string_view replace_recent_characters(std::string_view text, std::string& storage);

}  // namespace linnet
