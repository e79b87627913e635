// A decoder of GPT-2's kind (Radford et al. 2019): pre-LN layers under a causal mask, learned positions, the output
// layer tied to the token embedding. Defaults are those of the 124M model: 124,439,808 parameters.
#pragma once
#include "models/modules/blocks.h"
#include "models/modules/causal_model.h"

namespace linnet {

struct GptConfig {
  int64_t vocab_size = 50257, max_seq_len = 1024;
  int64_t width = 768, heads = 12, layers = 12;
  double dropout = 0;  // of embeddings, of attention probabilities and of each sub-layer's result...
  std::optional<double> embedding_dropout = {}, attention_dropout = {};  // ...where these do not say otherwise
  int64_t hidden = 0;                                                    // of the feed-forward; 0: 4 width
  Activation activation = Activation::kGeluTanh;
  double epsilon = 1e-5;     // of the norms
  bool affine_norms = true;  // norms have weight and bias
  bool tied_head = true;     // the output layer is the token embedding
};

struct Gpt : CausalModel {
  explicit Gpt(const GptConfig& config);
  // tokens i32 [B, T], T <= max_seq_len -> the last layer's normalized states [B, T, D]
  Tensor operator()(Tensor tokens) { return hidden({tokens}); }

  int64_t vocab_size() const override { return config.vocab_size; }
  int64_t max_length() const override { return config.max_seq_len; }
  Tensor hidden(const TokenRows& rows) override;
  Tensor head_weight() override { return head ? head->tensor() : tokens.weight.tensor(); }

  const GptConfig config;
  Embedding tokens, positions;
  Dropout dropout;
  ModuleList<EncoderLayer> layers;
  LayerNorm norm;
  std::optional<Parameter> head;  // absent when tied

 private:
  Tensor embed(Tensor ids);  // i32 [B, T], from position 0
};

// Next-token loss. Inputs of the graph: "tokens", "targets" i32 [batch, length]; a negative target is left out.
Loss gpt_loss(Gpt& model, Trace& trace, int64_t batch, int64_t length);

}  // namespace linnet
