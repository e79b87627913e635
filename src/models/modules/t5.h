// T5 (Raffel et al. 2020): a pre-norm encoder-decoder with root-mean-square norms, no biases and unscaled scores.
// Position is a bias on the scores by distance, which block 0 of each stack has for all. Defaults: t5-small.
#pragma once
#include "models/modules/blocks.h"
#include "models/modules/encoder_decoder.h"
#include "models/nn/trace.h"

namespace linnet {
struct T5Config {
  int64_t vocab_size = 32128, width = 512, heads = 8, head_size = 64, hidden = 2048;
  int64_t encoder_layers = 6, decoder_layers = 6;
  int64_t buckets = 32, max_distance = 128;  // of distances (ops/attention)
  Activation activation = Activation::kRelu;
  bool gated = false;  // the feed-forward, as from version 1.1 on
  double dropout = 0.1, epsilon = 1e-6;
  bool tied_head = true;    // the output layer is the token embedding
  bool scaled_head = true;  // the head's input is scaled by width^-0.5, as for heads tied in pretraining
  int32_t start_token = 0;  // the decoder's first, which is also padding
};

template <class Layer> struct T5Stack : Module {
  T5Stack(Module* parent, std::string name, const T5Config& config, int64_t layers, bool bidirectional);
  // [heads, queries + keys - 1], for queries from `position` on (ops/attention).
  Tensor distance_bias(Graph& graph, int64_t queries, int64_t keys, Tensor position = {});
  // [R, heads, keys]: one query in each row, at positions i32 [R, 1].
  Tensor distance_bias_at(Tensor positions, int64_t keys);
  // The layers, the norm and its dropout. `memory`: of the decoder alone.
  template <class... Memory> Tensor operator()(Tensor x, const AttentionContext& context, const Memory&... memory) {
    for (size_t i = 0; i < layers.size(); ++i) x = layers[i](x, context, memory...);
    return dropout_out(norm(x));
  }

  ModuleList<Layer> layers;
  Parameter bias;  // [buckets, heads]
  LayerNorm norm;
  Dropout dropout_in, dropout_out;
  const T5Config config;
  const bool bidirectional;
};

struct T5 : EncoderDecoder {
  explicit T5(const T5Config& config);

  Tensor encode(Tensor source, Tensor source_lengths) override;
  Tensor decode(const TargetRows& rows) override;
  // The head's scaled input; target_in i32 [B, T]: the start token, then the target -> [B, T, D]
  Tensor hidden(Tensor source, Tensor source_lengths, Tensor target_in);
  Tensor logits(Tensor hidden) { return matmul(hidden, head_weight(), false, true); }  // [..., D] -> [..., V]
  Tensor head_weight() { return head ? head->tensor() : tokens.weight.tensor(); }

  Tensor loss(Tensor source, Tensor source_lengths, Tensor target_in, Tensor target_lengths, Tensor targets,
      double label_smoothing) override;

  Tensor target_logits(Tensor source, Tensor source_lengths, Tensor target_in, Tensor) override {
    return logits(hidden(source, source_lengths, target_in));
  }

  int64_t output_vocab_size() const override { return config.vocab_size; }
  ModuleList<DecoderLayer>& decoder_layers() override { return decoder.layers; }
  int64_t max_length() const override { return 1 << 20; }  // distances have no end

  const T5Config config;
  Embedding tokens;
  T5Stack<EncoderLayer> encoder;
  T5Stack<DecoderLayer> decoder;
  std::optional<Parameter> head;  // absent when tied

 private:
  Tensor scaled(Tensor hidden) const;
};
}  // namespace linnet
