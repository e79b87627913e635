// BERT (Devlin et al. 2019).
#include "models/families/encoder_family.h"

namespace linnet {
namespace {

// The head's activation is that of the layers, in both directions.
Field<EncoderConfig> head_activation() {
  return {[](const ConfigFile&, EncoderConfig& config) { config.head_activation = config.activation; }};
}

Fields<EncoderConfig> fields() {
  using C = EncoderConfig;
  return bert_fields() + Fields<C>{field("max_position_embeddings", &C::max_seq_len, kSizes),
                                   field("pad_token_id", &C::pad_token, kIds, -1), head_activation()};
}

NameTable names(const EncoderConfig& config, ModelHead head) {
  NameTable table = bert_layer_names(config, "bert.");
  if (head == ModelHead::kTokenClasses || head == ModelHead::kSpans) {
    table.other_heads = {"cls.*", "pooler.*"};
    add_token_head(table, head);
    return table;
  }
  table.other_heads = {"qa_outputs.*"};
  if (head == ModelHead::kTokens) {
    const std::string theirs = "cls.predictions.";
    table.add_linear(theirs + "transform.dense", "head.dense", TensorForm::kSame, TensorRole::kHead);
    table.add_linear(theirs + "transform.LayerNorm", "head.norm", TensorForm::kSame, TensorRole::kHead);
    table.add(theirs + "bias", "head.bias", TensorForm::kSame, TensorRole::kHead);
    table.add_copy(theirs + "decoder.weight", "bert.words.weight");
    table.add_copy(theirs + "decoder.bias", "head.bias");
    table.other_heads.insert(table.other_heads.end(), {"cls.seq_relationship.*", "pooler.*", "classifier.*"});
  } else {
    const bool classifies = head == ModelHead::kClasses;
    table.add_linear("bert.pooler.dense", "pooler.dense", TensorForm::kSame,
                     classifies ? TensorRole::kHead : TensorRole::kOptional);
    table.other_heads.emplace_back("cls.*");
    if (classifies)
      table.add_linear("classifier", "classifier", TensorForm::kSame, TensorRole::kHead);
    else
      table.other_heads.emplace_back("classifier.*");
  }
  table.old_endings = {{"LayerNorm.gamma", "LayerNorm.weight"}, {"LayerNorm.beta", "LayerNorm.bias"}};
  return table;
}

}  // namespace

extern const EncoderFamily kBertFamily;
const EncoderFamily kBertFamily("bert", FamilyKind::kEncoder,
                                {{"BertModel", ModelHead::kNone},
                                 {"BertForMaskedLM", ModelHead::kTokens},
                                 {"BertForSequenceClassification", ModelHead::kClasses},
                                 {"BertForTokenClassification", ModelHead::kTokenClasses},
                                 {"BertForQuestionAnswering", ModelHead::kSpans}},
                                EncoderConfig{}, fields(), make_encoder, names);

}  // namespace linnet
