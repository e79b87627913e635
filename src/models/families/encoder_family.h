// Families of text encoders: a table of config.json's keys, a table of tensors, and the options that no key says.
#pragma once
#include "models/families/family.h"
#include "models/modules/text_encoder.h"

namespace linnet {

using EncoderFamily = ConfiguredFamily<EncoderConfig>;

// kNone: a SentenceEncoder; kTokens: a MaskedLanguageModel; kClasses: a SequenceClassifier;
// kTokenClasses and kSpans: a TokenClassifier.
std::unique_ptr<Module> make_encoder(const EncoderConfig& config, const ConfigFile& file, ModelHead head);

// What BERT and RoBERTa have in common: keys but for positions and padding, and the tensors under `prefix` ("bert.")
// but for those of heads.
Fields<EncoderConfig> bert_fields();
// The linear layer of kTokenClasses or kSpans, which families call alike; other heads' as tensors to be left out.
void add_token_head(NameTable& table, ModelHead head);
NameTable bert_layer_names(const EncoderConfig& config, const std::string& prefix);

// What new_pretrained() takes for a model that was made here.
ConfigFile encoder_config_file(const std::string& model_type, const EncoderConfig& config, ModelHead head);

}  // namespace linnet
