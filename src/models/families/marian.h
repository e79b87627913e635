// Marian's layout of the encoder-decoder Transformer (MarianMTModel: OPUS-MT). Decoding begins with config.json's
// "decoder_start_token_id", which is the padding token.
#pragma once
#include "models/families/transformer_family.h"
#include "models/nn/parameter_layout.h"

namespace linnet {

extern const TransformerFamily kMarianFamily;

// What new_pretrained() takes for a model that was trained here. User error for what Marian does not have: norms before
// the sub-layers, a head of its own, alternating positions.
ConfigFile marian_config_file(const TransformerConfig& config, int64_t pad_token, int64_t end_token);
// Of a model with zero_start: gives its padding token a zero embedding and a bias by which it is never written. So
// programs that look the first position up, and those that leave the padding token out, compute the same as this one.
void clear_start_embedding(const TransformerConfig& config, const ParameterLayout& layout, float* parameters);

}  // namespace linnet
