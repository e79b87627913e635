// Sentences to vectors with a BERT encoder, as sentence-transformers does: a pooling of the tokens' states, of
// length 1.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>
#include "models/families/lora.h"
#include "models/families/pretrained.h"
#include "models/modules/text_encoder.h"
#include "models/nn/weight_quantization.h"

namespace linnet {

// What a sentence-transformers folder says of pooling. A plain BERT folder has the defaults.
struct DenseLayer {
  std::string folder;  // within the model's: "2_Dense"
  int64_t in, out;
  bool bias;
  std::optional<Activation> activation;  // behind it
};
struct SentencePooling {
  bool normalized = true;
  Pooling kind = Pooling::kMean;
  std::vector<DenseLayer> dense = {};  // that follow
  int64_t max_tokens = 0;              // longer sentences are cut; 0: the model's positions
};
// modules.json, 1_Pooling/config.json and sentence_bert_config.json. User error naming file and key for another pooling
// or several, or for modules after it other than linear layers and normalization.
SentencePooling read_sentence_pooling(const std::string& folder);
// The files of a folder that say so, by their names within it; none of a plain BERT folder.
std::map<std::string, std::string> sentence_files(const std::string& folder);
// Those of an encoder's folder, or as its pooling says where the folder has none.
std::map<std::string, std::string> sentence_files(const PretrainedModel& model);
// Gives a SentenceEncoder the pooling that a folder says, and the linear layers behind it, whose weights are in folders
// within the model's.
void take_pooling(PretrainedModel& model, const std::string& folder);

// What texts of a kind begin with ("query": "search_query: "), as config_sentence_transformers.json says.
struct SentencePrompts {
  std::map<std::string, std::string> prompts = {};
  std::string usual = {};  // the name of the one that texts have where nobody names one; "": none
  bool included = true;    // in what is pooled
  // "": the usual one. User error for a name that the folder does not have.
  std::string of(const std::string& name) const;
};
SentencePrompts read_sentence_prompts(const std::string& folder);

// Scales rows of `width` numbers to the length 1, but zeros.
void normalize_rows(std::span<float> rows, size_t width);
// Keeps the first `dimensions` numbers of each row (Matryoshka embeddings), of length 1 if `normalized`.
void shorten_rows(std::vector<float>& rows, size_t width, size_t dimensions, bool normalized);

class SentenceEmbedder {
 public:
  // Reads a BERT folder, with the adapters of another if any, and plans batches of 1, 4 and `rows` sentences, of
  // doubling lengths. threads 0: all there are.
  explicit SentenceEmbedder(const std::string& folder, int64_t rows = 16, int threads = 0,
                            const WeightQuantization& quantization = {},
                            const std::vector<AdapterFolder>& adapters = {});
  // A model that is open already; `load` reads its weights, if its folder does not have them.
  using LoadWeights = std::function<void(const ParameterLayout&, const ParameterTarget&)>;
  SentenceEmbedder(PretrainedModel model, const SentencePooling& pooling, int64_t rows, int threads,
                   const WeightQuantization& quantization, const LoadWeights& load = {});
  ~SentenceEmbedder();

  int64_t width() const;  // numbers of an embedding, behind linear layers that modules.json names
  bool is_normalized() const;
  int64_t vocab_size() const;
  int64_t max_tokens() const;  // of a sentence, with [CLS] and [SEP]
  // What a sentence of so many tokens is padded to where no longer one is beside it.
  int64_t padded_length(int64_t tokens) const;
  // One row of width() numbers for each sentence, in order. Sentences are token ids, [CLS] and [SEP] included; what is
  // longer than max_tokens() must have been cut (user error). Sorted by length inside, so that little is padding. A
  // sentence's bits follow from what it is padded to, not from the number of sentences.
  std::vector<float> embed(std::span<const std::vector<int32_t>> sentences);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace linnet
