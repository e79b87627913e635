#include "models/families/encoder_family.h"
#include "base/error.h"
#include "models/families/labels.h"

namespace linnet {

namespace {

// As transformers calls them.
constexpr const char *kClassLayer = "classifier", *kSpanLayer = "qa_outputs";

}  // namespace

std::vector<Architecture> encoder_architectures(const std::string& name) {
  return {{name + "Model", ModelHead::kNone},
          {name + "ForMaskedLM", ModelHead::kTokens},
          {name + "ForSequenceClassification", ModelHead::kClasses},
          {name + "ForTokenClassification", ModelHead::kTokenClasses},
          {name + "ForQuestionAnswering", ModelHead::kSpans}};
}

std::unique_ptr<Module> make_encoder(const EncoderConfig& config, const ConfigFile& file, ModelHead head) {
  if (head == ModelHead::kNone) return std::make_unique<SentenceEncoder>(config);
  if (head == ModelHead::kTokens) {
    file.require_flag("tie_word_embeddings", true);
    return std::make_unique<MaskedLanguageModel>(config);
  }
  if (head == ModelHead::kSpans) return std::make_unique<TokenClassifier>(config, kSpanLayer, 2, 0);
  std::optional<double> dropout = head == ModelHead::kTokenClasses ? config.tagger_dropout : config.classifier_dropout;
  if (file.has("classifier_dropout")) dropout = probability_of(file, "classifier_dropout", 0);
  if (head == ModelHead::kTokenClasses)
    return std::make_unique<TokenClassifier>(config, kClassLayer, label_count(file), dropout.value_or(config.dropout));
  file.choice("problem_type", {"single_label_classification", "multi_label_classification", "regression"});
  return std::make_unique<SequenceClassifier>(config, label_count(file), dropout);
}

Fields<EncoderConfig> bert_fields(const char* positions) {
  using C = EncoderConfig;
  return {fixed("is_decoder", false),
          fixed("add_cross_attention", false),
          fixed("position_embedding_type", positions),
          field("vocab_size", &C::vocab_size, kSizes),
          field("type_vocab_size", &C::token_types, {0, kSizes.most}, 2),
          field("hidden_size", &C::width, kWidths),
          field("num_attention_heads", &C::heads, kSizes),
          multiple("hidden_size", &C::width, "num_attention_heads", &C::heads),
          field("num_hidden_layers", &C::layers, kEncoderLayers),
          field("intermediate_size", &C::hidden, kSizes),
          probability("hidden_dropout_prob", &C::dropout, 0.1),
          probability("attention_probs_dropout_prob", &C::attention_dropout, 0.1, &C::dropout),
          field("hidden_act", &C::activation, kActivations, Activation::kGelu),
          positive("layer_norm_eps", &C::epsilon, 1e-12)};
}

Field<EncoderConfig> positions_after_padding() {
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

Field<EncoderConfig> rotary_layers_field(double standard_theta) {
  constexpr const char *kKey = "rope_parameters", *kTheta = "rope_theta";
  return {[=](const ConfigFile& file, EncoderConfig& config) {
            const ConfigFile rope = file.object(kKey);
            if (rope.has("rope_type")) rope.choice("rope_type", {"default"});
            if (file.size("head_dim", config.width / config.heads) * config.heads != config.width)
              file.fail("\"head_dim\" times \"num_attention_heads\" is not \"hidden_size\"");
            config.layer_kinds.assign(static_cast<size_t>(config.layers),
                                      {.rotary = RotaryConfig{.theta = positive_of(rope, kTheta, standard_theta)}});
          },
          [=](const EncoderConfig& config, ConfigFile& file) {
            ConfigFile rope;
            rope.set("rope_type", "default"), rope.set(kTheta, config.layer_kinds.at(0).rotary->theta);
            file.set(kKey, rope);
          }};
}

namespace {

class EncoderTable {
 public:
  EncoderTable(const EncoderConfig& config, const EncoderNames& names) : config_(config), names_(names) {
    table.prefix = names.prefix;
    table.other_heads = names.heads;
    table.computed = names.computed;
  }

  void add_embeddings() {
    const std::string& prefix = names_.prefix;
    table.add(prefix + names_.words + ".weight", "bert.words.weight");
    if (!names_.words_copy.empty()) table.add_copy(prefix + names_.words_copy + ".weight", "bert.words.weight");
    if (config_.learned_positions) table.add(prefix + names_.positions + ".weight", "bert.positions.weight");
    if (config_.token_types > 0) table.add(prefix + names_.types + ".weight", "bert.types.weight");
    if (config_.embedding_norm) norm(prefix + names_.embedding_norm, "bert.embedding_norm");
    if (config_.embedding_width > 0) table.add_linear(prefix + names_.projection, "bert.projection");
    if (config_.distance_buckets > 0) table.add(prefix + names_.distance_bias + ".weight", "bert.distance_bias");
    if (config_.distance_span > 0) table.add(prefix + names_.distances + ".weight", "bert.distances.weight");
    if (config_.distance_norm) norm(prefix + names_.distance_norm, "bert.distance_norm");
    if (config_.convolution > 0) {
      linear(prefix + names_.convolution, "bert.convolution", true);
      norm(prefix + names_.convolution_norm, "bert.convolution.norm");
    }
    if (config_.final_norm) norm(prefix + names_.final_norm, "bert.norm");
  }

  void add_layer(int64_t i, const std::string& theirs) {
    const std::string ours = "bert.layers." + std::to_string(i) + ".", in_proj = ours + "self_attn.in_proj";
    const int64_t width = config_.head_size > 0 ? config_.heads * config_.head_size : config_.width;
    const int64_t key_width = config_.kv_heads > 0 ? width / config_.heads * config_.kv_heads : width;
    std::vector<std::string> projections;
    for (const std::string& name : names_.queries_keys_values) projections.push_back(theirs + name);
    if (projections.size() > 1)
      table.add_stacked(projections, {width, key_width, key_width}, in_proj, config_.biases.attention);
    else linear(projections[0], in_proj, config_.biases.attention);
    if (config_.query_key_norms != QueryKeyNorms::kNone) {
      norm(theirs + names_.query_norm, ours + "self_attn.query_norm");
      norm(theirs + names_.key_norm, ours + "self_attn.key_norm");
    }
    if (config_.norm_place == NormPlace::kInputAndResult) {
      norm(theirs + names_.result_norm1, ours + "result_norm1");
      norm(theirs + names_.result_norm2, ours + "result_norm2");
    }
    linear(theirs + names_.output, ours + "self_attn.out_proj", config_.biases.output);
    if (i > 0 || config_.first_attention_norm) norm(theirs + names_.norm1, ours + "norm1");
    linear(theirs + names_.linear1, ours + "linear1", config_.biases.feed_forward);
    if (config_.gated) linear(theirs + names_.linear3, ours + "linear3", config_.biases.feed_forward);
    linear(theirs + names_.linear2, ours + "linear2", config_.biases.has_last());
    norm(theirs + names_.norm2, ours + "norm2");
  }

  void add_head(ModelHead head) {
    if (head == ModelHead::kTokens) {
      linear(names_.masked_dense, "head.dense", config_.head_biases, TensorRole::kHead);
      norm(names_.masked_norm, "head.norm", TensorRole::kHead);
      table.add(names_.masked_bias, "head.bias", TensorForm::kSame, TensorRole::kHead);
      for (const std::string& copy : names_.masked_copies)
        table.add_copy(copy, copy.ends_with(".bias") ? "head.bias" : "bert.words.weight");
    } else if (head == ModelHead::kClasses) {
      linear((names_.prefixed_class_dense ? names_.prefix : "") + names_.class_dense, "pooler.dense",
             config_.head_biases, TensorRole::kHead);
      if (config_.pooler_norm) norm(names_.class_norm, "pooler.norm", TensorRole::kHead);
      linear(names_.classifier, "classifier", true, TensorRole::kHead);
    } else if (head == ModelHead::kTokenClasses || head == ModelHead::kSpans) {
      const char* layer = head == ModelHead::kSpans ? kSpanLayer : kClassLayer;
      linear(layer, layer, true, TensorRole::kHead);
    } else if (config_.has_pooler) {
      linear(names_.prefix + names_.pooler, "pooler.dense", true, TensorRole::kOptional);
    }
  }

  NameTable table;

 private:
  void linear(const std::string& theirs, const std::string& ours, bool bias, TensorRole role = TensorRole::kRequired) {
    table.add(theirs + ".weight", ours + ".weight", TensorForm::kSame, role);
    if (bias) table.add(theirs + ".bias", ours + ".bias", TensorForm::kSame, role);
  }
  void norm(const std::string& theirs, const std::string& ours, TensorRole role = TensorRole::kRequired) {
    linear(theirs, ours, config_.norms == NormKind::kLayer, role);
  }

  const EncoderConfig& config_;
  const EncoderNames& names_;
};

}  // namespace

NameTable encoder_names(const EncoderConfig& config, ModelHead head, const EncoderNames& names) {
  EncoderTable table(config, names);
  table.add_embeddings();
  if (config.layer_groups == 0)
    for (int64_t i = 0; i < config.layers; ++i)
      table.add_layer(i, names.prefix + names.layers + std::to_string(i) + ".");
  for (int64_t i = 0; i < config.layer_groups * config.group_layers; ++i)  // of ALBERT alone
    table.add_layer(i, names.prefix + names.layers + std::to_string(i / config.group_layers) + ".albert_layers." +
                           std::to_string(i % config.group_layers) + ".");
  table.add_head(head);
  return table.table;
}

ConfigFile encoder_config_file(const std::string& model_type, const EncoderConfig& config, ModelHead head) {
  const Family& family = find_family(model_type);
  if (family.kind != FamilyKind::kEncoder) fail_internal(model_type + " is no encoder");
  return static_cast<const EncoderFamily&>(family).write(config, head);
}

}  // namespace linnet
