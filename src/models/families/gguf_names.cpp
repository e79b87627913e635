// llama.cpp's names of keys and tensors: one row per architecture.
#include <algorithm>
#include <charconv>
#include "base/error.h"
#include "models/families/gguf.h"

namespace linnet {
namespace {
using Names = GgufArchitecture::Names;

// Names of Llama and similar architectures; theirs first.
const Names kTensors = {{"token_embd", "embed_tokens"}, {"output_norm", "norm"}, {"output", "lm_head"},
    {"attn_norm", "input_layernorm"}, {"attn_q", "self_attn.q_proj"}, {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"}, {"attn_qkv", "self_attn.qkv_proj"}, {"attn_output", "self_attn.o_proj"},
    {"attn_q_norm", "self_attn.q_norm"}, {"attn_k_norm", "self_attn.k_norm"}, {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"}, {"ffn_up", "mlp.up_proj"}, {"ffn_down", "mlp.down_proj"},
    {"ffn_gate_inp", "mlp.gate"}, {"ffn_gate_exps", "mlp.experts.*.gate_proj"},
    {"ffn_up_exps", "mlp.experts.*.up_proj"}, {"ffn_down_exps", "mlp.experts.*.down_proj"}};
const Names kKeys = {{"context_length", "max_position_embeddings"}, {"embedding_length", "hidden_size"},
    {"feed_forward_length", "intermediate_size"}, {"block_count", "num_hidden_layers"},
    {"attention.head_count", "num_attention_heads"}, {"attention.head_count_kv", "num_key_value_heads"},
    {"attention.key_length", "head_dim"}, {"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
    {"attention.layer_norm_epsilon", "layer_norm_eps"}, {"attention.sliding_window", "sliding_window"},
    {"attention.clamp_kqv", "clip_qkv"}, {"rope.freq_base", "rope_theta"}, {"expert_count", "num_local_experts"},
    {"expert_used_count", "num_experts_per_tok"}, {"expert_feed_forward_length", "moe_intermediate_size"},
    {"expert_weights_norm", "norm_topk_prob"}, {"attn_logit_softcapping", "attn_logit_softcapping"},
    {"final_logit_softcapping", "final_logit_softcapping"}};

const Names kResultNorms = {{"post_attention_norm", "post_attention_layernorm"},
                {"post_ffw_norm", "post_feedforward_layernorm"}},
            kFourNorms = {{"ffn_norm", "pre_feedforward_layernorm"}, kResultNorms[0], kResultNorms[1]};

const std::vector<GgufArchitecture>& gguf_architectures() {
  static const std::vector<GgufArchitecture> all = {{.name = "llama", .pairs = true},
      {.name = "llama", .model_type = "mistral", .pairs = true},
      {.name = "llama",
          .model_type = "mixtral",
          .has_experts = true,
          .pairs = true,
          .tensors = {{"ffn_gate_inp", "block_sparse_moe.gate"}, {"ffn_gate_exps", "block_sparse_moe.experts.*.w1"},
              {"ffn_up_exps", "block_sparse_moe.experts.*.w3"}, {"ffn_down_exps", "block_sparse_moe.experts.*.w2"}}},
      {.name = "qwen2", .pre = "qwen2"}, {.name = "qwen3", .pre = "qwen2"},
      {.name = "qwen3moe", .model_type = "qwen3_moe", .has_experts = true, .pre = "qwen2"},
      {.name = "gemma", .plus_one = true}, {.name = "gemma2", .plus_one = true, .tensors = kFourNorms},
      {.name = "gemma3",
          .model_type = "gemma3_text",
          .plus_one = true,
          .tensors = kFourNorms,
          .keys = {{"rope.freq_base_swa", "rope_local_base_freq"}}},
      {.name = "phi3", .tensors = {{"ffn_up", "mlp.gate_up_proj"}}, .pre = "gpt-4o"},
      {.name = "olmo2", .tensors = kResultNorms, .pre = "dbrx"}, {.name = "olmoe", .has_experts = true, .pre = "olmo"},
      {.name = "granite",
          .pairs = true,
          .keys = {{"attention.scale", "attention_multiplier"}, {"embedding_scale", "embedding_multiplier"},
              {"residual_scale", "residual_multiplier"}, {"logit_scale", "logits_scaling"}},
          .pre = "refact"},
      {.name = "smollm3", .pairs = true},
      {.name = "starcoder2",
          .tensors = {{"ffn_up", "mlp.c_fc"}, {"ffn_down", "mlp.c_proj"}},
          .keys = {{"attention.layer_norm_epsilon", "norm_epsilon"}},
          .bias_key = "use_bias",
          .pre = "starcoder"},
      {.name = "gptneox",
          .model_type = "gpt_neox",
          .prefix = "gpt_neox.",
          .tensors = {{"token_embd", "embed_in"}, {"output_norm", "final_layer_norm"}, {"output", "embed_out"},
              {"attn_qkv", "attention.query_key_value"}, {"attn_output", "attention.dense"},
              {"ffn_up", "mlp.dense_h_to_4h"}, {"ffn_down", "mlp.dense_4h_to_h"}},
          .keys = {{"rope.freq_base", "rotary_emb_base"}, {"use_parallel_residual", "use_parallel_residual"}},
          .share_key = "rotary_pct",
          .pre = "olmo"},
      {.name = "gpt2",
          .transposed = true,
          .prefix = "transformer.",
          .layers = "h.",
          .tensors = {{"token_embd", "wte"}, {"position_embd", "wpe"}, {"output_norm", "ln_f"}, {"attn_norm", "ln_1"},
              {"ffn_norm", "ln_2"}, {"attn_qkv", "attn.c_attn"}, {"attn_output", "attn.c_proj"}, {"ffn_up", "mlp.c_fc"},
              {"ffn_down", "mlp.c_proj"}},
          .keys = {{"context_length", "n_positions"}, {"embedding_length", "n_embd"},
              {"feed_forward_length", "n_inner"}, {"block_count", "n_layer"}, {"attention.head_count", "n_head"},
              {"attention.head_count_kv", ""}, {"attention.layer_norm_epsilon", "layer_norm_epsilon"}},
          .pre = "gpt-2"}};
  return all;
}

std::string named(const Names& own, const Names& common, std::string_view theirs) {  // "" if neither has it
  for (const Names* names : {&own, &common})
    for (const auto& [name, ours] : *names)
      if (theirs == name) return ours;
  return "";
}
}  // namespace

const GgufArchitecture& find_gguf_architecture(const GgufFile& file) {
  const Json* given = file.key("general.architecture");
  if (!given || !given->is_string()) file.fail("it has no \"general.architecture\": it is no model");
  const std::string& name = given->text();
  const Json* experts = file.key(name + ".expert_count");
  const bool has_experts = experts && experts->is_natural() && experts->get<uint64_t>() > 0;
  std::string known;
  for (const GgufArchitecture& architecture : gguf_architectures()) {
    if (name == architecture.name && has_experts == architecture.has_experts) return architecture;
    if (!known.ends_with(architecture.name)) known += (known.empty() ? "" : ", ") + std::string(architecture.name);
  }
  file.fail(
      "its architecture is " + quoted_name(name) + (has_experts ? " with experts" : "") + ", Linnet reads " + known);
}

GgufName gguf_name(const GgufArchitecture& architecture, const std::string& tensor) {
  std::string_view rest = tensor;
  std::string layer;
  if (rest.starts_with("blk.")) {
    const size_t end = rest.find('.', 4);
    if (end == rest.npos) return {};
    layer = architecture.layers + std::string(rest.substr(4, end - 3));
    rest.remove_prefix(end + 1);
  }
  const size_t point = rest.rfind('.');
  if (point == rest.npos) return {};
  const std::string_view theirs = rest.substr(0, point), ending = rest.substr(point);
  const std::string ours = named(architecture.tensors, kTensors, theirs);
  if (ours.empty()) return {};
  GgufName name{(theirs == "output" ? "" : architecture.prefix) + layer + ours + std::string(ending), GgufForm::kSame};
  const bool is_bias = ending == ".bias";
  if (architecture.pairs && (theirs == "attn_q" || theirs == "attn_k"))
    name.form = GgufForm::kPairs, name.queries = theirs == "attn_q";
  if (std::string_view(architecture.model_type) == "gpt_neox" && theirs == "attn_qkv") name.form = GgufForm::kByPart;
  if (architecture.transposed && !is_bias && !layer.empty() && !theirs.ends_with("norm"))
    name.form = GgufForm::kTransposed;
  if (architecture.plus_one && theirs.ends_with("norm")) name.form = GgufForm::kPlusOne;
  return name;
}

std::string gguf_tensor(const GgufArchitecture& architecture, const std::string& name) {
  const size_t point = name.rfind('.');
  if (point == name.npos) return "";
  std::string_view rest = std::string_view(name).substr(0, point);
  const std::string ending = name.substr(point);
  if (rest.starts_with(architecture.prefix)) rest.remove_prefix(std::string_view(architecture.prefix).size());
  std::string layer;
  if (rest.starts_with(architecture.layers)) {
    const size_t begin = std::string_view(architecture.layers).size(), end = rest.find('.', begin);
    if (end == rest.npos) return "";
    layer = "blk." + std::string(rest.substr(begin, end + 1 - begin));
    rest.remove_prefix(end + 1);
  }
  for (const Names* names : {&architecture.tensors, &kTensors})
    for (const auto& [theirs, ours] : *names)
      if (rest == ours && gguf_name(architecture, layer + theirs + ending).name == name) return layer + theirs + ending;
  return "";
}

const GgufArchitecture* gguf_architecture_of(std::string_view model_type) {
  const auto& all = gguf_architectures();
  const auto found =
      std::ranges::find(all, model_type, [](const auto& one) { return std::string_view(one.model_type); });
  return found == all.end() ? nullptr : &*found;
}

Names gguf_keys(const GgufArchitecture& architecture) {
  Names all = architecture.keys;
  for (const auto& key : kKeys)
    if (std::ranges::none_of(
            architecture.keys, [&](const auto& own) { return std::string_view(own.first) == key.first; }))
      all.push_back(key);
  std::erase_if(all, [](const auto& key) { return *key.second == '\0'; });
  return all;
}
}  // namespace linnet
