// GPT-2 (Radford et al. 2019).
#include "models/families/decoder_family.h"

namespace linnet {
namespace {
// Linnet's own key: norms without weight and bias are written as ones and zeros, for other programs.
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
  return {field("vocab_size", &C::vocab_size, kSizes), field("n_positions", &C::max_seq_len, kSizes),
      size_fields<C>({"n_embd", "n_head", "n_layer", nullptr}),
      field("n_inner", &C::hidden, kSizes, [](const C& config) { return 4 * config.width; }),
      field("activation_function", &C::activation, kActivations, Activation::kGeluTanh),
      positive("layer_norm_epsilon", &C::epsilon, 1e-5), probability("resid_pdrop", &C::dropout, 0.1),
      probability("embd_pdrop", &C::embedding_dropout, 0.1, &C::dropout),
      probability("attn_pdrop", &C::attention_dropout, 0.1, &C::dropout),
      field("tie_word_embeddings", &C::tied_head, true), affine_norms(), fixed("scale_attn_weights", true),
      fixed("scale_attn_by_inverse_layer_idx", false), fixed("add_cross_attention", false)};
}
}  // namespace

FamilyList families_of_gpt2() {
  using enum TensorForm;
  using enum TensorRole;
  return {decoder_family({.model_type = "gpt2",
      .architectures = {{"GPT2LMHeadModel", ModelHead::kTokens}, {"GPT2Model", ModelHead::kNone}},
      .fields = gpt2_fields(),
      .names = DecoderNames{.prefix = "transformer.",
          .layers = "h.*.",
          .own = {{"tokens", "^wte"}, {"positions", "^wpe"}, {"*.norm1", "ln_1", kSame, kConstant},
              {"*.norm2", "ln_2", kSame, kConstant}, {"*.self_attn.in_proj", "attn.c_attn", kTransposed},
              {"*.self_attn.out_proj", "attn.c_proj", kTransposed}, {"*.linear1", "mlp.c_fc", kTransposed},
              {"*.linear2", "mlp.c_proj", kTransposed}, {"norm", "^ln_f", kSame, kConstant},
              {"head", "lm_head.weight"}},
          .computed = {"h.*.attn.bias", "h.*.attn.masked_bias"}}})};
}
}  // namespace linnet
