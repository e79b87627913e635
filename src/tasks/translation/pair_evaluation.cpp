#include "tasks/translation/pair_evaluation.h"

#include "data/examples/batch_stream.h"
#include "data/metrics/bleu.h"
#include "data/metrics/chrf.h"
#include "data/metrics/exact_match.h"

namespace linnet {

EvaluationSet::EvaluationSet(ParallelText pairs, const TokenizerPair& tokenizers, int64_t max_seq_len)
    : text(std::move(pairs)),
      dataset(text, *tokenizers.source, *tokenizers.target,
              {.max_seq_len = max_seq_len, .drop_long = false, .special = tokenizers.special}) {}

double mean_loss(TranslationSession& session, const EvaluationSet& set, const Buckets& buckets, SharedWork& ranks) {
  EvaluationBatches batches(set.dataset, buckets);
  const std::vector<double> found = ranks.numbers(batches.size(), 2, [&](int64_t index, std::span<double> result) {
    const LossTotal total = session.trainer->evaluate(batches.at(index));
    result[0] = total.sum, result[1] = static_cast<double>(total.tokens);
  });
  double sum = 0, tokens = 0;
  for (size_t i = 0; i < found.size(); i += 2) sum += found[i], tokens += found[i + 1];
  return sum / tokens;
}

std::vector<std::string> translate(TranslationSession& session, const EvaluationSet& set, int64_t pairs,
                                   SharedWork& ranks) {
  std::vector<int64_t> lines;
  for (int64_t i = 0; i < pairs; ++i)
    if (set.dataset.source(i).size() > 1) lines.push_back(i);  // an empty line stays one, as in `linnet translate`
  const auto translate_lines = [&](std::span<const int64_t> items) {
    std::vector<std::vector<int32_t>> sources;
    for (const int64_t item : items) {
      const auto ids = set.dataset.source(lines[static_cast<size_t>(item)]);
      sources.emplace_back(ids.begin(), ids.end());
    }
    std::vector<std::string> texts(items.size());
    const auto generated = session.generator->generate(sources, 1, session.trainer->pool());
    for (size_t i = 0; i < generated.size(); ++i)
      if (!generated[i].empty()) texts[i] = session.tokenizers.target->decode(generated[i][0].ids);
    return texts;
  };
  std::vector<std::string> translated = ranks.texts(std::ssize(lines), translate_lines);
  std::vector<std::string> translations(static_cast<size_t>(pairs));
  for (size_t i = 0; i < lines.size(); ++i) translations[static_cast<size_t>(lines[i])] = std::move(translated[i]);
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
