// Base64 (RFC 4648, with padding), in which tokenizer.json keeps SentencePiece's table of replacements.
#pragma once
#include <string>
#include <string_view>

namespace linnet {

std::string encode_base64(std::string_view bytes);
bool decode_base64(std::string_view text, std::string& bytes);  // false for anything else

}  // namespace linnet
