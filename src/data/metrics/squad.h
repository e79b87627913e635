// How good answers to questions are, as the evaluation scripts of SQuAD count (Rajpurkar et al. 2016, 2018).
#pragma once
#include <span>
#include <string>
#include <string_view>

namespace linnet {

// In lower case, without ASCII's punctuation and English articles, one space between words.
std::string normalized_answer(std::string_view text);

struct AnswerScore {
  double exact = 0;  // 1: equal to one of the wanted answers, once normalized
  double f1 = 0;     // of the words that both have; of several wanted answers the best
};
// `wanted`: answers that are right; none: there is no answer, which the empty one stands for. `may_lack`: by the script
// of version 2, where some questions have no answer, else of version 1.1. They differ in answers that normalization
// leaves empty.
AnswerScore score_answer(std::string_view found, std::span<const std::string> wanted, bool may_lack);

}  // namespace linnet
