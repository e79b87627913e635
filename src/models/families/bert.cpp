#include "models/families/bert.h"

#include "models/families/activations.h"
#include "models/families/family.h"

namespace linnet {
namespace {

constexpr const char* kMaskedLm = "BertForMaskedLM";
constexpr const char* kClassification = "BertForSequenceClassification";
constexpr const char* kModel = "BertModel";

std::unique_ptr<Module> construct(const ConfigFile& config, const std::string& architecture) {
  const BertConfig bert = bert_config(config);
  if (architecture == kMaskedLm) {
    config.require_flag("tie_word_embeddings", true);
    return std::make_unique<MaskedLanguageModel>(bert);
  }
  if (architecture == kModel) return std::make_unique<SentenceEncoder>(bert);
  config.choice("problem_type", {"single_label_classification"});
  std::optional<double> dropout;
  if (config.has("classifier_dropout")) dropout = probability_of(config, "classifier_dropout", 0);
  return std::make_unique<SequenceClassifier>(bert, label_count(config), dropout);
}

void add_layer(NameTable& table, const BertConfig& config, int64_t i) {
  const std::string theirs = "bert.encoder.layer." + std::to_string(i) + ".",
                    ours = "bert.layers." + std::to_string(i) + ".", self = theirs + "attention.self.";
  table.add_stacked({self + "query", self + "key", self + "value"}, {config.width, config.width, config.width},
                    ours + "self_attn.in_proj");
  table.add_linear(theirs + "attention.output.dense", ours + "self_attn.out_proj");
  table.add_linear(theirs + "attention.output.LayerNorm", ours + "norm1");
  table.add_linear(theirs + "intermediate.dense", ours + "linear1");
  table.add_linear(theirs + "output.dense", ours + "linear2");
  table.add_linear(theirs + "output.LayerNorm", ours + "norm2");
}

NameTable names(const ConfigFile& file, const std::string& architecture) {
  const BertConfig config = bert_config(file);
  NameTable table;
  table.prefix = "bert.";
  table.add("bert.embeddings.word_embeddings.weight", "bert.words.weight");
  table.add("bert.embeddings.position_embeddings.weight", "bert.positions.weight");
  table.add("bert.embeddings.token_type_embeddings.weight", "bert.types.weight");
  table.add_linear("bert.embeddings.LayerNorm", "bert.embedding_norm");
  for (int64_t i = 0; i < config.layers; ++i) add_layer(table, config, i);
  table.other_heads = {"qa_outputs.*"};
  if (architecture == kMaskedLm) {
    const std::string head = "cls.predictions.";
    table.add_linear(head + "transform.dense", "head.dense", TensorForm::kSame, TensorRole::kHead);
    table.add_linear(head + "transform.LayerNorm", "head.norm", TensorForm::kSame, TensorRole::kHead);
    table.add(head + "bias", "head.bias", TensorForm::kSame, TensorRole::kHead);
    table.add_copy(head + "decoder.weight", "bert.words.weight");
    table.add_copy(head + "decoder.bias", "head.bias");
    table.other_heads.insert(table.other_heads.end(), {"cls.seq_relationship.*", "pooler.*", "classifier.*"});
  } else {
    const TensorRole pooler = architecture == kModel ? TensorRole::kOptional : TensorRole::kHead;
    table.add_linear("bert.pooler.dense", "pooler.dense", TensorForm::kSame, pooler);
    table.other_heads.emplace_back("cls.*");
    if (architecture == kClassification)
      table.add_linear("classifier", "classifier", TensorForm::kSame, TensorRole::kHead);
    else
      table.other_heads.emplace_back("classifier.*");
  }
  table.old_endings = {{"LayerNorm.gamma", "LayerNorm.weight"}, {"LayerNorm.beta", "LayerNorm.bias"}};
  table.computed = {"embeddings.position_ids", "embeddings.token_type_ids"};
  return table;
}

}  // namespace

BertConfig bert_config(const ConfigFile& config) {
  config.require_flag("is_decoder", false);
  config.require_flag("add_cross_attention", false);
  config.choice("position_embedding_type", {"absolute"});
  check_heads(config, "hidden_size", "num_attention_heads");
  return {.vocab_size = config.size("vocab_size"),
          .max_seq_len = config.size("max_position_embeddings"),
          .token_types = config.size("type_vocab_size", 2),
          .width = config.size("hidden_size"),
          .heads = config.size("num_attention_heads"),
          .layers = config.layers("num_hidden_layers"),
          .hidden = config.size("intermediate_size"),
          .dropout = probability_of(config, "hidden_dropout_prob", 0.1),
          .attention_dropout = probability_of(config, "attention_probs_dropout_prob", 0.1),
          .activation = activation_of(config, "hidden_act", Activation::kGelu),
          .epsilon = positive_of(config, "layer_norm_eps", 1e-12),
          .pad_token = config.integer("pad_token_id", -1)};
}

ConfigFile bert_config_file(const BertConfig& config, const std::string& architecture) {
  ConfigFile file;
  file.set("architectures", std::vector<std::string>{architecture});
  file.set("model_type", "bert");
  file.set("vocab_size", config.vocab_size);
  file.set("max_position_embeddings", config.max_seq_len);
  file.set("type_vocab_size", config.token_types);
  file.set("hidden_size", config.width);
  file.set("num_attention_heads", config.heads);
  file.set("num_hidden_layers", config.layers);
  file.set("intermediate_size", config.hidden);
  file.set("hidden_dropout_prob", config.dropout);
  file.set("attention_probs_dropout_prob", config.attention_dropout.value_or(config.dropout));
  file.set("hidden_act", activation_name(config.activation));
  file.set("layer_norm_eps", config.epsilon);
  if (config.pad_token >= 0) file.set("pad_token_id", config.pad_token);
  file.set("dtype", "float32");
  return file;
}

int64_t label_count(const ConfigFile& config) {
  if (config.has("num_labels")) return config.size("num_labels");
  const auto named = static_cast<int64_t>(config.count("id2label"));
  return named > 0 ? named : 2;
}

std::vector<std::string> label_names(const ConfigFile& config) {
  const ConfigFile names = config.object("id2label");
  std::vector<std::string> result;
  for (int64_t i = 0; i < label_count(config); ++i) {
    const std::string number = std::to_string(i);
    result.push_back(names.text(number, "LABEL_" + number));
  }
  return result;
}

void name_labels(ConfigFile& config, const std::vector<std::string>& classes) {
  ConfigFile names, numbers;
  for (size_t i = 0; i < classes.size(); ++i) {
    names.set(std::to_string(i), classes[i]);
    numbers.set(classes[i], static_cast<int64_t>(i));
  }
  config.set("id2label", names);
  config.set("label2id", numbers);
}

const Family kBertFamily{"bert", {kModel, kMaskedLm, kClassification}, construct, names};

}  // namespace linnet
