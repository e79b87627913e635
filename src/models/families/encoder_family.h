// Families of text encoders: a table of config.json's keys, a table of tensors, and the options that no key says.
#pragma once
#include "models/families/family.h"
#include "models/modules/text_encoder.h"

namespace linnet {

using EncoderFamily = ConfiguredFamily<EncoderConfig>;

// Architectures name + "Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification" and
// "ForQuestionAnswering".
std::vector<Architecture> encoder_architectures(const std::string& name);
// kNone: a SentenceEncoder; kTokens: a MaskedLanguageModel; kClasses: a SequenceClassifier;
// kTokenClasses and kSpans: a TokenClassifier.
std::unique_ptr<Module> make_encoder(const EncoderConfig& config, const ConfigFile& file, ModelHead head);

// What BERT and RoBERTa have in common: keys but for positions and padding. `positions`: "position_embedding_type".
Fields<EncoderConfig> bert_fields(const char* positions = "absolute");
// "max_position_embeddings" where the position table's first rows, up to that of the padding token's id, are for
// padding. They are not read here.
Field<EncoderConfig> positions_after_padding();

// "rope_parameters", without scaling: rotary positions of all layers.
Field<EncoderConfig> rotary_layers_field(double standard_theta);

// What a family's files call the parts of an encoder; defaults are BERT's. Parts that the configuration does not have
// are not read.
struct EncoderNames {
  std::string prefix;  // of all but heads, which files of a bare model may leave out
  std::string words = "embeddings.word_embeddings", positions = "embeddings.position_embeddings",
              types = "embeddings.token_type_embeddings", embedding_norm = "embeddings.LayerNorm";
  std::string projection = "", distance_bias = "", final_norm = "", words_copy = "";
  std::string distances = "", distance_norm = "", convolution = "", convolution_norm = "";
  std::string layers = "encoder.layer.";  // followed by the layer's number and "."
  std::vector<std::string> queries_keys_values = {"attention.self.query", "attention.self.key", "attention.self.value"};
  std::string linear3 = "";  // of a gate
  std::string query_norm = "", key_norm = "", result_norm1 = "", result_norm2 = "";
  std::string output = "attention.output.dense", norm1 = "attention.output.LayerNorm", linear1 = "intermediate.dense",
              linear2 = "output.dense", norm2 = "output.LayerNorm";
  // Heads, whose names have no prefix: of masked tokens (its output layer is the word embedding), of classes, and the
  // pooler of a bare model (with the prefix).
  std::string masked_dense = "cls.predictions.transform.dense", masked_norm = "cls.predictions.transform.LayerNorm",
              masked_bias = "cls.predictions.bias";
  // Of the word embedding (.weight) and of the bias (.bias).
  std::vector<std::string> masked_copies = {"cls.predictions.decoder.weight", "cls.predictions.decoder.bias"};
  std::string class_dense = "pooler.dense", class_norm = "", classifier = "classifier", pooler = "pooler.dense";
  bool prefixed_class_dense = false;    // the dense layer under the classifier is the bare model's pooler
  std::vector<std::string> heads = {};  // patterns of heads that other architectures of the family have
  std::vector<std::string> computed = {"embeddings.position_ids", "embeddings.token_type_ids"};
};
NameTable encoder_names(const EncoderConfig& config, ModelHead head, const EncoderNames& names);

// What new_pretrained() takes for a model that was made here.
ConfigFile encoder_config_file(const std::string& model_type, const EncoderConfig& config, ModelHead head);

}  // namespace linnet
