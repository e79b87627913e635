// Marian's layout of the encoder-decoder Transformer (MarianMTModel: OPUS-MT): config.json to our configuration and
// back. Decoding begins with config.json's "decoder_start_token_id", which is the padding token.
#pragma once
#include "models/transformer.h"
#include "pretrained/config_file.h"

namespace linnet {

// User error naming the key when the file asks for what Transformer does not do.
TransformerConfig marian_config(const ConfigFile& config);
// What new_pretrained() takes for a model that was trained here. User error for what Marian does not have: norms before
// the sub-layers, a head of its own, alternating positions.
ConfigFile marian_config_file(const TransformerConfig& config, int64_t pad_token, int64_t end_token);

}  // namespace linnet
