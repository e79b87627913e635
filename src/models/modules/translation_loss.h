// The loss of a translation batch: token cross-entropy of the decoder's predictions.
//
// Inputs of the graph, all i32: "source" [B, S], "source_lengths" [B], "target_in" [B, T] (begin, then the target),
// "target_out" [B, T] (the target, then end), "target_lengths" [B]. Tokens at and past a length count for nothing.
#pragma once
#include "models/modules/encoder_decoder.h"
#include "models/nn/loss.h"
#include "models/nn/trace.h"

namespace linnet {

struct TranslationSizes {
  int64_t batch, source_length, target_length;  // B, S, T
};

Loss translation_loss(EncoderDecoder& model, Trace& trace, const TranslationSizes& sizes, double label_smoothing);

}  // namespace linnet
