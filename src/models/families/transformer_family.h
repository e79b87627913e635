// Families of encoder-decoders with the layers of Transformer: a table of config.json's keys, a table of tensors, and
// the options that no key says.
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
// All of these families call their tensors alike.
NameTable transformer_names(const TransformerConfig& config, ModelHead head, const Module& model);

// The keys that they share, but for vocabularies. Values of absent keys differ.
Fields<TransformerConfig> transformer_fields(Activation activation = Activation::kGelu, bool scaled = false);
// "vocab_size", of both sides.
Field<TransformerConfig> shared_vocabulary();
// A size that both sides must have.
Field<TransformerConfig> same_in_both(const char* encoder, const char* decoder, int64_t TransformerConfig::*member);

// Marian's layout of the encoder-decoder Transformer (MarianMTModel: OPUS-MT). Decoding begins with config.json's
// "decoder_start_token_id", which is the padding token.
// What new_pretrained() takes for a model that was trained here. User error for what Marian does not have: norms before
// the sub-layers, a head of its own, alternating positions.
ConfigFile marian_config_file(const TransformerConfig& config, int64_t pad_token, int64_t end_token);
// Of a model with zero_start: gives its padding token a zero embedding and a bias by which it is never written. So
// programs that look the first position up, and those that leave the padding token out, compute the same as this one.
void clear_start_embedding(const TransformerConfig& config, const ParameterLayout& layout, float* parameters);

// T5 (Raffel et al. 2020).
using T5Family = ConfiguredFamily<T5Config, FamilyKind::kEncoderDecoder>;
std::unique_ptr<Module> make_model(const T5Config& config, const ConfigFile& file, ModelHead head);

}  // namespace linnet
