#include "tasks/translation/translation_session.h"

#include <set>

#include "data/batch_buffer.h"
#include "models/translation_loss.h"

namespace linnet {

TranslationSession::TranslationSession(const Config& config, const TranslationModel& translation,
                                       SessionOptions options)
    : Session(config, *translation.model, options.training, options.verify_plans),
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
  std::set<int64_t> lengths;
  for (const BatchShape& shape : shapes) lengths.insert(shape.source_length);
  for (const GenerationNeeds& needs : options.generation) {
    GenerateOptions generate;
    generate.sentences = needs.sentences, generate.beams = needs.beams;
    generate.max_length = config.model.max_seq_len;
    generate.source_lengths.assign(lengths.begin(), lengths.end());
    generate.length_penalty = config.train.length_penalty;
    generate.special = tokenizers.special;
    generate.flat_name = trainer->evaluated_state();
    generate.threads = trainer->options().threads;
    generate.verify_plans = options.verify_plans;
    generators.push_back(std::make_unique<Generator>(*model, layout, store, shared, generate));
  }
}

void TranslationSession::allocate() {
  Session::allocate();
  for (auto& generator : generators) generator->bind();
}

}  // namespace linnet
