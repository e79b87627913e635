// The interface of encoder-decoders for training and generation.
#pragma once
#include "models/modules/blocks.h"
#include "models/nn/loss.h"
#include "models/nn/trace.h"

namespace linnet {
// Target positions `past`, past + 1, ... of a batch, for decoding with kept keys and values.
struct TargetRows {
  Tensor tokens;  // i32 [B, T]
  int64_t past = 0;
  Tensor source_lengths;       // i32, of each memory
  SplitProjection split = {};  // undefined: no earlier positions
  MemoryKeys memory;           // of the source
  // For T = 1: positions i32 [B, 1] or [1, 1]; `keys` of the split, of which each row sees lengths i32 [B].
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

TargetRows step_targets(Tensor tokens, const DecodeStep& step);  // tokens i32 [R]

struct EncoderDecoder : Module {
  virtual int64_t output_vocab_size() const = 0;
  virtual int64_t max_length() const = 0;  // the most positions a source or a target may have
  virtual ModuleList<DecoderLayer>& decoder_layers() = 0;
  const LayerConfig& decoder_attention() { return decoder_layers()[0].self_attn.config; }
  int64_t width() { return decoder_attention().width; }

  // source i32 [B, S], lengths i32 [B] -> [B, S, D]
  virtual Tensor encode(Tensor source, Tensor source_lengths) = 0;
  virtual Tensor decode(const TargetRows& rows) = 0;  // logits [B, T, V]

  // The summed cross-entropy of the decoder's predictions for targets i32 [B, T]; negative ones are left out. target_in
  // i32 [B, T]: begin, then the target without its last token.
  virtual Tensor loss(Tensor source, Tensor source_lengths, Tensor target_in, Tensor target_lengths, Tensor targets,
      double label_smoothing) = 0;

  // The logits [B, T, V] of those predictions.
  virtual Tensor target_logits(Tensor source, Tensor source_lengths, Tensor target_in, Tensor target_lengths) = 0;

  // For generation: encodes source i32 [B, S], S <= memory.max_length, and stores the decoder's keys and values of row
  // b in row memory.rows[b] of its states.
  virtual void prefill(Tensor source, Tensor source_lengths, const CacheSlots& memory);
};

// Token cross-entropy. Inputs, all i32: "source" [B, S], "source_lengths" [B], "target_in" [B, T] (begin, then the
// target), "target_out" [B, T] (the target, then end), "target_lengths" [B]. Tokens from a length on are ignored.
struct TranslationSizes {
  int64_t batch, source_length, target_length;  // B, S, T
};

Loss translation_loss(EncoderDecoder& model, Trace& trace, const TranslationSizes& sizes, double label_smoothing);

// Averages the next-token probabilities of its members. The same model twice gives the logits of one, bit for bit.
struct Ensemble : EncoderDecoder {
  // Adopts the members (Module::adopt): parameters of member i are named "<i>.<name>". Members share both vocabularies.
  explicit Ensemble(std::vector<std::shared_ptr<EncoderDecoder>> members);

  int64_t output_vocab_size() const override { return members_.front()->output_vocab_size(); }
  int64_t max_length() const override;
  // Of the first member. encode() is an internal error: each member has its own encoder.
  ModuleList<DecoderLayer>& decoder_layers() override { return members_.front()->decoder_layers(); }
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
