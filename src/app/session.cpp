#include "app/session.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "app/trainer_options.h"
#include "base/phase.h"
#include "exec/backend.h"
#include "models/translation_loss.h"

namespace linnet {

Session::Session(const Config& config, const TranslationModel& translation, SessionOptions options)
    : config(config),
      tokenizers(translation.tokenizers),
      model(translation.model),
      layout(*model, parameter_groups(config)),
      store(open_backend(config.train.device)),
      shapes(std::move(options.shapes)) {
  shared = {store.add_region("arena", MemoryKind::kActivations, 0),
            store.add_region("workspace", MemoryKind::kWorkspace, 0)};
  TrainerOptions train = trainer_options(config, options.training);
  train.verify_plans = options.verify_plans;
  trainer = std::make_unique<Trainer>(layout, store, shared, train);
  bind_batch_inputs();
  const double smoothing = config.train.label_smoothing;
  Phase phase("planning");
  for (const BatchShape& shape : shapes) {
    phase.tick(&shape - shapes.data(), static_cast<int64_t>(shapes.size()));
    const LossFunction loss = [this, shape, smoothing](Trace& trace) {
      return translation_loss(*model, trace, shape, smoothing);
    };
    if (options.training)
      trainer->add_shape(loss);
    else
      trainer->add_evaluation_shape(loss);
  }
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
    generate.threads = train.threads;
    generate.verify_plans = options.verify_plans;
    generators.push_back(std::make_unique<Generator>(*model, layout, store, shared, generate));
  }
}

void Session::bind_batch_inputs() {
  int64_t rows = 0, source = 0, target = 0;
  for (const BatchShape& shape : shapes) {
    rows = std::max(rows, shape.batch);
    source = std::max(source, shape.batch * shape.source_length);
    target = std::max(target, shape.batch * shape.target_length);
  }
  const RegionId region =
      store.add_region("batch", MemoryKind::kBatch, static_cast<size_t>(source + 2 * target + 2 * rows) * 4 + 5 * 64);
  size_t offset = 0;
  for (const auto& [name, count] : {std::pair{"source", source},
                                    {"source_lengths", rows},
                                    {"target_in", target},
                                    {"target_out", target},
                                    {"target_lengths", rows}}) {
    const size_t bytes = static_cast<size_t>(count) * 4;
    store.bind(name, {region, offset}, bytes);
    offset += (bytes + 63) / 64 * 64;
  }
}

void Session::allocate() {
  store.allocate();
  trainer->bind();
  for (auto& generator : generators) generator->bind();
}

void Session::load_batch(const Batch& batch) {
  const auto copy = [&](const char* name, std::span<const int32_t> ids) {
    std::memcpy(store.data(name), ids.data(), ids.size_bytes());
  };
  copy("source", batch.source);
  copy("source_lengths", batch.source_lengths);
  copy("target_in", batch.target_in);
  copy("target_out", batch.target_out);
  copy("target_lengths", batch.target_lengths);
}

}  // namespace linnet
