// An encoder of texts (Devlin et al. 2019): layers that see the whole sequence; and what stands on it: a
// masked-language-model head that is computed at the masked positions only, its output layer tied to the word
// embedding; a classifier of sequences; an embedding of sentences. What families differ in is data. Defaults are those
// of bert-base-uncased.
#pragma once
#include <algorithm>
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
  int64_t pad_token = -1;                          // its embedding is not trained by lookups; -1: none
  double embedding_scale = 1;                      // of the word embedding
  bool embedding_norm = true;                      // of the sum of the embeddings
  bool learned_positions = true;                   // added to the token embedding
  int64_t first_position = 0;                      // the row of the position table that the first token has
  int64_t embedding_width = 0;   // of all embeddings, with a projection to `width`; 0: width, and no projection
  int64_t max_distance = 128;    // of these buckets
  int64_t distance_buckets = 0;  // of a bias of all layers' scores by distance (ops/distance_buckets); 0: none
  bool linear_biases = false;    // scores fall with the distance, in each head by another slope (Press et al. 2022)
  // > 0: attention is disentangled (DeBERTa): distances to either side have embeddings, nearer ones one each. With
  // distance_span_buckets those beyond half of them share one, up to max_distance.
  int64_t distance_span = 0, distance_span_buckets = 0;
  bool distance_norm = false;  // of these embeddings
  // > 0: a convolution over so many neighboring embeddings, through its activation, is added to the first layer's
  // states.
  int64_t convolution = 0;
  Activation convolution_activation = Activation::kTanh;
  // Of layers (models/modules/blocks.h).
  NormPlace norm_place = NormPlace::kSum;
  NormKind norms = NormKind::kLayer;
  Biases biases = {};
  int64_t head_size = 0;  // 0: width / heads
  int64_t kv_heads = 0;   // of keys and values; 0: as many as heads
  QueryKeyNorms query_key_norms = QueryKeyNorms::kNone;
  double attention_scale = 0;  // of scores; 0: 1 / sqrt(head_size)
  bool gated = false;
  bool fused_gate = false;
  bool gate_second = false;                 // see LayerConfig
  bool first_attention_norm = true;         // false: the first layer's attention has no norm
  bool final_norm = false;                  // of the last layer's states
  double hidden_dropout = 0;                // in the feed-forward
  std::vector<LayerKind> layer_kinds = {};  // of each layer; empty: no windows, no rotary positions
  // > 0: `layers` in so many groups share weights. Each layer is group_layers blocks then.
  int64_t layer_groups = 0, group_layers = 1;
  // Of heads.
  bool head_biases = true;                           // of their dense layers
  bool has_pooler = true;                            // of a SentenceEncoder
  bool pooler_norm = false;                          // after its activation
  bool pooler_dropout = false;                       // also before the dense layer under the classifier
  bool mean_pooled = false;                          // the classifier takes the mean state, not that of the first token
  Activation pooler_activation = Activation::kTanh;  // of that dense layer
  std::optional<double> classifier_dropout = {};     // before the classifier of texts; empty: as `dropout`
  std::optional<double> tagger_dropout = {};         // before that of tokens; empty: as `dropout`
};

// norm(states + activation(convolution of the texts' embeddings + bias)): [B, T, D]. Behind its end a text has zeros.
struct TokenConvolution : Module {
  TokenConvolution(Module* parent, std::string name, const EncoderConfig& config);
  Tensor operator()(Tensor embeddings, Tensor lengths, Tensor states);

  const int64_t longest;  // of all texts
  const Activation activation;
  Parameter weight, bias;  // [D, D, K], [D]
  Dropout dropout;
  LayerNorm norm;
};

struct TextEncoder : Module {
  TextEncoder(Module* parent, std::string name, const EncoderConfig& config);
  // tokens, types i32 [B, T], lengths i32 [B] -> [B, T, D]. Without `types` every token is of type 0; a model without
  // token types ignores them.
  Tensor operator()(Tensor tokens, Tensor lengths, Tensor types = {});

  const EncoderConfig config;
  Embedding words;                       // [V, E], E the embedding width
  std::unique_ptr<Embedding> positions;  // [first_position + max_seq_len, E]; null where they are not learned
  std::unique_ptr<Embedding> types;      // null without token types
  std::unique_ptr<LayerNorm> embedding_norm;
  std::optional<Linear> projection;  // [E] -> [D]
  Dropout dropout;
  ModuleList<EncoderLayer> layers;         // with layer_groups: the blocks of each group
  std::optional<Parameter> distance_bias;  // [buckets, heads]
  std::optional<Embedding> distances;      // [2 distance_span, D]
  std::optional<LayerNorm> distance_norm;
  std::optional<TokenConvolution> convolution;
  std::optional<LayerNorm> norm;

 private:
  Tensor embed(Tensor tokens, Tensor types);
  // Biases of scores of layer i by distance, [heads, 2 T - 1], or undefined. `shared`: that of all layers.
  Tensor bias_of(size_t i, Tensor shared, Tensor like) const;
  void add_distances(AttentionContext& context, Tensor like);
};

