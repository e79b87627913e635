// Families of text encoders: a table of config.json's keys, a table of tensors, and the options that no key says.
#pragma once
#include "models/families/family.h"
#include "models/modules/text_encoder.h"

namespace linnet {

using EncoderFamily = ConfiguredFamily<EncoderConfig, FamilyKind::kEncoder>;
inline std::shared_ptr<const Family> encoder_family(FamilyTable<EncoderConfig> table) {
  return std::make_shared<EncoderFamily>(std::move(table));
}

// Architectures with these heads: name + "Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification"
// and "ForQuestionAnswering".
std::vector<Architecture> encoder_architectures(const std::string& name,
                                                const std::vector<ModelHead>& heads = {
                                                    ModelHead::kNone, ModelHead::kTokens, ModelHead::kClasses,
                                                    ModelHead::kTokenClasses, ModelHead::kSpans});
// kNone: a SentenceEncoder; kTokens: a MaskedLanguageModel; kClasses: a SequenceClassifier;
// kTokenClasses and kSpans: a TokenClassifier.
std::unique_ptr<Module> make_model(const EncoderConfig& config, const ConfigFile& file, ModelHead head);

// What BERT and RoBERTa have in common, keys but for positions and padding; and `more`. `positions`:
// "position_embedding_type".
Fields<EncoderConfig> bert_fields(const Fields<EncoderConfig>& more = {}, const char* positions = "absolute");
// "max_position_embeddings" and "pad_token_id", with the values of absent keys.
Field<EncoderConfig> lengths_field(int longest, int pad_token);
// The masked head's activation is that of the layers, in both directions.
Field<EncoderConfig> head_activation_field();
// "max_position_embeddings" where the position table's first rows, up to that of the padding token's id, are for
// padding. They are not read here.
Field<EncoderConfig> positions_after_padding();

// "rope_parameters", without scaling: rotary positions of all layers.
Field<EncoderConfig> rotary_layers_field(double standard_theta);

// What a family's files call the parts of an encoder.
struct EncoderNames {
  std::string prefix;                       // of all but heads, which files of a bare model may leave out
  std::string layers = "encoder.layer.*.";  // behind the prefix
  // Those that differ from BERT's: parameters of layers begin with "*.", names of theirs with '^' for the prefix.
  NamePatterns own = {};
  // Heads: of masked tokens, whose output layer is the word embedding; of classes; and the pooler of a bare model.
  std::string masked_dense = "cls.predictions.transform.dense", masked_norm = "cls.predictions.transform.LayerNorm",
              masked_bias = "cls.predictions.bias";
  // Of the word embedding (.weight) and of the bias (.bias).
  std::vector<std::string> masked_copies = {"cls.predictions.decoder.weight", "cls.predictions.decoder.bias"};
  std::string class_dense = "pooler.dense", class_norm = "", classifier = "classifier", pooler = "^pooler.dense";
  std::vector<std::string> heads = {};  // patterns of heads that other architectures of the family have
  std::vector<std::string> computed = {"embeddings.position_ids", "embeddings.token_type_ids"};
  std::vector<std::pair<std::string, std::string>> old_endings = {};

  NameTable operator()(const EncoderConfig& config, ModelHead head, const Module& model) const;
};

// What new_pretrained() takes for a model that was made here.
ConfigFile encoder_config_file(const std::string& model_type, const EncoderConfig& config, ModelHead head);

}  // namespace linnet
