#include "tasks/translation/pair_evaluation.h"

#include "data/evaluation_batches.h"
#include "metrics/bleu.h"
#include "metrics/chrf.h"
#include "metrics/exact_match.h"

namespace linnet {

EvaluationSet::EvaluationSet(ParallelText pairs, const TokenizerPair& tokenizers, int64_t max_seq_len)
    : text(std::move(pairs)),
      dataset(text, *tokenizers.source, *tokenizers.target,
              {.max_seq_len = max_seq_len, .drop_long = false, .special = tokenizers.special}) {}

double mean_loss(TranslationSession& session, const EvaluationSet& set, const Buckets& buckets) {
  EvaluationBatches batches(set.dataset, buckets);
  double sum = 0, tokens = 0;
  for (int64_t i = 0; i < batches.size(); ++i) {
    const LossTotal total = session.trainer->evaluate(batches.at(i));
    sum += total.sum;
    tokens += static_cast<double>(total.tokens);
  }
  return sum / tokens;
}

std::vector<std::string> translate(TranslationSession& session, const EvaluationSet& set, int64_t pairs) {
  std::vector<std::vector<int32_t>> sources;
  std::vector<size_t> line_of;
  for (int64_t i = 0; i < pairs; ++i) {
    const auto ids = set.dataset.source(i);
    if (ids.size() == 1) continue;  // an empty line stays one, as in `linnet translate`
    sources.emplace_back(ids.begin(), ids.end());
    line_of.push_back(static_cast<size_t>(i));
  }
  std::vector<std::string> translations(static_cast<size_t>(pairs));
  const auto generated = session.generator->generate(sources, 1, session.trainer->pool());
  for (size_t i = 0; i < generated.size(); ++i)
    if (!generated[i].empty()) translations[line_of[i]] = session.tokenizers.target->decode(generated[i][0].ids);
  return translations;
}

Evaluation score(const EvaluationSet& set, const std::vector<std::string>& translations, double loss) {
  const auto begin = set.text.target.begin();
  const std::vector<std::string> references(begin, begin + static_cast<std::ptrdiff_t>(translations.size()));
  return {loss,
          set.dataset.report().target_tokens,
          {{"bleu", corpus_bleu(translations, references).score},
           {"chrf", corpus_chrf(translations, references)},
           {"exact_match", exact_match(translations, references)}},
          {}};
}

}  // namespace linnet
