// An encoder of BERT's kind (Devlin et al. 2019): post-LN layers that see the whole sequence, learned positions, and a
// masked-language-model head that is computed at the masked positions only, its output layer tied to the word
// embedding. Defaults are those of bert-base-uncased.
#pragma once
#include "models/blocks.h"
#include "nn/loss.h"

namespace linnet {

struct BertConfig {
  int64_t vocab_size = 30522, max_seq_len = 512, token_types = 2;
  int64_t width = 768, heads = 12, layers = 12, hidden = 3072;
  double dropout = 0.1;
};

struct Bert : Module {
  Bert(Module* parent, std::string name, const BertConfig& config);
  // tokens i32 [B, T], lengths i32 [B] -> [B, T, D]. Every token is of type 0.
  Tensor operator()(Tensor tokens, Tensor lengths);

  const BertConfig config;
  Embedding words, positions, types;
  LayerNorm embedding_norm;
  Dropout dropout;
  ModuleList<EncoderLayer> layers;
};

// dense, GELU, norm; then logits by the word embedding and a bias.
struct MaskedHead : Module {
  MaskedHead(Module* parent, std::string name, const BertConfig& config);
  Tensor operator()(Tensor x);

  Linear dense;
  LayerNorm norm;
  Parameter bias;  // [vocab_size]
};

struct MaskedLanguageModel : Module {
  explicit MaskedLanguageModel(const BertConfig& config) : bert{this, "bert", config}, head{this, "head", config} {}

  Bert bert;
  MaskedHead head;
};

// Masked-token loss. Inputs of the graph: "tokens" i32 [batch, length], "lengths" i32 [batch]; "positions" and
// "targets" i32 [masked]: rows of the flattened batch (b * length + t), and what stood there; a negative target is left
// out.
Loss masked_language_loss(MaskedLanguageModel& model, Trace& trace, int64_t batch, int64_t length, int64_t masked);

}  // namespace linnet
