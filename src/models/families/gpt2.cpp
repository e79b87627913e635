// GPT-2 (Radford et al. 2019).
#include "models/families/decoder_family.h"

namespace linnet {
namespace {

// A key of our own: norms without weight and bias are written as ones and zeros, so that other programs read them.
Field<DecoderConfig> affine_norms() {
  constexpr const char* kKey = "affine_norms";
  return {[=](const ConfigFile& file, DecoderConfig& config) {
            config.norms = file.flag(kKey, true) ? NormKind::kLayer : NormKind::kBare;
          },
          [=](const DecoderConfig& config, ConfigFile& file) {
            if (config.norms == NormKind::kBare) file.set(kKey, false);
          }};
}

Fields<DecoderConfig> gpt2_fields() {
  using C = DecoderConfig;
  return {field("vocab_size", &C::vocab_size, kSizes),
          field("n_positions", &C::max_seq_len, kSizes),
          field("n_embd", &C::width, kWidths),
          field("n_head", &C::heads, kSizes),
          multiple("n_embd", &C::width, "n_head", &C::heads),
          field("n_layer", &C::layers, kLayers),
          field("n_inner", &C::hidden, kSizes, [](const C& config) { return 4 * config.width; }),
          field("activation_function", &C::activation, kActivations, Activation::kGeluTanh),
          positive("layer_norm_epsilon", &C::epsilon, 1e-5),
          probability("resid_pdrop", &C::dropout, 0.1),
          probability("embd_pdrop", &C::embedding_dropout, 0.1, &C::dropout),
          probability("attn_pdrop", &C::attention_dropout, 0.1, &C::dropout),
          field("tie_word_embeddings", &C::tied_head, true),
          affine_norms(),
          fixed("scale_attn_weights", true),
          fixed("scale_attn_by_inverse_layer_idx", false),
          fixed("add_cross_attention", false)};
}

void add_norm(NameTable& table, const DecoderConfig& config, const std::string& tensor, const std::string& parameter) {
  if (config.norms == NormKind::kLayer) return table.add_linear(tensor, parameter);
  for (const float constant : {1.0F, 0.0F})
    table.rows.push_back({.tensor = tensor + (constant == 1 ? ".weight" : ".bias"),
                          .role = TensorRole::kConstant,
                          .rows = config.width,
                          .constant = constant});
}

NameTable gpt2_names(const DecoderConfig& config, ModelHead head) {
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
  if (has_tied_head(config, head)) table.add_copy("lm_head.weight", "tokens.weight");
  else table.add("lm_head.weight", "head");
  table.computed = {"h.*.attn.bias", "h.*.attn.masked_bias"};
  return table;
}

}  // namespace

FamilyList families_of_gpt2() {
  static const DecoderFamily family("gpt2", FamilyKind::kDecoder, decoder_architectures("GPT2LMHeadModel", "GPT2Model"),
                                    DecoderConfig{}, gpt2_fields(), make_decoder, gpt2_names);
  return {&family};
}

}  // namespace linnet
