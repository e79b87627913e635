#include "models/families/llama.h"

#include <algorithm>

#include "base/error.h"
#include "models/families/activations.h"
#include "models/families/family.h"

namespace linnet {
namespace {

// A model without "For..." in its name has no head: it is one with a tied head here.
LlamaConfig config_of(const ConfigFile& file, const std::string& architecture) {
  LlamaConfig config = llama_config(file);
  if (architecture.find("For") == architecture.npos) config.tied_head = true;
  return config;
}

std::unique_ptr<Module> construct(const ConfigFile& file, const std::string& architecture) {
  return std::make_unique<Llama>(config_of(file, architecture));
}

NameTable names(const ConfigFile& file, const std::string& architecture) {
  const LlamaConfig config = config_of(file, architecture);
  const int64_t size = config.head_size, query_width = config.heads * size, key_width = config.kv_heads * size;
  NameTable table;
  table.prefix = "model.";
  const auto add_linear = [&](const std::string& theirs, const std::string& ours, bool bias) {
    table.add(theirs + ".weight", ours + ".weight");
    if (bias) table.add(theirs + ".bias", ours + ".bias");
  };
  table.add("model.embed_tokens.weight", "tokens.weight");
  for (int64_t i = 0; i < config.layers; ++i) {
    const std::string theirs = "model.layers." + std::to_string(i) + ".", ours = "layers." + std::to_string(i) + ".";
    const std::string attention = theirs + "self_attn.";
    table.add(theirs + "input_layernorm.weight", ours + "norm1.weight");
    table.add_stacked({attention + "q_proj", attention + "k_proj", attention + "v_proj"},
                      {query_width, key_width, key_width}, ours + "self_attn.in_proj", config.biases.attention);
    add_linear(attention + "o_proj", ours + "self_attn.out_proj", config.biases.output);
    table.add(theirs + "post_attention_layernorm.weight", ours + "norm2.weight");
    add_linear(theirs + "mlp.gate_proj", ours + "linear1", config.biases.feed_forward);
    add_linear(theirs + "mlp.up_proj", ours + "linear3", config.biases.feed_forward);
    add_linear(theirs + "mlp.down_proj", ours + "linear2", config.biases.feed_forward);
  }
  table.add("model.norm.weight", "norm.weight");
  if (config.tied_head)
    table.add_copy("lm_head.weight", "tokens.weight");
  else
    table.add("lm_head.weight", "head", TensorForm::kSame, TensorRole::kHead);
  table.computed = {"layers.*.self_attn.rotary_emb.inv_freq"};
  return table;
}

// "rope_parameters" since version 5 of transformers; before that "rope_theta" and, where positions are scaled,
// "rope_scaling".
RotaryConfig rotary_config(const ConfigFile& config) {
  const bool one = config.has("rope_parameters");
  const ConfigFile rope = config.object(one ? "rope_parameters" : "rope_scaling");
  RotaryConfig out{.theta = one ? rope.number("rope_theta", 1e4) : config.number("rope_theta", 1e4)};
  if (!(out.theta > 0)) config.fail("\"rope_theta\" is not positive");
  const std::string type = rope.text("rope_type", rope.text("type", "default"));
  if (type == "default") return out;
  if (type != "linear" && type != "llama3")
    config.fail("\"rope_type\" is \"" + type + "\", Linnet supports default, linear, llama3");
  RopeScaling& scaling = out.scaling;
  scaling.kind = type == "linear" ? RopeScaling::Kind::kLinear : RopeScaling::Kind::kLlama3;
  scaling.factor = rope.number("factor", 1);
  if (!(scaling.factor > 0)) config.fail("\"factor\" of the rotary positions is not positive");
  if (type == "linear") return out;
  scaling.low_factor = rope.number("low_freq_factor", 1);
  scaling.high_factor = rope.number("high_freq_factor", 4);
  scaling.original_length = static_cast<double>(rope.size("original_max_position_embeddings", 8192));
  if (!(scaling.high_factor > scaling.low_factor))
    config.fail("\"high_freq_factor\" is not larger than \"low_freq_factor\"");
  return out;
}

// What the kinds of models differ in: which linear layers have a bias, and what a position sees.
void read_kind(const ConfigFile& config, LlamaConfig& out) {
  const std::string kind = config.text("model_type", "llama");
  if (kind == "llama") {
    out.biases.attention = out.biases.output = config.flag("attention_bias", false);
    out.biases.feed_forward = config.flag("mlp_bias", false);
  } else if (kind == "mistral") {
    constexpr int64_t kStandard = 4096;
    out.window = config.has("sliding_window") || !config.mentions("sliding_window")
                     ? config.size("sliding_window", kStandard)
                     : 0;
  } else if (kind == "qwen2") {
    out.biases.attention = true;
    // Layers from "max_window_layers" on would see a window only, those before it all.
    const std::vector<std::string> types = config.texts("layer_types");
    const bool windows = types.empty() ? config.integer("max_window_layers", 28) < out.layers
                                       : std::ranges::find(types, "sliding_attention") != types.end();
    if (windows) config.require_flag("use_sliding_window", false);
  } else {
    config.fail("\"model_type\" is \"" + kind + "\", which is no kind of Llama");
  }
  if (out.window >= out.max_seq_len) out.window = 0;  // it hides nothing
}

void write_kind(const LlamaConfig& config, ConfigFile& file) {
  const Biases& biases = config.biases;
  const bool mistral = config.window > 0, qwen2 = biases.attention && !biases.output;
  if ((mistral && (biases.attention || biases.feed_forward)) || (qwen2 && biases.feed_forward) ||
      (biases.output && !biases.attention))
    fail_user("a decoder with these biases and this window is neither Llama's kind nor Mistral's nor Qwen2's");
  const std::string name = mistral ? "Mistral" : qwen2 ? "Qwen2" : "Llama";
  file.set("architectures", std::vector<std::string>{name + "ForCausalLM"});
  file.set("model_type", mistral ? "mistral" : qwen2 ? "qwen2" : "llama");
  if (mistral) file.set("sliding_window", config.window);
  if (!mistral && !qwen2) {
    file.set("attention_bias", biases.attention);
    file.set("mlp_bias", biases.feed_forward);
  }
}

}  // namespace

LlamaConfig llama_config(const ConfigFile& config) {
  const int64_t width = config.size("hidden_size"), heads = config.size("num_attention_heads");
  if (!config.has("head_dim")) check_heads(config, "hidden_size", "num_attention_heads");
  LlamaConfig out{.vocab_size = config.size("vocab_size"),
                  .max_seq_len = config.size("max_position_embeddings", 2048),
                  .width = width,
                  .heads = heads,
                  .layers = config.layers("num_hidden_layers"),
                  .hidden = config.size("intermediate_size"),
                  .kv_heads = config.size("num_key_value_heads", heads),
                  .head_size = config.size("head_dim", width / heads),
                  .rotary = rotary_config(config),
                  .activation = activation_of(config, "hidden_act", Activation::kSilu),
                  .epsilon = positive_of(config, "rms_norm_eps", 1e-6),
                  .attention_dropout = probability_of(config, "attention_dropout", 0),
                  .deviation = config.number("initializer_range", 0.02),
                  .tied_head = config.flag("tie_word_embeddings", false)};
  read_kind(config, out);
  if (heads % out.kv_heads != 0)
    config.fail("\"num_attention_heads\" " + std::to_string(heads) + " is not a multiple of \"num_key_value_heads\" " +
                std::to_string(out.kv_heads));
  if (out.head_size % 2 != 0)
    config.fail("heads of " + std::to_string(out.head_size) + " elements have no two halves to turn");
  return out;
}

ConfigFile llama_config_file(const LlamaConfig& config) {
  ConfigFile file;
  write_kind(config, file);
  file.set("vocab_size", config.vocab_size);
  file.set("max_position_embeddings", config.max_seq_len);
  file.set("hidden_size", config.width);
  file.set("intermediate_size", config.hidden);
  file.set("num_hidden_layers", config.layers);
  file.set("num_attention_heads", config.heads);
  file.set("num_key_value_heads", config.kv_heads > 0 ? config.kv_heads : config.heads);
  file.set("head_dim", config.head_size > 0 ? config.head_size : config.width / config.heads);
  file.set("hidden_act", activation_name(config.activation));
  file.set("rms_norm_eps", config.epsilon);
  file.set("rope_theta", config.rotary.theta);
  if (const RopeScaling& scaling = config.rotary.scaling; scaling.kind != RopeScaling::Kind::kNone) {
    const bool linear = scaling.kind == RopeScaling::Kind::kLinear;
    ConfigFile rope;
    rope.set("rope_type", linear ? "linear" : "llama3");
    rope.set("factor", scaling.factor);
    if (!linear) {
      rope.set("low_freq_factor", scaling.low_factor);
      rope.set("high_freq_factor", scaling.high_factor);
      rope.set("original_max_position_embeddings", static_cast<int64_t>(scaling.original_length));
    }
    file.set("rope_scaling", rope);
  }
  file.set("attention_dropout", config.attention_dropout);
  file.set("initializer_range", config.deviation);
  file.set("tie_word_embeddings", config.tied_head);
  file.set("dtype", "float32");
  return file;
}

const Family kLlamaFamily{"llama", {"LlamaForCausalLM", "LlamaModel"}, construct, names};
const Family kMistralFamily{"mistral", {"MistralForCausalLM", "MistralModel"}, construct, names};
const Family kQwen2Family{"qwen2", {"Qwen2ForCausalLM", "Qwen2Model"}, construct, names};

}  // namespace linnet
