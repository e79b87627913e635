// The Transformer of Vaswani et al. 2017; also pre-LN (Xiong et al. 2020) and shared embeddings (Press & Wolf 2017).
#pragma once
#include "models/modules/blocks.h"
#include "models/modules/encoder_decoder.h"

namespace linnet {
// Positions added to the embeddings. Sines and cosines are computed.
enum class Positions {
  kAlternating,  // sines and cosines alternate
  kHalved,       // the sines come before the cosines (Marian, Pegasus)
  kInclusive,    // the same with wavelengths from 2 pi to 10000 * 2 pi, both included (M2M100)
  kLearned,      // a table for each side (BART)
};

struct TransformerConfig {
  int64_t source_vocab = 256, target_vocab = 256;
  int64_t d_model = 256, num_heads = 8, d_ff = 1024;
  int64_t num_encoder_layers = 2, num_decoder_layers = 2;
  int64_t max_seq_len = 256;  // of either side, special tokens included
  double dropout = 0.1;
  bool norm_first = false;  // pre-LN
  bool final_norm = false;  // a norm after the last layer of each stack; pre-LN needs one
  Activation activation = Activation::kRelu;
  bool share_embeddings = false;  // one table for both sides: needs one vocabulary
  bool tie_head = false;          // the output projection is the target embedding
  // Of attention probabilities and hidden units of the feed-forward; empty: as `dropout`.
  std::optional<double> attention_dropout = {}, hidden_dropout = {};
  bool scale_embedding = true;  // embeddings times sqrt(d_model)
  Positions positions = Positions::kAlternating;
  int64_t first_position = 0;   // the row of the position table that the first token has
  bool embedding_norm = false;  // of the sum of embedding and position, one for each side (BART)
  bool head_bias = true;
  int64_t pad_token = -1;   // its embedding is not trained by lookups; -1: none
  bool zero_start = false;  // the target's first position has the zero embedding, whatever its token is (Marian)
};

// Layers and perhaps a norm behind the last one: the encoder, or the decoder.
template <class Layer> struct LayerStack : Module {
  LayerStack(Module* parent, std::string name, int64_t count, const TransformerConfig& config);
  // `memory`: of the decoder alone.
  template <class... Memory> Tensor operator()(Tensor x, const AttentionContext& context, const Memory&... memory) {
    for (size_t i = 0; i < layers.size(); ++i) x = layers[i](x, context, memory...);
    return norm ? (*norm)(x) : x;
  }

  ModuleList<Layer> layers;
  std::optional<LayerNorm> norm;
};

struct Head : Module {
  Head(Module* parent, std::string name, const TransformerConfig& config);
  Tensor operator()(Tensor x, const Embedding& target_embedding);  // [..., D] -> [..., V]
  // Summed cross-entropy against targets i32 [...], never with all logits in memory.
  Tensor loss(Tensor x, const Embedding& target_embedding, Tensor targets, double label_smoothing);

  std::optional<Parameter> weight;  // absent when tied
  std::optional<Parameter> bias;
};

struct Transformer : EncoderDecoder {
  explicit Transformer(const TransformerConfig& config);

  Tensor encode(Tensor source, Tensor source_lengths) override;
  Tensor decode(const TargetRows& rows) override;
  // target_in i32 [B, T]: begin, then the target without its last token -> logits [B, T, V]
  Tensor operator()(Tensor source, Tensor source_lengths, Tensor target_in, Tensor target_lengths);
  Tensor loss(Tensor source, Tensor source_lengths, Tensor target_in, Tensor target_lengths, Tensor targets,
      double label_smoothing) override;

  Tensor target_logits(Tensor source, Tensor source_lengths, Tensor target_in, Tensor target_lengths) override {
    return (*this)(source, source_lengths, target_in, target_lengths);
  }

  int64_t output_vocab_size() const override { return config.target_vocab; }
  ModuleList<DecoderLayer>& decoder_layers() override { return decoder.layers; }
  int64_t max_length() const override { return config.max_seq_len; }

  const TransformerConfig config;
  std::optional<Embedding> shared_embedding, source_embedding, target_embedding;
  std::optional<Constant> positions;                            // [max_seq_len, D]; none where they are learned
  std::optional<Embedding> source_positions, target_positions;  // [first_position + max_seq_len, D], learned
  std::optional<LayerNorm> source_norm, target_norm;            // of the embeddings
  std::optional<Constant> after_start;  // [max_seq_len, D]: 0 at the first position, 1 at the others; of zero_start
  Dropout embedding_dropout;
  LayerStack<EncoderLayer> encoder;
  LayerStack<DecoderLayer> decoder;
  Head head;

 private:
  Embedding& source_table() { return shared_embedding ? *shared_embedding : *source_embedding; }
  Embedding& target_table() { return shared_embedding ? *shared_embedding : *target_embedding; }
  // The layers' input for one side. `at` returns the rows of a [max_seq_len, D] table at the tokens' positions; empty:
  // they begin with 0.
  using RowsOf = std::function<Tensor(Tensor table)>;
  Tensor add_positions(Tensor embedded, bool of_target, const RowsOf& at = {});
  // The head's input [B, T, D].
  Tensor hidden(Tensor source, Tensor source_lengths, Tensor target_in, Tensor target_lengths);
};
}  // namespace linnet
