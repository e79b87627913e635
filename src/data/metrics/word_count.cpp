#include "data/metrics/word_count.h"
#include <cmath>
#include <limits>
#include "data/text/unicode/utf8.h"

namespace linnet {

int64_t count_words(std::string_view text) {
  int64_t words = 0;
  bool inside = false;
  for (size_t at = 0; at < text.size();) {
    const auto byte = static_cast<unsigned char>(text[at]);
    // Most text is ASCII, whose white space is told without decoding.
    const bool space = byte < 0x80 ? byte == ' ' || (byte >= 9 && byte <= 13) || is_white_space(byte)
                                   : is_white_space(utf8_code_point_at(text, at));
    words += !space && !inside;
    inside = !space;
    at += byte < 0x80 ? 1 : utf8_length_at(text, at);
  }
  return words;
}

double perplexity(double nats, int64_t count) {
  return count > 0 ? std::exp(nats / static_cast<double>(count)) : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace linnet
