// Families of encoder-decoders with the layers of Transformer: a table of config.json's keys, a table of tensors, and
// the options that no key says.
#pragma once
#include "models/families/family.h"
#include "models/modules/transformer.h"

namespace linnet {

using TransformerFamily = ConfiguredFamily<TransformerConfig>;

std::unique_ptr<Module> make_transformer(const TransformerConfig& config, const ConfigFile& file, ModelHead head);
// All of these families call their tensors alike.
NameTable transformer_names(const TransformerConfig& config, ModelHead head);

// The keys that they share, but for vocabularies. Values of absent keys differ.
Fields<TransformerConfig> transformer_fields(Activation activation = Activation::kGelu, bool scaled = false);
// "vocab_size", of both sides.
Field<TransformerConfig> shared_vocabulary();
// A size that both sides must have.
Field<TransformerConfig> same_in_both(const char* encoder, const char* decoder, int64_t TransformerConfig::*member);

}  // namespace linnet
