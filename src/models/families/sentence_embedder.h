// Sentences to vectors with a BERT encoder, as sentence-transformers does: mean of the tokens' states, of length 1.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "models/families/lora.h"
#include "models/families/pretrained.h"
#include "models/nn/weight_quantization.h"

namespace linnet {

// What a sentence-transformers folder says of pooling. A plain BERT folder has the defaults.
struct SentencePooling {
  bool normalized = true;
  bool first = false;                   // the first token's state, in place of the mean
  std::vector<std::string> dense = {};  // folders of linear layers that follow
  int64_t max_tokens = 0;               // longer sentences are cut; 0: the model's positions
};
// modules.json, 1_Pooling/config.json and sentence_bert_config.json. User error naming file and key for another pooling
// than the mean and the first token's state, or for modules after it other than linear layers and normalization.
SentencePooling read_sentence_pooling(const std::string& folder);

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
