// What training and generation need of an encoder-decoder: Transformer, T5, and any model like them.
#pragma once
#include <memory>
#include <vector>
#include "models/modules/key_value_cache.h"
#include "models/nn/loss.h"
#include "models/nn/trace.h"

namespace linnet {

// Target positions `past`, past + 1, ... of a batch, for decoders whose caller keeps earlier keys and values.
struct TargetRows {
  Tensor tokens;  // i32 [B, T]
  int64_t past = 0;
  Tensor source_lengths;       // i32, of each memory
  SplitProjection split = {};  // undefined: nothing came before
  MemoryKeys memory;           // what the layers' attention to the source reads
  // One token in each row (T = 1), at a position of its own: the positions i32 [B, 1] or [1, 1], the keys of the split
  // and how many of them each row sees, i32 [B].
  Tensor positions = {}, lengths = {};
  int64_t keys = 0;

  AttentionContext context() const {
    return {.lengths = lengths,
            .causal = !positions.defined(),
            .split = split,
            .memory = memory,
            .memory_lengths = source_lengths};
  }
};

// One step of decoding: tokens i32 [R], each at its own step.position.
TargetRows step_targets(Tensor tokens, const DecodeStep& step);

struct EncoderDecoder : Module {
  virtual int64_t output_vocab_size() const = 0;
  virtual int64_t max_length() const = 0;  // the most positions a source or a target may have
  virtual const AttentionConfig& decoder_attention() const = 0;
  int64_t width() const { return decoder_attention().width; }

  // source i32 [B, S], lengths i32 [B] -> [B, S, D]
  virtual Tensor encode(Tensor source, Tensor source_lengths) = 0;
  virtual Tensor decode(const TargetRows& rows) = 0;  // logits [B, T, V]

  // The sum of cross-entropies of the decoder's predictions for targets i32 [B, T], of which negative ones are left
  // out. target_in i32 [B, T]: begin, then the target without its last token.
  virtual Tensor loss(Tensor source, Tensor source_lengths, Tensor target_in, Tensor target_lengths, Tensor targets,
                      double label_smoothing) = 0;

  // The logits [B, T, V] of those predictions, whole in memory.
  virtual Tensor target_logits(Tensor source, Tensor source_lengths, Tensor target_in, Tensor target_lengths) = 0;

  // For generation: encodes, and leaves the keys and values that the decoder attends to in row memory.rows[b] of its
  // states, for row b of source i32 [B, S], S <= memory.max_length.
  virtual void prefill(Tensor source, Tensor source_lengths, const CacheSlots& memory) = 0;
};

// The loss of a translation batch: token cross-entropy of the decoder's predictions.
//
// Inputs of the graph, all i32: "source" [B, S], "source_lengths" [B], "target_in" [B, T] (begin, then the target),
// "target_out" [B, T] (the target, then end), "target_lengths" [B]. Tokens at and past a length count for nothing.
struct TranslationSizes {
  int64_t batch, source_length, target_length;  // B, S, T
};

Loss translation_loss(EncoderDecoder& model, Trace& trace, const TranslationSizes& sizes, double label_smoothing);

// Several encoder-decoders as one model, whose next-token probabilities are the mean of theirs. For generation and
// evaluation; the same model twice gives the logits of the one, bit for bit.
struct Ensemble : EncoderDecoder {
  // Adopts the members (Module::adopt): the parameters of member i are named "<i>.<name>". They share the vocabularies
  // of source and target.
  explicit Ensemble(std::vector<std::shared_ptr<EncoderDecoder>> members);

  int64_t output_vocab_size() const override { return members_.front()->output_vocab_size(); }
  int64_t max_length() const override;
  // Of the first member. It has no encoder of its own: encode() is an internal error.
  const AttentionConfig& decoder_attention() const override { return members_.front()->decoder_attention(); }
  Tensor encode(Tensor source, Tensor source_lengths) override;
  Tensor decode(const TargetRows& rows) override;
  Tensor target_logits(Tensor source, Tensor source_lengths, Tensor target_in, Tensor target_lengths) override;
  Tensor loss(Tensor source, Tensor source_lengths, Tensor target_in, Tensor target_lengths, Tensor targets,
              double label_smoothing) override;
  void prefill(Tensor source, Tensor source_lengths, const CacheSlots& memory) override;

 private:
  std::vector<std::shared_ptr<EncoderDecoder>> members_;
};

}  // namespace linnet
