#include "models/families/gpt2.h"

#include "models/families/activations.h"
#include "models/families/family.h"

namespace linnet {
namespace {

// A key of our own: norms without weight and bias are written as ones and zeros, so that other programs read them.
constexpr const char* kAffineNorms = "affine_norms";

// A GPT2Model has no head: it is one with a tied head here.
GptConfig config_of(const ConfigFile& file, const std::string& architecture) {
  GptConfig config = gpt2_config(file);
  if (architecture == "GPT2Model") config.tied_head = true;
  return config;
}

std::unique_ptr<Module> construct(const ConfigFile& file, const std::string& architecture) {
  return std::make_unique<Gpt>(config_of(file, architecture));
}

void add_norm(NameTable& table, const GptConfig& config, const std::string& tensor, const std::string& parameter) {
  if (config.affine_norms) return table.add_linear(tensor, parameter);
  for (const float constant : {1.0F, 0.0F})
    table.rows.push_back({.tensor = tensor + (constant == 1 ? ".weight" : ".bias"),
                          .role = TensorRole::kConstant,
                          .rows = config.width,
                          .constant = constant});
}

NameTable names(const ConfigFile& file, const std::string& architecture) {
  const GptConfig config = config_of(file, architecture);
  NameTable table;
  table.prefix = "transformer.";
  const std::string& prefix = table.prefix;
  table.add(prefix + "wte.weight", "tokens.weight");
  table.add(prefix + "wpe.weight", "positions.weight");
  for (int64_t i = 0; i < config.layers; ++i) {
    const std::string theirs = prefix + "h." + std::to_string(i) + ".", ours = "layers." + std::to_string(i) + ".";
    add_norm(table, config, theirs + "ln_1", ours + "norm1");
    table.add_linear(theirs + "attn.c_attn", ours + "self_attn.in_proj", TensorForm::kTransposed);
    table.add_linear(theirs + "attn.c_proj", ours + "self_attn.out_proj", TensorForm::kTransposed);
    add_norm(table, config, theirs + "ln_2", ours + "norm2");
    table.add_linear(theirs + "mlp.c_fc", ours + "linear1", TensorForm::kTransposed);
    table.add_linear(theirs + "mlp.c_proj", ours + "linear2", TensorForm::kTransposed);
  }
  add_norm(table, config, prefix + "ln_f", "norm");
  if (config.tied_head)
    table.add_copy("lm_head.weight", "tokens.weight");
  else
    table.add("lm_head.weight", "head");
  table.computed = {"h.*.attn.bias", "h.*.attn.masked_bias"};
  return table;
}

}  // namespace

GptConfig gpt2_config(const ConfigFile& config) {
  config.require_flag("scale_attn_weights", true);
  config.require_flag("scale_attn_by_inverse_layer_idx", false);
  config.require_flag("add_cross_attention", false);
  check_heads(config, "n_embd", "n_head");
  return {.vocab_size = config.size("vocab_size"),
          .max_seq_len = config.size("n_positions"),
          .width = config.size("n_embd"),
          .heads = config.size("n_head"),
          .layers = config.layers("n_layer"),
          .dropout = probability_of(config, "resid_pdrop", 0.1),
          .embedding_dropout = probability_of(config, "embd_pdrop", 0.1),
          .attention_dropout = probability_of(config, "attn_pdrop", 0.1),
          .hidden = config.size("n_inner", 4 * config.size("n_embd")),
          .activation = activation_of(config, "activation_function", Activation::kGeluTanh),
          .epsilon = positive_of(config, "layer_norm_epsilon", 1e-5),
          .affine_norms = config.flag(kAffineNorms, true),
          .tied_head = config.flag("tie_word_embeddings", true)};
}

ConfigFile gpt2_config_file(const GptConfig& config) {
  ConfigFile file;
  file.set("architectures", std::vector<std::string>{"GPT2LMHeadModel"});
  file.set("model_type", "gpt2");
  file.set("vocab_size", config.vocab_size);
  file.set("n_positions", config.max_seq_len);
  file.set("n_embd", config.width);
  file.set("n_head", config.heads);
  file.set("n_layer", config.layers);
  if (config.hidden > 0) file.set("n_inner", config.hidden);
  file.set("activation_function", activation_name(config.activation));
  file.set("layer_norm_epsilon", config.epsilon);
  file.set("resid_pdrop", config.dropout);
  file.set("embd_pdrop", config.embedding_dropout.value_or(config.dropout));
  file.set("attn_pdrop", config.attention_dropout.value_or(config.dropout));
  file.set("tie_word_embeddings", config.tied_head);
  if (!config.affine_norms) file.set(kAffineNorms, false);
  file.set("dtype", "float32");
  return file;
}

const Family kGpt2Family{"gpt2", {"GPT2LMHeadModel", "GPT2Model"}, construct, names};

}  // namespace linnet
