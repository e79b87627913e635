// Embeds sentences as sentence-transformers does: pools the states of the tokens.
#pragma once
#include "models/families/lora.h"
#include "models/families/pretrained.h"
#include "models/modules/text_encoder.h"
#include "models/nn/forward.h"

namespace linnet {
struct DenseLayer {
  std::string folder;  // within the model's: "2_Dense"
  int64_t in, out;
  bool bias;
  std::optional<Activation> activation;  // behind it
};
struct SentencePooling {
  bool normalized = true;
  Pooling kind = Pooling::kMean;
  std::vector<DenseLayer> dense = {};  // after the pooling
  int64_t max_tokens = 0;              // longer sentences are cut; 0: the model's positions
  int64_t dimensions = 0;              // of an embedding, the rest is cut off; 0: all
};
// Reads modules.json, 1_Pooling/config.json and the configurations of sentence-transformers and of the tokenizer. User
// error naming file and key for other poolings, several, or later modules but linear layers and then a normalization.
SentencePooling read_sentence_pooling(const std::string& folder);
// The folder's files that say so, by name within it; none of a plain BERT folder.
std::map<std::string, std::string> sentence_files(const std::string& folder);
// Those of an encoder's folder; if it has none, written from its pooling.
std::map<std::string, std::string> sentence_files(const PretrainedModel& model);
// Gives a SentenceEncoder the folder's pooling, and the linear layers behind it, whose weights are in its subfolders.
void take_pooling(PretrainedModel& model, const std::string& folder);

// Prefixes of texts by kind ("query": "search_query: "), from config_sentence_transformers.json.
struct SentencePrompts {
  std::map<std::string, std::string> prompts = {};
  std::string usual = {};                         // the name of the default; "": none
  bool included = true;                           // in what is pooled
  std::string of(const std::string& name) const;  // "": the default; user error for an unknown name
};
SentencePrompts read_sentence_prompts(const std::string& folder);

void normalize_rows(std::span<float> rows, size_t width);  // to length 1; zeros stay
// Keeps the first `dimensions` numbers of each row (Matryoshka embeddings), of length 1 if `normalized`.
void shorten_rows(std::vector<float>& rows, size_t width, size_t dimensions, bool normalized);

class SentenceEmbedder {
 public:
  // Reads a BERT folder and any adapters, and plans batches of 1, 4 and `rows` sentences of doubling lengths.
  // Options without effect: pack_weights.
  explicit SentenceEmbedder(const std::string& folder, int64_t rows = 16, const ForwardOptions& options = {},
      const std::vector<AdapterFolder>& adapters = {});
  // For an open model; `load` reads its weights, if its folder does not have them.
  SentenceEmbedder(PretrainedModel model, const SentencePooling& pooling, int64_t rows, ForwardOptions options,
      const LoadWeights& load = {});

  int64_t width() const { return width_; }  // numbers of an embedding, behind linear layers that modules.json names
  bool is_normalized() const { return normalized_; }
  int64_t vocab_size() const { return encoder_.config.vocab_size; }
  int64_t max_tokens() const { return max_tokens_; }  // of a sentence, with [CLS] and [SEP]
  // The padded length of a sentence, unless a longer one is beside it.
  int64_t padded_length(int64_t tokens) const;
  // One row of width() numbers for each sentence, in order. Sentences are token ids with [CLS] and [SEP]; user error if
  // longer than max_tokens(). Sorted by length, to save padding. Bits depend on the padded length alone.
  std::vector<float> embed(std::span<const std::vector<int32_t>> sentences);

 private:
  PretrainedModel model_;
  TextEncoder& encoder_;
  int64_t width_, max_tokens_;
  bool normalized_;
  // Of planned batches, ascending: one plan per length and number of rows.
  std::vector<int64_t> rows_, lengths_;
  std::unique_ptr<Forward> forward_;
};
}  // namespace linnet