// dense, activation, norm; then logits by the word embedding and a bias.
struct MaskedHead : Module {
  MaskedHead(Module* parent, std::string name, const EncoderConfig& config);
  Tensor operator()(Tensor x);

  Activation activation;
  Linear dense;  // [D] -> [E]
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

// One state through dropout, a dense layer, its activation and perhaps a norm: [B, T, D] -> [B, D]. It is that of the
// first token, or the mean.
struct Pooler : Module {
  Pooler(Module* parent, std::string name, const EncoderConfig& config, double dropout = 0);
  Tensor operator()(Tensor states, Tensor lengths = {});  // lengths: of mean_pooled

  const Activation activation;
  const int64_t mean_heads;  // 0: the first token's state
  Dropout dropout;
  Linear dense;
  std::optional<LayerNorm> norm;
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

// [B, T]: 1 for the tokens of each sequence, 0 for its padding. With `longest`, the most tokens there can be, no
// constant of the graph depends on the length.
Tensor token_mask(Tensor lengths, int64_t length, DType dtype, int64_t longest = 0);
// Of a sequence's states [B, T, D] the first one, and the mean over its tokens: [B, D].
Tensor first_state(Tensor states);
Tensor mean_state(Tensor states, Tensor lengths, int64_t heads);

// How the states of a text's tokens become one. kRootMean: the mean times the square root of the number of tokens.
enum class Pooling { kMean, kFirst, kLast, kMax, kRootMean };

// One state for each text, of length 1 when `normalized` (Reimers & Gurevych 2019): [B, D].
Tensor sentence_embeddings(TextEncoder& encoder, Tensor tokens, Tensor lengths, bool normalized = true,
                           Pooling pooling = Pooling::kMean);

// What embeddings learn of examples of several texts; cosines but for kTriplet.
struct EmbeddingLoss {
  enum class Kind {
    kInBatch,  // cross-entropy: a text's partner among the other texts of the batch, which are not first ones
    kTriplet,  // the distance to the partner is smaller than that to the third text by `margin`, else the difference
    kCosent,   // pairs with a greater score have a greater cosine (log-sum-exp over pairs of pairs)
    kCosine,   // squared difference of cosine and score
  };
  Kind kind = Kind::kInBatch;
  int64_t parts = 2;  // texts of an example; 1: there is nothing to learn, the model is only asked
  double scale = 20, margin = 5;
  std::vector<int64_t> dimensions = {};  // the sum of the losses of so many first numbers; empty: of all numbers
  bool cached = false;                   // a batch is a part of a larger one, of which it is told the gradients

  bool has_labels() const { return kind == Kind::kCosent || kind == Kind::kCosine; }
  bool is_of_batch() const { return kind == Kind::kInBatch || kind == Kind::kCosent; }  // whose examples learn together
};

// Of embeddings [parts * batch, D], the first texts of all examples before all second ones. Inputs: "weights" f32
// [batch], 0 for rows that are left out; with labels "labels" f32 [batch].
Loss embedding_loss_of(const EmbeddingLoss& options, Trace& trace, Tensor embeddings, int64_t batch);

// The encoder without a task. The pooler is part of the files and not used here.
struct SentenceEncoder : TextClassifier {
  explicit SentenceEncoder(const EncoderConfig& config) : encoder{this, "bert", config} {
    if (config.has_pooler) pooler.emplace(this, "pooler", config);
  }
  Tensor operator()(Tensor tokens, Tensor lengths) { return sentence_embeddings(encoder, tokens, lengths); }
  Tensor logits(Tensor tokens, Tensor lengths, Tensor = {}) override;
  int64_t max_length() const override {
    return max_tokens > 0 ? std::min(max_tokens, encoder.config.max_seq_len) : encoder.config.max_seq_len;
  }

  int64_t width() const {
    return dense.size() > 0 ? dense[dense.size() - 1].weight.spec().shape[0] : encoder.config.width;
  }

  TextEncoder encoder;
  std::optional<Pooler> pooler;
  Pooling pooling = Pooling::kMean;
  ModuleList<Linear> dense{this, "dense"};  // behind the pooling, each with what follows it
  std::vector<std::optional<Activation>> dense_activations;
  bool normalized = true;
  int64_t max_tokens = 0;  // of a text; 0: all positions
  EmbeddingLoss training_loss, evaluation_loss;
};

// The loss that a SentenceEncoder says, of `batch` examples, in the order of embedding_loss_of(). One that is cached
// has instead of its inputs "gradients" f32 [parts * batch, D], those of the loss of the larger batch, and "share" f32
// [2], what counts as this batch's loss and as its number of examples.
Loss embedding_loss(TextClassifier& model, Trace& trace, int64_t batch, int64_t length, bool types = false);
// Only embeds, the output "logits", so many texts.
Loss embedding_alone(TextClassifier& model, Trace& trace, int64_t texts, int64_t length);
// Training is without dropout from now on.
void leave_dropout_out(Module& model);

}  // namespace linnet
