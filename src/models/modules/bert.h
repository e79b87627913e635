// An encoder of BERT's kind (Devlin et al. 2019): post-LN layers that see the whole sequence, learned positions; and
// what stands on it: a masked-language-model head that is computed at the masked positions only, its output layer tied
// to the word embedding; a classifier of sequences; an embedding of sentences. Defaults are those of bert-base-uncased.
#pragma once
#include "models/modules/blocks.h"
#include "models/modules/text_classifier.h"
#include "models/nn/loss.h"
#include "models/nn/trace.h"

namespace linnet {

struct BertConfig {
  int64_t vocab_size = 30522, max_seq_len = 512, token_types = 2;
  int64_t width = 768, heads = 12, layers = 12, hidden = 3072;
  double dropout = 0.1;                          // of embeddings and of each sub-layer's result
  std::optional<double> attention_dropout = {};  // of the attention probabilities; empty: as `dropout`
  Activation activation = Activation::kGelu;
  double epsilon = 1e-12;  // of the norms
  int64_t pad_token = -1;  // its embedding is not trained by lookups; -1: none
};

struct Bert : Module {
  Bert(Module* parent, std::string name, const BertConfig& config);
  // tokens, types i32 [B, T], lengths i32 [B] -> [B, T, D]. Without `types` every token is of type 0.
  Tensor operator()(Tensor tokens, Tensor lengths, Tensor types = {});

  const BertConfig config;
  Embedding words, positions, types;
  LayerNorm embedding_norm;
  Dropout dropout;
  ModuleList<EncoderLayer> layers;
};

// dense, activation, norm; then logits by the word embedding and a bias.
struct MaskedHead : Module {
  MaskedHead(Module* parent, std::string name, const BertConfig& config);
  Tensor operator()(Tensor x);

  Activation activation;
  Linear dense;
  LayerNorm norm;
  Parameter bias;  // [vocab_size]
};

struct MaskedLanguageModel : Module {
  explicit MaskedLanguageModel(const BertConfig& config) : bert{this, "bert", config}, head{this, "head", config} {}
  // Of every position: [B, T, V]. Training computes those of the masked positions only.
  Tensor logits(Tensor tokens, Tensor lengths, Tensor types = {});

  Bert bert;
  MaskedHead head;
};

// Masked-token loss. Inputs of the graph: "tokens" i32 [batch, length], "lengths" i32 [batch]; "positions" and
// "targets" i32 [masked]: rows of the flattened batch (b * length + t), and what stood there; a negative target is left
// out. With `types` also "types" i32 [batch, length]. Evaluation has an output "predictions" i32 [masked].
Loss masked_language_loss(MaskedLanguageModel& model, Trace& trace, int64_t batch, int64_t length, int64_t masked,
                          bool types = false, double label_smoothing = 0);

// The first token's state through a dense layer and tanh: [B, T, D] -> [B, D].
struct Pooler : Module {
  Pooler(Module* parent, std::string name, const BertConfig& config);
  Tensor operator()(Tensor states);

  Linear dense;
};

struct SequenceClassifier : TextClassifier {
  // dropout: before the classifier; empty: as in the encoder
  SequenceClassifier(const BertConfig& config, int64_t classes, std::optional<double> dropout = {});
  Tensor logits(Tensor tokens, Tensor lengths, Tensor types = {}) override;
  int64_t max_length() const override { return bert.config.max_seq_len; }

  Bert bert;
  Pooler pooler;
  Dropout dropout;
  Linear classifier;
};

// The encoder without a task. The pooler is part of the files and not used here.
struct SentenceEncoder : Module {
  explicit SentenceEncoder(const BertConfig& config) : bert{this, "bert", config}, pooler{this, "pooler", config} {}
  // The mean state of each sentence's tokens, of length 1 when `normalized` (Reimers & Gurevych 2019): [B, D].
  Tensor operator()(Tensor tokens, Tensor lengths, bool normalized = true);

  Bert bert;
  Pooler pooler;
};

}  // namespace linnet
