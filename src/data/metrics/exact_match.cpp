#include "data/metrics/exact_match.h"
#include "base/error.h"
#include "data/text/unicode/utf8.h"

namespace linnet {
namespace {

std::string_view trim(std::string_view text) {
  size_t begin = std::string_view::npos, end = 0;
  for (size_t i = 0; i < text.size();) {
    const size_t length = utf8_length_at(text, i);
    if (!is_white_space(utf8_code_point_at(text, i))) {
      if (begin == std::string_view::npos) begin = i;
      end = i + length;
    }
    i += length;
  }
  return begin == std::string_view::npos ? std::string_view() : text.substr(begin, end - begin);
}

}  // namespace

bool is_exact_match(std::string_view hypothesis, std::string_view reference) {
  return trim(hypothesis) == trim(reference);
}

double exact_match(const std::vector<std::string>& hypotheses, const std::vector<std::string>& references) {
  if (hypotheses.size() != references.size())
    fail_internal("exact match of " + std::to_string(hypotheses.size()) + " hypotheses against " +
                  std::to_string(references.size()) + " references");
  if (hypotheses.empty()) return 0;
  size_t matches = 0;
  for (size_t i = 0; i < hypotheses.size(); ++i) matches += is_exact_match(hypotheses[i], references[i]);
  return static_cast<double>(matches) / static_cast<double>(hypotheses.size());
}

}  // namespace linnet
