// BLEU (Papineni et al. 2002) as sacreBLEU computes it by default (Post 2018): signature
// nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace linnet {

struct Bleu {
  double score = 0;               // 0..100
  double precisions[4] = {};      // 0..100, of 1- to 4-grams
  double brevity_penalty = 0;     // 0..1
  int64_t hypothesis_length = 0;  // in tokens
  int64_t reference_length = 0;
};

// Over the whole corpus, one reference for each hypothesis. The lists must be equally long.
//   score = BP exp(sum_n log(p_n) / 4),  BP = min(1, exp(1 - references' length / hypotheses' length))
// The k-th order without a match counts as 1 / (2^k total) instead of 0 ("exp" smoothing); no match at all scores 0.
Bleu corpus_bleu(const std::vector<std::string>& hypotheses, const std::vector<std::string>& references);

// The tokens of mteval-v13a: &quot; &amp; &lt; &gt; read as characters, punctuation split off except within numbers.
std::vector<std::string> tokenize_13a(std::string_view line);

}  // namespace linnet
