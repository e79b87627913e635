#include "models/families/encoder_family.h"

#include "base/error.h"
#include "models/families/labels.h"

namespace linnet {

namespace {

// As transformers calls them.
constexpr const char *kClassLayer = "classifier", *kSpanLayer = "qa_outputs";

}  // namespace

std::unique_ptr<Module> make_encoder(const EncoderConfig& config, const ConfigFile& file, ModelHead head) {
  if (head == ModelHead::kNone) return std::make_unique<SentenceEncoder>(config);
  if (head == ModelHead::kTokens) {
    file.require_flag("tie_word_embeddings", true);
    return std::make_unique<MaskedLanguageModel>(config);
  }
  if (head == ModelHead::kSpans) return std::make_unique<TokenClassifier>(config, kSpanLayer, 2, 0);
  std::optional<double> dropout;
  if (file.has("classifier_dropout")) dropout = probability_of(file, "classifier_dropout", 0);
  if (head == ModelHead::kTokenClasses)
    return std::make_unique<TokenClassifier>(config, kClassLayer, label_count(file), dropout.value_or(config.dropout));
  file.choice("problem_type", {"single_label_classification", "multi_label_classification", "regression"});
  return std::make_unique<SequenceClassifier>(config, label_count(file), dropout);
}

Fields<EncoderConfig> bert_fields() {
  using C = EncoderConfig;
  return {fixed("is_decoder", false),
          fixed("add_cross_attention", false),
          fixed("position_embedding_type", "absolute"),
          field("vocab_size", &C::vocab_size, kSizes),
          field("type_vocab_size", &C::token_types, kSizes, 2),
          field("hidden_size", &C::width, kWidths),
          field("num_attention_heads", &C::heads, kSizes),
          multiple("hidden_size", &C::width, "num_attention_heads", &C::heads),
          field("num_hidden_layers", &C::layers, kLayers),
          field("intermediate_size", &C::hidden, kSizes),
          probability("hidden_dropout_prob", &C::dropout, 0.1),
          probability("attention_probs_dropout_prob", &C::attention_dropout, 0.1, &C::dropout),
          field("hidden_act", &C::activation, kActivations, Activation::kGelu),
          positive("layer_norm_eps", &C::epsilon, 1e-12)};
}

void add_token_head(NameTable& table, ModelHead head) {
  const bool spans = head == ModelHead::kSpans;
  const std::string own = spans ? kSpanLayer : kClassLayer, other = spans ? kClassLayer : kSpanLayer;
  table.add_linear(own, own, TensorForm::kSame, TensorRole::kHead);
  table.other_heads.push_back(other + ".*");
}

NameTable bert_layer_names(const EncoderConfig& config, const std::string& prefix) {
  NameTable table;
  table.prefix = prefix;
  const std::string embeddings = prefix + "embeddings.";
  table.add(embeddings + "word_embeddings.weight", "bert.words.weight");
  table.add(embeddings + "position_embeddings.weight", "bert.positions.weight");
  if (config.token_types > 0) table.add(embeddings + "token_type_embeddings.weight", "bert.types.weight");
  table.add_linear(embeddings + "LayerNorm", "bert.embedding_norm");
  for (int64_t i = 0; i < config.layers; ++i) {
    const std::string number = std::to_string(i) + ".", theirs = prefix + "encoder.layer." + number,
                      ours = "bert.layers." + number, self = theirs + "attention.self.";
    table.add_stacked({self + "query", self + "key", self + "value"}, {config.width, config.width, config.width},
                      ours + "self_attn.in_proj");
    table.add_linear(theirs + "attention.output.dense", ours + "self_attn.out_proj");
    table.add_linear(theirs + "attention.output.LayerNorm", ours + "norm1");
    table.add_linear(theirs + "intermediate.dense", ours + "linear1");
    table.add_linear(theirs + "output.dense", ours + "linear2");
    table.add_linear(theirs + "output.LayerNorm", ours + "norm2");
  }
  table.computed = {"embeddings.position_ids", "embeddings.token_type_ids"};
  return table;
}

ConfigFile encoder_config_file(const std::string& model_type, const EncoderConfig& config, ModelHead head) {
  const Family& family = find_family(model_type);
  if (family.kind != FamilyKind::kEncoder) fail_internal(model_type + " is no encoder");
  return static_cast<const EncoderFamily&>(family).write(config, head);
}

}  // namespace linnet
