// Several encoder-decoders as one model, whose next-token probabilities are the mean of theirs. For generation and
// evaluation; the same model twice gives the logits of the one, bit for bit.
#pragma once
#include <memory>
#include <vector>
#include "models/modules/encoder_decoder.h"

namespace linnet {

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
