#include "models/families/t5.h"

#include <filesystem>

#include "base/files.h"
#include "formats/weight_files.h"
#include "models/families/activations.h"
#include "models/families/family.h"

namespace linnet {
namespace {

std::unique_ptr<Module> construct(const ConfigFile& config, const std::string&) {
  return std::make_unique<T5>(t5_config(config));
}

void add_attention(NameTable& table, const T5Config& config, const std::string& theirs, const std::string& ours,
                   bool cross) {
  const int64_t width = config.heads * config.head_size;
  if (cross) {
    table.add(theirs + ".q.weight", ours + ".q_proj.weight");
    table.add_stacked({theirs + ".k", theirs + ".v"}, {width, width}, ours + ".kv_proj", false);
  } else {
    table.add_stacked({theirs + ".q", theirs + ".k", theirs + ".v"}, {width, width, width}, ours + ".in_proj", false);
  }
  table.add(theirs + ".o.weight", ours + ".out_proj.weight");
}

void add_stack(NameTable& table, const T5Config& config, const std::string& stack, int64_t layers, bool decoder) {
  for (int64_t i = 0; i < layers; ++i) {
    const std::string block = stack + ".block." + std::to_string(i) + ".layer.",
                      ours = stack + ".layers." + std::to_string(i) + ".";
    add_attention(table, config, block + "0.SelfAttention", ours + "self_attn", false);
    if (i == 0) table.add(block + "0.SelfAttention.relative_attention_bias.weight", stack + ".bias");
    table.add(block + "0.layer_norm.weight", ours + "norm1.weight");
    if (decoder) {
      add_attention(table, config, block + "1.EncDecAttention", ours + "cross_attn", true);
      table.add(block + "1.layer_norm.weight", ours + "norm2.weight");
    }
    const std::string last = block + (decoder ? "2." : "1."), feed_forward = last + "DenseReluDense.";
    table.add(feed_forward + (config.gated ? "wi_0.weight" : "wi.weight"), ours + "linear1.weight");
    if (config.gated) table.add(feed_forward + "wi_1.weight", ours + "linear3.weight");
    table.add(feed_forward + "wo.weight", ours + "linear2.weight");
    table.add(last + "layer_norm.weight", ours + (decoder ? "norm3.weight" : "norm2.weight"));
  }
  table.add(stack + ".final_layer_norm.weight", stack + ".norm.weight");
}

NameTable names(const ConfigFile& file, const std::string&) {
  const T5Config config = t5_config(file);
  NameTable table;
  table.add("shared.weight", "tokens.weight");
  table.add_copy("encoder.embed_tokens.weight", "tokens.weight");
  table.add_copy("decoder.embed_tokens.weight", "tokens.weight");
  add_stack(table, config, "encoder", config.encoder_layers, false);
  add_stack(table, config, "decoder", config.decoder_layers, true);
  if (config.tied_head)
    table.add_copy("lm_head.weight", "tokens.weight");
  else
    table.add("lm_head.weight", "head");
  // Old files have a bias that no version ever read.
  table.computed = {"decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"};
  return table;
}

// Since version 5 of transformers "tie_word_embeddings" is always true in a file: a head is one of its own where the
// weights have it and "scale_decoder_outputs" (before: "tie_word_embeddings") is false.
bool has_own_head(const ConfigFile& config) {
  const std::filesystem::path folder = std::filesystem::path(config.path()).parent_path();
  const bool with_weights =
      file_exists((folder / kWeightsFile).string()) || file_exists((folder / kWeightsIndex).string());
  if (!with_weights) return !config.flag("tie_word_embeddings", true);
  return WeightFiles(folder.string()).find("lm_head.weight") != nullptr;
}

void read_feed_forward(const ConfigFile& config, T5Config& out) {
  const std::string kind = config.text("feed_forward_proj", "relu");
  if (kind == "relu") return;
  if (kind == "gated-gelu") {
    out.gated = true, out.activation = Activation::kGeluTanh;
    return;
  }
  out.gated = kind.starts_with("gated-");
  ConfigFile name = config;
  name.set("feed_forward_proj", out.gated ? kind.substr(6) : kind);
  out.activation = activation_of(name, "feed_forward_proj", Activation::kRelu);
}

}  // namespace

T5Config t5_config(const ConfigFile& config) {
  T5Config out{.vocab_size = config.size("vocab_size"),
               .width = config.size("d_model"),
               .heads = config.size("num_heads"),
               .head_size = config.size("d_kv"),
               .hidden = config.size("d_ff"),
               .encoder_layers = config.layers("num_layers")};
  out.decoder_layers = config.layers("num_decoder_layers", out.encoder_layers);
  out.buckets = config.size("relative_attention_num_buckets", 32);
  out.max_distance = config.size("relative_attention_max_distance", 128);
  read_feed_forward(config, out);
  out.dropout = probability_of(config, "dropout_rate", 0.1);
  out.epsilon = positive_of(config, "layer_norm_epsilon", 1e-6);
  out.scaled_head = config.flag("scale_decoder_outputs", config.flag("tie_word_embeddings", true));
  out.tied_head = out.scaled_head || !has_own_head(config);
  out.start_token = static_cast<int32_t>(config.integer("decoder_start_token_id", config.integer("pad_token_id", 0)));
  if (out.buckets % 4 != 0 || out.max_distance <= out.buckets / 2)
    config.fail("\"relative_attention_num_buckets\" " + std::to_string(out.buckets) +
                " is not a multiple of 4 below twice \"relative_attention_max_distance\"");
  return out;
}

ConfigFile t5_config_file(const T5Config& config) {
  ConfigFile file;
  file.set("architectures", std::vector<std::string>{"T5ForConditionalGeneration"});
  file.set("model_type", "t5");
  file.set("is_encoder_decoder", true);
  file.set("vocab_size", config.vocab_size);
  file.set("d_model", config.width);
  file.set("d_kv", config.head_size);
  file.set("d_ff", config.hidden);
  file.set("num_heads", config.heads);
  file.set("num_layers", config.encoder_layers);
  file.set("num_decoder_layers", config.decoder_layers);
  file.set("relative_attention_num_buckets", config.buckets);
  file.set("relative_attention_max_distance", config.max_distance);
  const std::string activation =
      config.gated && config.activation == Activation::kGeluTanh ? "gelu" : activation_name(config.activation);
  file.set("feed_forward_proj", (config.gated ? "gated-" : "") + activation);
  file.set("dropout_rate", config.dropout);
  file.set("layer_norm_epsilon", config.epsilon);
  file.set("tie_word_embeddings", config.tied_head);
  file.set("scale_decoder_outputs", config.scaled_head);
  file.set("decoder_start_token_id", static_cast<int64_t>(config.start_token));
  file.set("pad_token_id", static_cast<int64_t>(config.start_token));
  file.set("eos_token_id", 1);
  file.set("dtype", "float32");
  return file;
}

const Family kT5Family{"t5", {"T5ForConditionalGeneration"}, construct, names};

}  // namespace linnet
