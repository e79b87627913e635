// A bidirectional encoder of texts (Devlin et al. 2019) and its heads: masked language model (computed at the masked
// positions only, output layer tied to the word embedding), classifiers, sentence embedding. EncoderConfig has all that
// families differ in. Defaults: bert-base-uncased.
#pragma once
#include "models/modules/blocks.h"
#include "models/modules/losses.h"
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
  int64_t distance_buckets = 0;  // of a bias of all layers' scores by distance (ops/attention); 0: none
  bool linear_biases = false;    // scores fall with the distance, by a slope per head (Press et al. 2022)
  // > 0: attention is disentangled (DeBERTa), with an embedding per distance to either side. With
  // distance_span_buckets, distances beyond half of them share embeddings, up to max_distance.
  int64_t distance_span = 0, distance_span_buckets = 0;
  bool distance_norm = false;  // of these embeddings
  // > 0: the first layer's states get a convolution over so many neighboring embeddings, through its activation.
  int64_t convolution = 0;
  Activation convolution_activation = Activation::kTanh;
  // Of layers (LayerConfig).
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
  // > 0: `layers` in so many groups share weights; a layer is group_layers blocks.
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

// norm(states + activation(convolution of the embeddings + bias)): [B, T, D]. Padding counts as zeros.
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
  // tokens, types i32 [B, T], lengths i32 [B] -> [B, T, D]. No `types`: all 0. Without token_types they are ignored.
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
  // Score biases of layer i by distance, [heads, 2 T - 1], or undefined. `shared`: that of all layers.
  Tensor bias_of(size_t i, Tensor shared, Tensor like) const;
  void add_distances(AttentionContext& context, Tensor like);
};

// Dense layer, activation, norm; then logits by the word embedding and a bias.
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
  // Of every position, [B, T, V]; training computes only those of masked positions.
  Tensor logits(Tensor tokens, Tensor lengths, Tensor types = {});
  Tensor logits_of(Tensor states);  // of states after the head, [..., D] -> [..., V]

  TextEncoder encoder;
  MaskedHead head;
};

// Masked-token loss. Inputs: i32 "tokens" [batch, length], "lengths" [batch], "positions" (b * length + t) and
// "targets" [masked], negative: left out; with `types` "types" [batch, length]. Evaluation outputs i32 "predictions"
// [masked].
Loss masked_language_loss(MaskedLanguageModel& model, Trace& trace, int64_t batch, int64_t length, int64_t masked,
    bool types = false, double label_smoothing = 0);

// Dropout, dense layer, activation and perhaps a norm of the first token's state or the mean: [B, T, D] -> [B, D].
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
  // `dropout`: before the classifier; empty: as in the encoder.
  SequenceClassifier(const EncoderConfig& config, int64_t classes, std::optional<double> dropout = {});
  Tensor logits(Tensor tokens, Tensor lengths, Tensor types = {}) override;
  int64_t max_length() const override { return encoder.config.max_seq_len; }

  TextEncoder encoder;
  Pooler pooler;
  Dropout dropout;
  Linear classifier;
};

// Logits [B, T, outputs]. The linear layer is called `name`, as in files.
struct TokenClassifier : TextClassifier {
  // `dropout`: before the linear layer.
  TokenClassifier(const EncoderConfig& config, std::string name, int64_t outputs, double dropout);
  Tensor logits(Tensor tokens, Tensor lengths, Tensor types = {}) override;
  int64_t max_length() const override { return encoder.config.max_seq_len; }

  TextEncoder encoder;
  Dropout dropout;
  Linear classifier;
};

// [B, T]: 1 for tokens, 0 for padding. With `longest`, the greatest length, constants do not depend on the length.
Tensor token_mask(Tensor lengths, int64_t length, DType dtype, int64_t longest = 0);
// The first of a sequence's states [B, T, D], and their mean over its tokens: [B, D].
Tensor first_state(Tensor states);
Tensor mean_state(Tensor states, Tensor lengths, int64_t heads);

// How token states become one. kRootMean: the mean times the square root of the number of tokens.
enum class Pooling { kMean, kFirst, kLast, kMax, kRootMean };

// [B, D], of length 1 if `normalized` (Reimers & Gurevych 2019).
Tensor sentence_embeddings(
    TextEncoder& encoder, Tensor tokens, Tensor lengths, bool normalized = true, Pooling pooling = Pooling::kMean);

// What is learned of examples of several texts; distances are cosines but for kTriplet.
struct EmbeddingLoss {
  enum class Kind {
    kInBatch,  // cross-entropy of a text's partner among the batch's other non-first texts
    kTriplet,  // max(0, distance to the partner - distance to the third text + margin)
    kCosent,   // pairs with a greater score have a greater cosine (log-sum-exp over pairs of pairs)
    kCosine,   // squared difference of cosine and score
  };
  Kind kind = Kind::kInBatch;
  int64_t parts = 2;  // texts of an example; 1: inference only
  double scale = 20, margin = 5;
  std::vector<int64_t> dimensions = {};  // sums the losses of the first so many numbers; empty: of all numbers
  bool cached = false;                   // the batch is part of a larger one and receives its gradients

  bool has_labels() const { return kind == Kind::kCosent || kind == Kind::kCosine; }
  bool is_of_batch() const { return kind == Kind::kInBatch || kind == Kind::kCosent; }  // examples depend on each other
};

// Embeddings [parts * batch, D]: all first texts before all second ones. Inputs f32 [batch]: "weights", 0 for rows left
// out; with labels "labels".
Loss embedding_loss_of(const EmbeddingLoss& options, Trace& trace, Tensor embeddings, int64_t batch);

// The encoder without a task. The pooler is part of the files and unused.
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

// The model's own loss of `batch` examples, in the order of embedding_loss_of(). If cached, its inputs are "gradients"
// f32 [parts * batch, D] of the larger batch's loss and "share" f32 [2], this batch's loss and number of examples.
Loss embedding_loss(TextClassifier& model, Trace& trace, int64_t batch, int64_t length, bool types = false);
// Only embeds so many texts: output "logits".
Loss embedding_alone(TextClassifier& model, Trace& trace, int64_t texts, int64_t length);
void leave_dropout_out(Module& model);  // for further training
}  // namespace linnet
