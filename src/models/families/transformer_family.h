// Families of encoder-decoders with the layers of Transformer.
#pragma once
#include "models/families/family.h"
#include "models/modules/t5.h"
#include "models/modules/transformer.h"
#include "models/nn/parameter_layout.h"

namespace linnet {
using TransformerFamily = ConfiguredFamily<TransformerConfig, FamilyKind::kEncoderDecoder>;
inline std::shared_ptr<const Family> transformer_family(FamilyTable<TransformerConfig> table) {
  return std::make_shared<TransformerFamily>(std::move(table));
}

std::unique_ptr<Module> make_model(const TransformerConfig& config, const ConfigFile& file, ModelHead head);
// These families share tensor names.
NameTable transformer_names(const TransformerConfig& config, ModelHead head, const Module& model);

// The shared keys, but for vocabularies, with defaults of a family.
Fields<TransformerConfig> transformer_fields(Activation activation = Activation::kGelu, bool scaled = false);
Field<TransformerConfig> shared_vocabulary();  // "vocab_size", of both sides
// A size that both sides must share.
Field<TransformerConfig> same_in_both(const char* encoder, const char* decoder, int64_t TransformerConfig::*member);

// Marian's layout (OPUS-MT), for new_pretrained(). Decoding begins with "decoder_start_token_id", the padding token.
// User error for pre-LN, an untied head and alternating positions, which Marian does not have.
ConfigFile marian_config_file(const TransformerConfig& config, int64_t pad_token, int64_t end_token);
// For zero_start: gives the padding token a zero embedding, and a bias by which it is never generated. So programs that
// look it up, and those that leave it out, compute the same.
void clear_start_embedding(const TransformerConfig& config, const ParameterLayout& layout, float* parameters);

using T5Family = ConfiguredFamily<T5Config, FamilyKind::kEncoderDecoder>;
std::unique_ptr<Module> make_model(const T5Config& config, const ConfigFile& file, ModelHead head);
}  // namespace linnet
