// What generated texts are measured by, each score equal to its reference package. Scores of a corpus take one
// reference for each hypothesis: both lists must be equally long.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace linnet {
// BLEU (Papineni et al. 2002) as sacreBLEU's default (Post 2018): nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp.
struct Bleu {
  double score = 0;               // 0..100
  double precisions[4] = {};      // 0..100, of 1- to 4-grams
  double brevity_penalty = 0;     // 0..1
  int64_t hypothesis_length = 0;  // in tokens
  int64_t reference_length = 0;
};

//   score = BP exp(sum_n log(p_n) / 4),  BP = min(1, exp(1 - references' length / hypotheses' length))
// The k-th order without a match counts as 1 / (2^k total) ("exp" smoothing); no match at all scores 0.
Bleu corpus_bleu(const std::vector<std::string>& hypotheses, const std::vector<std::string>& references);

// The tokens of mteval-v13a: unescapes &quot; &amp; &lt; &gt; and splits punctuation off except within numbers.
std::vector<std::string> tokenize_13a(std::string_view line);

// chrF (Popović 2015) as sacreBLEU's default, chrF2: nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no; from 0 to 100.
// Precision and recall of n-grams of 1 to 6 characters, without white space, are averaged over n; then
//   chrF = 100 (1 + b^2) P R / (b^2 P + R) with b = 2.
// An n for which either side has no n-gram does not count.
double corpus_chrf(const std::vector<std::string>& hypotheses, const std::vector<std::string>& references);

// Ignores white space at either end (and so a carriage return).
bool is_exact_match(std::string_view hypothesis, std::string_view reference);

// From 0 to 1; 0 for empty lists.
double exact_match(const std::vector<std::string>& hypotheses, const std::vector<std::string>& references);

int64_t count_words(std::string_view text);  // separated by Unicode white space

// exp(nats / count); infinite if it overflows a double, NaN for count 0.
double perplexity(double nats, int64_t count);

// Scores answers to questions like SQuAD's evaluation scripts (Rajpurkar et al. 2016, 2018).

// Lowercase, without ASCII punctuation and English articles, one space between words.
std::string normalized_answer(std::string_view text);

struct AnswerScore {
  double exact = 0;  // 1: equal to one of the wanted answers, once normalized
  double f1 = 0;     // of the words that both have; of several wanted answers the best
};
// `wanted`: the right answers; none: the empty answer is right. `may_lack`: scores like version 2's script, for data
// with unanswerable questions, else like version 1.1's; they differ in answers that normalization empties.
AnswerScore score_answer(std::string_view found, std::span<const std::string> wanted, bool may_lack);
}  // namespace linnet
