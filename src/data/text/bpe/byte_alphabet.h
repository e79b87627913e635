// GPT-2's printable spelling of bytes: each of the 256 has a character of its own, so that pieces of any bytes can be
// written down ("Ġ" for a space). Radford et al. 2019, bytes_to_unicode.
#pragma once
#include <string>
#include <string_view>

namespace linnet {

// Appends the spelling of the bytes.
void spell_bytes(std::string_view bytes, std::string& spelling);
// Appends the bytes of a spelling; false, and nothing appended, when it holds any other character.
bool read_spelling(std::string_view spelling, std::string& bytes);

}  // namespace linnet
