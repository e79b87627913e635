// Decoder-only language models of one's own: defined once, they train on whole sequences and write text token by token
// with a cache of keys and values.
//
//   struct Block : Module {
//     Tensor operator()(Tensor x) { x = x + attention(norm1(x)); return x + down(gelu(up(norm2(x)))); }
//     CausalAttention attention; ...
//   };
//   struct Writer : Decoder { Tensor states(Tensor tokens, Tensor positions) override { ... } ... };
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>
#include "linnet/attention.h"
#include "linnet/learner.h"
#include "linnet/loss.h"
#include "linnet/module.h"
#include "linnet/tracer.h"

namespace linnet {
// A model that gives each position's state from the tokens up to it. All mixing of positions is done by
// CausalAttention, or by MultiHeadAttention with a causal mask.
class Decoder : public Module {
 public:
  // tokens and positions i32 [B, T] -> states [B, T, D]. B and T differ from call to call.
  virtual Tensor states(Tensor tokens, Tensor positions) = 0;
  // The output layer [V, D]: logits are states head^T. Often the weight of the token embedding.
  virtual Tensor head() = 0;
  // V
  virtual int64_t vocab_size() const = 0;
  // The most positions of a text.
  virtual int64_t max_length() const = 0;
};

// The cross-entropy of the next tokens: inputs `tokens` and `targets` i32 [B, T] of the batch, as Dataset::text() has
// them. Evaluation has an output "logits" [B, T, V].
Loss decoder_loss(Decoder& decoder, Tracer& trace);

// How text is written.
struct GenerateOptions {
  // Tokens to write, an end token included.
  int64_t max_tokens = 100;
  // Logits are divided by it; 0: the likeliest token.
  double temperature = 1;
  // Only the k likeliest; 0: all.
  int64_t top_k = 0;
  // Only the fewest likeliest whose probabilities reach p (Holtzman et al. 2020).
  double top_p = 1;
  // Of the random draws.
  uint64_t seed = 1;
  // Tokens that end a text.
  std::vector<int32_t> ends = {};
};

// How a TextGenerator is planned.
struct GeneratorOptions {
  // Texts that are written at once.
  int64_t slots = 1;
  // Tokens of prompt and text; 0: the decoder's max_length().
  int64_t max_length = 0;
  // False: every token computes the whole sequence again.
  bool cache = true;
  // On the CPU, whether the logits of a position have the same bits with the cache and without, and with any number of
  // slots: products and attention then sum in an order that does not depend on the number of rows. False: long
  // prompts are read two to two and a half times as fast, and logits with and without the cache differ by rounding.
  bool same_bits = true;
  // 0: as many as the process may use.
  int threads = 0;
};

class PretrainedDecoder;

// Writes texts with a decoder. Its memory is planned and taken when it is constructed.
class TextGenerator {
 public:
  // The decoder outlives it. Throws Error(kUser) for options out of range.
  TextGenerator(Decoder& decoder, const GeneratorOptions& options = {});
  // The same for a folder's decoder, with the folder's weights until take() or load() gives others.
  TextGenerator(PretrainedDecoder& decoder, const GeneratorOptions& options = {});
  TextGenerator(const TextGenerator&) = delete;
  TextGenerator& operator=(const TextGenerator&) = delete;
  // Frees the memory.
  ~TextGenerator();

  // Takes the weights of a learner of the same decoder, or of a model that it is a part of.
  void take(Learner& learner);
  // Takes the weights that Learner::save() wrote.
  void load(const std::string& path);
  // Hears each token and the logits that it was picked from; false ends everything.
  using Listener = std::function<bool(int64_t row, int32_t token, std::span<const float> logits)>;
  // Continues each prompt; returns the new tokens without the end token. Throws Error(kUser) for a prompt that is
  // empty, too long or not of the vocabulary, and for options out of range.
  std::vector<std::vector<int32_t>> generate(const std::vector<std::vector<int32_t>>& prompts,
      const GenerateOptions& options = {}, const Listener& listener = {});

 private:
  struct State;
  std::unique_ptr<State> state_;
};
}  // namespace linnet
