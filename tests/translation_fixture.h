// A small Transformer with a trainer and planned memory, and batches made by rule: what tests of training share.
#pragma once
#include <cstring>
#include <memory>
#include <vector>
#include "models/modules/encoder_decoder.h"
#include "models/modules/transformer.h"
#include "training/trainer/trainer.h"

namespace linnet::testing {
struct TokenBatch {
  BatchShape shape;
  std::vector<int32_t> source, source_lengths, target_in, target_out, target_lengths;
};

// Rows of the given lengths (source, target); ids in [4, vocab), a function of row and position alone, so that the same
// row can be padded to any shape. What lies beyond a length is junk on purpose.
inline TokenBatch make_batch(const std::vector<std::pair<int32_t, int32_t>>& lengths, int64_t source_length,
    int64_t target_length, int32_t vocab, int32_t first_row = 0) {
  TokenBatch batch{{static_cast<int64_t>(lengths.size()), source_length, target_length}, {}, {}, {}, {}, {}};
  const auto id = [&](size_t row, int64_t position, int32_t salt) {
    const auto mixed = static_cast<uint32_t>((row + static_cast<size_t>(first_row) + 1) * 2654435761u +
                                             static_cast<uint32_t>(position * 40503 + salt * 977));
    return static_cast<int32_t>(4 + mixed / 7 % static_cast<uint32_t>(vocab - 4));
  };
  for (size_t row = 0; row < lengths.size(); ++row) {
    batch.source_lengths.push_back(lengths[row].first);
    batch.target_lengths.push_back(lengths[row].second);
    for (int64_t t = 0; t < source_length; ++t) batch.source.push_back(id(row, t, t < lengths[row].first ? 1 : 5));
    for (int64_t t = 0; t < target_length; ++t) {
      batch.target_in.push_back(t == 0 ? 2 : id(row, t - 1, t < lengths[row].second ? 2 : 6));
      batch.target_out.push_back(id(row, t, t < lengths[row].second ? 2 : 7));
    }
  }
  return batch;
}

inline TransformerConfig small_config(int64_t vocab = 50) {
  TransformerConfig config;
  config.source_vocab = config.target_vocab = vocab;
  config.d_model = 32, config.num_heads = 4, config.d_ff = 64;
  config.num_encoder_layers = config.num_decoder_layers = 2;
  config.max_seq_len = 32;
  config.dropout = 0;
  return config;
}

class Training {
 public:
  Training(const TransformerConfig& config, const std::vector<BatchShape>& shapes, TrainerOptions options = {},
      double label_smoothing = 0)
      : model(config), layout(model),
        store(*options.backend), shared{store.add_region("arena", MemoryKind::kActivations, 0),
                                     store.add_region("workspace", MemoryKind::kWorkspace, 0)} {
    trainer = std::make_unique<Trainer>(layout, store, shared, options);
    for (const char* name : {"source", "source_lengths", "target_in", "target_out", "target_lengths"})
      store.bind(name, {store.add_region(name, MemoryKind::kBatch, 1 << 16), 0}, 1 << 16);
    for (const BatchShape& shape : shapes)
      trainer->plans().add_shape([this, shape, label_smoothing](Trace& trace) {
        return translation_loss(model, trace, {shape.batch, shape.source_length, shape.target_length}, label_smoothing);
      });
    store.allocate();
    store.touch();
    trainer->plans().bind();
    trainer->state().initialize();
  }

  void load(const TokenBatch& batch) {
    const auto copy = [&](const char* name, const std::vector<int32_t>& ids) {
      std::memcpy(store.data(name), ids.data(), ids.size() * 4);
    };
    copy("source", batch.source), copy("source_lengths", batch.source_lengths);
    copy("target_in", batch.target_in), copy("target_out", batch.target_out),
        copy("target_lengths", batch.target_lengths);
  }

  std::vector<float> parameters() const {
    const float* flat = trainer->state().flat("parameters");
    return {flat, flat + layout.parameter_count()};
  }

  Transformer model;
  ParameterLayout layout;
  Store store;
  SharedRegions shared;
  std::unique_ptr<Trainer> trainer;
};
}  // namespace linnet::testing
