#include "app/session.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "app/memory_report.h"
#include "app/trainer_options.h"
#include "base/error.h"
#include "models/translation_loss.h"

namespace linnet {
namespace {

// A forgotten unit or an extra zero should be told before an hour of planning.
void check_size(const Config& config, const TokenizerPair& tokenizers) {
  const auto d = static_cast<double>(config.model.d_model), ff = static_cast<double>(config.model.d_ff);
  const double layers = static_cast<double>(config.model.num_encoder_layers + 2 * config.model.num_decoder_layers);
  const double vocab = static_cast<double>(tokenizers.source->vocab_size() + 2 * tokenizers.target->vocab_size());
  const double bytes =
      4 * (d * vocab + layers * (4 * d * d + 2 * d * ff) + d * static_cast<double>(config.model.max_seq_len));
  const double available = static_cast<double>(available_memory());
  if (bytes > available)
    fail_user("the model's parameters alone take about " + std::to_string(static_cast<int64_t>(bytes / 1e6)) +
              " MB, and the machine has " + std::to_string(static_cast<int64_t>(available / 1e6)) + " MB available");
}

}  // namespace

TransformerConfig transformer_config(const Config& config, const TokenizerPair& tokenizers) {
  check_size(config, tokenizers);
  const ModelConfig& m = config.model;
  TransformerConfig t;
  t.source_vocab = tokenizers.source->vocab_size(), t.target_vocab = tokenizers.target->vocab_size();
  t.d_model = m.d_model, t.num_heads = m.num_heads, t.d_ff = m.d_ff;
  t.num_encoder_layers = m.num_encoder_layers, t.num_decoder_layers = m.num_decoder_layers;
  t.max_seq_len = m.max_seq_len;
  t.dropout = m.dropout;
  t.norm_first = m.norm == "pre", t.final_norm = m.final_norm;
  t.activation = m.activation == "gelu" ? Activation::kGelu : Activation::kRelu;
  t.share_embeddings = m.share_embeddings, t.tie_head = m.tie_head;
  return t;
}

Session::Session(const Config& config, TokenizerPair tokenizer_pair, SessionOptions options)
    : config(config),
      tokenizers(std::move(tokenizer_pair)),
      model(transformer_config(config, tokenizers)),
      layout(model),
      shapes(std::move(options.shapes)) {
  shared = {store.add_region("arena", MemoryKind::kActivations, 0),
            store.add_region("workspace", MemoryKind::kWorkspace, 0)};
  TrainerOptions train = trainer_options(config, options.training);
  train.verify_plans = options.verify_plans;
  trainer = std::make_unique<Trainer>(layout, store, shared, train);
  bind_batch_inputs();
  const double smoothing = config.train.label_smoothing;
  for (const BatchShape& shape : shapes) {
    const LossFunction loss = [this, shape, smoothing](Trace& trace) {
      return translation_loss(model, trace, shape, smoothing);
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
    generate.flat_name = trainer->evaluated_state();
    generate.threads = train.threads;
    generate.verify_plans = options.verify_plans;
    generators.push_back(std::make_unique<Generator>(model, layout, store, shared, generate));
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
