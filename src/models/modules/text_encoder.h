// An encoder of texts (Devlin et al. 2019): layers that see the whole sequence; and what stands on it: a
// masked-language-model head that is computed at the masked positions only, its output layer tied to the word
// embedding; a classifier of sequences; an embedding of sentences. What families differ in is data. Defaults are those
// of bert-base-uncased.
#pragma once
#include "models/modules/blocks.h"
#include "models/modules/text_classifier.h"
#include "models/nn/loss.h"
#include "models/nn/trace.h"

namespace linnet {

struct EncoderConfig {
  int64_t vocab_size = 30522, max_seq_len = 512;
  int64_t token_types = 2;  // 0: none
  int64_t width = 768, heads = 12, layers = 12, hidden = 3072;
  double dropout = 0.1;                          // of embeddings and of each sub-layer's result
  std::optional<double> attention_dropout = {};  // of the attention probabilities; empty: as `dropout`
  Activation activation = Activation::kGelu;
  Activation head_activation = Activation::kGelu;  // of the masked-language-model head
  double epsilon = 1e-12;                          // of the norms
  int64_t pad_token = -1;  // its embedding is not trained by lookups; -1: none
  int64_t first_position = 0;   // the row of the position table that the first token has
  bool pooler_dropout = false;  // also before the dense layer under the classifier
};

struct TextEncoder : Module {
  TextEncoder(Module* parent, std::string name, const EncoderConfig& config);
  // tokens, types i32 [B, T], lengths i32 [B] -> [B, T, D]. Without `types` every token is of type 0; a model without
  // token types ignores them.
  Tensor operator()(Tensor tokens, Tensor lengths, Tensor types = {});

  const EncoderConfig config;
  Embedding words, positions;        // positions [first_position + max_seq_len, D]
  std::unique_ptr<Embedding> types;  // null without token types
  LayerNorm embedding_norm;
  Dropout dropout;
  ModuleList<EncoderLayer> layers;
};

// dense, activation, norm; then logits by the word embedding and a bias.
struct MaskedHead : Module {
  MaskedHead(Module* parent, std::string name, const EncoderConfig& config);
  Tensor operator()(Tensor x);

  Activation activation;
  Linear dense;
  LayerNorm norm;
  Parameter bias;  // [vocab_size]
};

struct MaskedLanguageModel : Module {
  explicit MaskedLanguageModel(const EncoderConfig& config)
      : encoder{this, "bert", config}, head{this, "head", config} {}
  // Of every position: [B, T, V]. Training computes those of the masked positions only.
  Tensor logits(Tensor tokens, Tensor lengths, Tensor types = {});
  Tensor logits_of(Tensor states);  // states that the head has transformed, [..., D] -> [..., V]

  TextEncoder encoder;
  MaskedHead head;
};

// Masked-token loss. Inputs of the graph: "tokens" i32 [batch, length], "lengths" i32 [batch]; "positions" and
// "targets" i32 [masked]: rows of the flattened batch (b * length + t), and what stood there; a negative target is left
// out. With `types` also "types" i32 [batch, length]. Evaluation has an output "predictions" i32 [masked].
Loss masked_language_loss(MaskedLanguageModel& model, Trace& trace, int64_t batch, int64_t length, int64_t masked,
                          bool types = false, double label_smoothing = 0);

// The first token's state through dropout, a dense layer and tanh: [B, T, D] -> [B, D].
struct Pooler : Module {
  Pooler(Module* parent, std::string name, const EncoderConfig& config, double dropout = 0);
  Tensor operator()(Tensor states);

  Dropout dropout;
  Linear dense;
};

struct SequenceClassifier : TextClassifier {
  // dropout: before the classifier; empty: as in the encoder
  SequenceClassifier(const EncoderConfig& config, int64_t classes, std::optional<double> dropout = {});
  Tensor logits(Tensor tokens, Tensor lengths, Tensor types = {}) override;
  int64_t max_length() const override { return encoder.config.max_seq_len; }

  TextEncoder encoder;
  Pooler pooler;
  Dropout dropout;
  Linear classifier;
};

// Logits of each token, [B, T, outputs]. The linear layer is called `name`, as in files.
struct TokenClassifier : TextClassifier {
  // dropout: before the linear layer
  TokenClassifier(const EncoderConfig& config, std::string name, int64_t outputs, double dropout);
  Tensor logits(Tensor tokens, Tensor lengths, Tensor types = {}) override;
  int64_t max_length() const override { return encoder.config.max_seq_len; }

  TextEncoder encoder;
  Dropout dropout;
  Linear classifier;
};

// The encoder without a task. The pooler is part of the files and not used here.
struct SentenceEncoder : Module {
  explicit SentenceEncoder(const EncoderConfig& config)
      : encoder{this, "bert", config}, pooler{this, "pooler", config} {}
  // The mean state of each sentence's tokens, of length 1 when `normalized` (Reimers & Gurevych 2019): [B, D].
  Tensor operator()(Tensor tokens, Tensor lengths, bool normalized = true);

  TextEncoder encoder;
  Pooler pooler;
};

}  // namespace linnet
