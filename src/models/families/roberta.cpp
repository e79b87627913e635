// RoBERTa (Liu et al. 2019): BERT's layers, usually with one type of tokens; positions that are counted from behind the
// padding token's id; other heads.
#include "models/families/encoder_family.h"

namespace linnet {
namespace {

// The first rows of the position table, up to that of the padding token's id, are for padding and not read here.
Field<EncoderConfig> positions() {
  constexpr const char* kKey = "max_position_embeddings";
  return {
      [=](const ConfigFile& file, EncoderConfig& config) {
        if (config.pad_token < 0 || config.pad_token > 1000) file.fail("\"pad_token_id\" is out of range");
        config.first_position = config.pad_token + 1;
        config.max_seq_len = integer_in(file, kKey, {config.first_position + 1, kSizes.most}) - config.first_position;
      },
      [=](const EncoderConfig& config, ConfigFile& file) {
        file.set(kKey, config.max_seq_len + config.pad_token + 1);
      }};
}

NameTable names(const EncoderConfig& config, ModelHead head) {
  NameTable table = bert_layer_names(config, "roberta.");
  const auto add_head = [&](const std::string& theirs, const std::string& ours, TensorRole role) {
    table.add_linear(theirs, ours, TensorForm::kSame, role);
  };
  const std::string tokens = "lm_head.", classes = "classifier.";
  if (head == ModelHead::kTokens) {
    add_head(tokens + "dense", "head.dense", TensorRole::kHead);
    add_head(tokens + "layer_norm", "head.norm", TensorRole::kHead);
    table.add(tokens + "bias", "head.bias", TensorForm::kSame, TensorRole::kHead);
    table.add_copy(tokens + "decoder.weight", "bert.words.weight");
    table.add_copy(tokens + "decoder.bias", "head.bias");
    table.other_heads = {"pooler.*", classes + "*"};
  } else if (head == ModelHead::kClasses) {
    add_head(classes + "dense", "pooler.dense", TensorRole::kHead);
    add_head(classes + "out_proj", "classifier", TensorRole::kHead);
    table.other_heads = {"pooler.*", tokens + "*"};
  } else if (head == ModelHead::kTokenClasses || head == ModelHead::kSpans) {
    table.other_heads = {"pooler.*", tokens + "*"};
    add_token_head(table, head);
  } else {
    add_head("roberta.pooler.dense", "pooler.dense", TensorRole::kOptional);
    table.other_heads = {tokens + "*", classes + "*"};
  }
  return table;
}

EncoderConfig roberta_kind() {
  EncoderConfig config;
  config.pooler_dropout = true;
  return config;
}

Fields<EncoderConfig> fields() {
  return bert_fields() + Fields<EncoderConfig>{field("pad_token_id", &EncoderConfig::pad_token, kIds, 1), positions()};
}

}  // namespace

extern const EncoderFamily kRobertaFamily;
const EncoderFamily kRobertaFamily("roberta", FamilyKind::kEncoder,
                                   {{"RobertaModel", ModelHead::kNone},
                                    {"RobertaForMaskedLM", ModelHead::kTokens},
                                    {"RobertaForSequenceClassification", ModelHead::kClasses},
                                    {"RobertaForTokenClassification", ModelHead::kTokenClasses},
                                    {"RobertaForQuestionAnswering", ModelHead::kSpans}},
                                   roberta_kind(), fields(), make_encoder, names);

}  // namespace linnet
