#include "tasks/translation/translation_session.h"

#include <algorithm>
#include <iterator>

#include "data/examples/batch_stream.h"
#include "models/modules/translation_loss.h"

namespace linnet {
namespace {

constexpr int64_t kPairProbeLength = 4;  // of the loss by which tensor parallel divides the model

// What sources are padded to, up to `longest`: at most a fourth of a row is padding (but for the shortest), and there
// are few plans.
std::vector<int64_t> padded_source_lengths(int64_t longest) {
  std::vector<int64_t> lengths;
  for (int64_t length = 12, step = 4; length < longest; length += step) {
    lengths.push_back(length);
    if (length >= 8 * step) step *= 2;
  }
  lengths.push_back(longest);
  return lengths;
}

}  // namespace

int64_t longest_source(const std::vector<BatchShape>& shapes) {
  int64_t longest = 1;
  for (const BatchShape& shape : shapes) longest = std::max(longest, shape.source_length);
  return longest;
}

TranslationSession::TranslationSession(const Config& config, const TranslationModel& translation,
                                       SessionOptions options)
    : Session(config, *translation.model, options.training, options.verify_plans,
              [&model = *translation.model](Trace& trace) {
                return translation_loss(model, trace, {1, kPairProbeLength, kPairProbeLength}, 0);
              }),
      config(config),
      tokenizers(translation.tokenizers),
      model(translation.model),
      shapes(std::move(options.shapes)) {
  std::vector<LossFunction> losses;
  for (const BatchShape& shape : shapes)
    losses.push_back([this, shape, smoothing = config.train.label_smoothing](Trace& trace) {
      return translation_loss(*model, trace, {shape.batch, shape.source_length, shape.target_length}, smoothing);
    });
  plan(pair_inputs(shapes), losses);
  if (!options.generation) return;
  const GenerationNeeds& needs = *options.generation;
  const SpecialTokens& special = tokenizers.special;
  const SourceOptions plan{.rows = needs.sentences,
                           .beams = needs.beams,
                           .max_length = config.model.max_seq_len,
                           .source_lengths = padded_source_lengths(needs.longest_source),
                           .begin = special.begin,
                           .flat_name = trainer->evaluated_state(),
                           .threads = trainer->options().threads,
                           .verify_plans = options.verify_plans,
                           .cache_in_arena = true};
  SearchSettings search;
  search.generate.length_penalty = config.train.length_penalty;
  search.generate.ends = {special.end};
  for (const int32_t token : {special.pad, special.begin})
    if (token >= 0) search.generate.never.push_back(token);
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

}  // namespace linnet
