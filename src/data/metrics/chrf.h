// chrF (Popović 2015) as sacreBLEU computes it by default, also called chrF2: signature
// nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no.
#pragma once
#include <string>
#include <vector>

namespace linnet {

// Over the whole corpus, from 0 to 100, one reference for each hypothesis. The lists must be equally long. Precision
// and recall of the n-grams of 1 to 6 characters, white space left out, are averaged over n; then
//   chrF = 100 (1 + b^2) P R / (b^2 P + R) with b = 2.
// An n for which either side has no n-gram does not count.
double corpus_chrf(const std::vector<std::string>& hypotheses, const std::vector<std::string>& references);

}  // namespace linnet
