// Families of text encoders.
#pragma once
#include "models/families/family.h"
#include "models/modules/text_encoder.h"

namespace linnet {
using EncoderFamily = ConfiguredFamily<EncoderConfig, FamilyKind::kEncoder>;
inline std::shared_ptr<const Family> encoder_family(FamilyTable<EncoderConfig> table) {
  return std::make_shared<EncoderFamily>(std::move(table));
}

// Architectures name + "Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification",
// "ForQuestionAnswering".
std::vector<Architecture> encoder_architectures(
    const std::string& name, const std::vector<ModelHead>& heads = {ModelHead::kNone, ModelHead::kTokens,
                                 ModelHead::kClasses, ModelHead::kTokenClasses, ModelHead::kSpans});
// kNone: SentenceEncoder; kTokens: MaskedLanguageModel; kClasses: SequenceClassifier; others: TokenClassifier.
std::unique_ptr<Module> make_model(const EncoderConfig& config, const ConfigFile& file, ModelHead head);

// Keys of BERT and RoBERTa but for positions and padding, and `more`. `positions`: "position_embedding_type".
Fields<EncoderConfig> bert_fields(const Fields<EncoderConfig>& more = {}, const char* positions = "absolute");
// "max_position_embeddings" and "pad_token_id", with defaults.
Field<EncoderConfig> lengths_field(int longest, int pad_token);
Field<EncoderConfig> head_activation_field();  // the masked head has the layers' activation
// "max_position_embeddings" of a position table whose rows up to the padding token's id are unused and left out.
Field<EncoderConfig> positions_after_padding();

// "rope_parameters", without scaling: rotary positions of all layers.
Field<EncoderConfig> rotary_layers_field(double standard_theta);

// What a family's files call the parts of an encoder.
struct EncoderNames {
  std::string prefix;                       // of all but heads, which files of a bare model may leave out
  std::string layers = "encoder.layer.*.";  // behind the prefix
  // Names that differ from BERT's: layer parameters begin with "*.", their file names have '^' for the prefix.
  NamePatterns own = {};
  // Heads: of masked tokens, with the word embedding as output layer; of classes; the pooler of a bare model.
  std::string masked_dense = "cls.predictions.transform.dense", masked_norm = "cls.predictions.transform.LayerNorm",
              masked_bias = "cls.predictions.bias";
  // Other names of the word embedding (.weight) and of the bias (.bias).
  std::vector<std::string> masked_copies = {"cls.predictions.decoder.weight", "cls.predictions.decoder.bias"};
  std::string class_dense = "^pooler.dense", class_norm = "", classifier = "classifier", pooler = "^pooler.dense";
  std::vector<std::string> heads = {};  // patterns of heads that other architectures of the family have
  std::vector<std::string> computed = {"embeddings.position_ids", "embeddings.token_type_ids"};
  std::vector<std::pair<std::string, std::string>> old_endings = {};

  NameTable operator()(const EncoderConfig& config, ModelHead head, const Module& model) const;
};

// A config.json for new_pretrained().
ConfigFile encoder_config_file(const std::string& model_type, const EncoderConfig& config, ModelHead head);
}  // namespace linnet
