#include "tasks/translation/translation_session.h"
#include <iterator>
#include "data/metrics/text_scores.h"
#include "models/modules/encoder_decoder.h"

namespace linnet {
namespace {
constexpr int64_t kPairProbeLength = 4;  // of the loss by which tensor parallelism divides the model

// Padded lengths of sources, up to `longest`: few plans, with at most a fourth of padding (but for the shortest).
std::vector<int64_t> padded_source_lengths(int64_t longest) {
  return growing_sizes(12, longest, [step = int64_t{4}](int64_t length) mutable {
    if (length >= 8 * step) step *= 2;
    return length + step;
  });
}
}  // namespace

int64_t longest_source(const std::vector<BatchShape>& shapes) {
  return std::max<int64_t>(1, max_of<int64_t>(shapes, &BatchShape::source_length));
}

TranslationSession::TranslationSession(
    const Config& config, const TranslationModel& translation, SessionOptions options)
    : Session(config, *translation.model, options.training, options.verify_plans,
          [&model = *translation.model](Trace& trace) {
            return translation_loss(model, trace, {1, kPairProbeLength, kPairProbeLength}, 0);
          }),
      config(config), tokenizers(translation.tokenizers), model(translation.model), shapes(std::move(options.shapes)) {
  const auto loss = [this, smoothing = config.train.label_smoothing](Trace& trace, const BatchShape& shape) {
    return translation_loss(*model, trace, {shape.batch, shape.source_length, shape.target_length}, smoothing);
  };
  plan(pair_inputs(shapes), losses_of(shapes, loss));
  if (!options.generation) return;
  const GenerationNeeds& needs = *options.generation;
  const SentenceFrame frame = tokenizers.frame();
  const SourceOptions plan{.rows = needs.sentences,
      .beams = needs.beams,
      .max_length = config.model.max_seq_len,
      .source_lengths = padded_source_lengths(needs.longest_source),
      .begin = frame.target_begin[0],
      .flat_name = trainer->state().evaluated(),
      .threads = trainer->options().threads,
      .verify_plans = options.verify_plans,
      .cache_in_arena = true};
  SearchSettings search;
  search.generate.length_penalty = config.train.length_penalty;
  search.generate.ends = frame.target_end;
  search.generate.never = tokenizers.never_written();
  search.generate.begin = frame.target_begin;
  generator = std::make_unique<SourceGenerator>(*model, layout, store, shared, plan, search);
}

std::vector<Plan*> TranslationSession::inference_plans() {
  std::vector<Plan*> plans = Session::inference_plans();
  if (generator) std::ranges::copy(generator->packable_plans(), std::back_inserter(plans));
  return plans;
}

void TranslationSession::allocate() {
  Session::allocate();
  if (generator) generator->bind();
}

EvaluationSet::EvaluationSet(ParallelText pairs, const TokenizerPair& tokenizers, int64_t max_seq_len)
    : text(std::move(pairs)), dataset(text, *tokenizers.source, *tokenizers.target,
                                  {.max_seq_len = max_seq_len, .drop_long = false, .frame = tokenizers.frame()}) {}

double mean_loss(
    TranslationSession& session, const EvaluationSet& set, const Buckets& buckets, const SharedWork& ranks) {
  EvaluationBatches batches(set.dataset, buckets);
  const auto loss_of = [&](int64_t index) { return session.trainer->evaluate(batches.at(index)); };
  return total_loss(batches.size(), ranks, loss_of).mean();
}

std::vector<std::string> translate(
    TranslationSession& session, const EvaluationSet& set, int64_t pairs, const SharedWork& ranks) {
  std::vector<int64_t> lines;
  const SentenceFrame frame = session.tokenizers.frame();
  const size_t empty = frame.source_begin.size() + frame.source_end.size();
  for (int64_t i = 0; i < pairs; ++i)
    if (set.dataset.source(i).size() > empty) lines.push_back(i);  // empty lines stay empty, as in `linnet translate`
  const auto translate_lines = [&](std::span<const int64_t> items) {
    std::vector<std::vector<int32_t>> sources;
    for (const int64_t item : items) {
      const auto ids = set.dataset.source(lines[item]);
      sources.emplace_back(ids.begin(), ids.end());
    }
    std::vector<std::string> texts(items.size());
    const auto generated = session.generator->generate(sources, 1, session.trainer->pool());
    for (size_t i = 0; i < generated.size(); ++i)
      if (!generated[i].empty()) texts[i] = session.tokenizers.target->decode(generated[i][0].ids);
    return texts;
  };
  std::vector<std::string> translated = ranks.texts(std::ssize(lines), translate_lines);
  std::vector<std::string> translations(pairs);
  for (size_t i = 0; i < lines.size(); ++i) translations[lines[i]] = std::move(translated[i]);
  return translations;
}

TaskEvaluation score(const EvaluationSet& set, const std::vector<std::string>& translations, double loss) {
  const auto begin = set.text.target.begin();
  const std::vector<std::string> references(begin, begin + static_cast<std::ptrdiff_t>(translations.size()));
  return {loss, set.dataset.report().target_tokens,
      {{"bleu", corpus_bleu(translations, references).score}, {"chrf", corpus_chrf(translations, references)},
          {"exact_match", exact_match(translations, references)}},
      {}};
}
}  // namespace linnet
