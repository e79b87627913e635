#include "models/families/encoder_family.h"
#include "models/families/config_file.h"

namespace linnet {
namespace {
constexpr const char *kClassLayer = "classifier", *kSpanLayer = "qa_outputs";
}  // namespace

std::vector<Architecture> encoder_architectures(const std::string& name, const std::vector<ModelHead>& heads) {
  constexpr const char* kEndings[] = {
      "Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering"};
  return mapped(heads, [&](ModelHead head) { return Architecture{name + kEndings[static_cast<size_t>(head)], head}; });
}

std::unique_ptr<Module> make_model(const EncoderConfig& config, const ConfigFile& file, ModelHead head) {
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

Fields<EncoderConfig> bert_fields(const Fields<EncoderConfig>& more, const char* positions) {
  using C = EncoderConfig;
  return Fields<C>{fixed("is_decoder", false), fixed("add_cross_attention", false),
             fixed("position_embedding_type", positions), field("vocab_size", &C::vocab_size, kSizes),
             field("type_vocab_size", &C::token_types, {0, kSizes.most}, 2), size_fields<C>({}, kEncoderLayers),
             probability("hidden_dropout_prob", &C::dropout, 0.1),
             probability("attention_probs_dropout_prob", &C::attention_dropout, 0.1, &C::dropout),
             field("hidden_act", &C::activation, kActivations, Activation::kGelu),
             positive("layer_norm_eps", &C::epsilon, 1e-12)} +
         more;
}

Field<EncoderConfig> lengths_field(int longest, int pad_token) {
  return all_of<EncoderConfig>({field("max_position_embeddings", &EncoderConfig::max_seq_len, kSizes, longest),
      field("pad_token_id", &EncoderConfig::pad_token, kIds, pad_token)});
}

Field<EncoderConfig> head_activation_field() {
  return {[](const ConfigFile&, EncoderConfig& config) { config.head_activation = config.activation; }};
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
  return {
      [=](const ConfigFile& file, EncoderConfig& config) {
        const ConfigFile rope = file.object(kKey);
        if (rope.has("rope_type")) rope.choice("rope_type", {"default"});
        if (file.has("rope_scaling")) file.fail("\"rope_scaling\" is not supported");
        if (file.size("head_dim", config.width / config.heads) * config.heads != config.width)
          file.fail("\"head_dim\" times \"num_attention_heads\" is not \"hidden_size\"");
        config.layer_kinds.assign(static_cast<size_t>(config.layers),
            {.rotary = RotaryConfig{.theta = positive_of(rope, kTheta, positive_of(file, kTheta, standard_theta))}});
      },
      [=](const EncoderConfig& config, ConfigFile& file) {
        ConfigFile rope;
        rope.set("rope_type", "default"), rope.set(kTheta, config.layer_kinds.at(0).rotary->theta);
        file.set(kKey, rope);
      }};
}

NameTable EncoderNames::operator()(const EncoderConfig& config, ModelHead head, const Module& model) const {
  using enum TensorForm;
  static const NamePatterns kBert = {{"bert.words", "^embeddings.word_embeddings"},
      {"bert.positions", "^embeddings.position_embeddings"}, {"bert.types", "^embeddings.token_type_embeddings"},
      {"bert.embedding_norm", "^embeddings.LayerNorm"},
      {"*.self_attn.in_proj", "attention.self.query attention.self.key attention.self.value"},
      {"*.self_attn.out_proj", "attention.output.dense"}, {"*.norm1", "attention.output.LayerNorm"},
      {"*.linear1", "intermediate.dense"}, {"*.linear2", "output.dense"}, {"*.norm2", "output.LayerNorm"}};
  NamePatterns patterns = with(kBert, own);
  const auto add = [&](const std::string& ours, const std::string& theirs, TensorRole role = TensorRole::kHead) {
    patterns.push_back({ours, theirs, kSame, role});
  };
  if (head == ModelHead::kTokens) {
    add("head.dense", masked_dense), add("head.norm", masked_norm), add("head.bias", masked_bias);
    for (const std::string& copy : masked_copies)
      add(copy.ends_with(".bias") ? "head.bias" : "bert.words.weight", copy, TensorRole::kCopy);
  } else if (head == ModelHead::kClasses) {
    add("pooler.dense", class_dense), add("pooler.norm", class_norm), add("classifier", classifier);
  } else if (head == ModelHead::kNone) {
    add("pooler.dense", pooler, TensorRole::kOptional);
  } else {
    const char* const layer = head == ModelHead::kSpans ? kSpanLayer : kClassLayer;
    add(layer, layer);
  }
  NameTable table{.prefix = prefix, .old_endings = old_endings, .computed = computed, .other_heads = heads};
  const int64_t width = config.head_size > 0 ? config.heads * config.head_size : config.width;
  table.add(model, in_full(patterns, prefix, "bert.layers.*.", "^" + layers),
      {.query_width = width, .group_layers = config.group_layers});
  return table;
}

ConfigFile encoder_config_file(const std::string& model_type, const EncoderConfig& config, ModelHead head) {
  return find_family_as<EncoderFamily>(model_type).write(config, head);
}
}  // namespace linnet
