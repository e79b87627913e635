// ModernBERT (Warner et al. 2024): pre-norm, no biases, a gate, rotary positions, windows in two of three layers.
#include "models/families/encoder_family.h"

namespace linnet {
namespace {
Field<EncoderConfig> norm_bias() {
  return {[](const ConfigFile& file, EncoderConfig& config) {
            config.norms = file.flag("norm_bias", false) ? NormKind::kLayer : NormKind::kNoBias;
          },
      [](const EncoderConfig& config, ConfigFile& file) { file.set("norm_bias", config.norms == NormKind::kLayer); }};
}

// A layer sees all positions or those up to half of "local_attention" away, and has its own theta.
Field<EncoderConfig> layer_kinds() {
  return {[=](const ConfigFile& file, EncoderConfig& config) {
            const int64_t every = file.size("global_attn_every_n_layers", 3),
                          window = file.size("local_attention", 128);
            if (file.has("rope_scaling")) file.fail("\"rope_scaling\" is not supported");
            const auto theta = [&](const char* type, const char* old_key, double standard) {
              const ConfigFile rope = file.object("rope_parameters").object(type);
              rope.choice("rope_type", {"default"});
              return positive_of(rope, "rope_theta", positive_of(file, old_key, standard));
            };
            const double of_all = theta(kFullLayer, "global_rope_theta", 160000),
                         of_near = theta(kSlidingLayer, "local_rope_theta", 1e4);
            config.layer_kinds.clear();
            for (const bool near : sliding_layers(file, config.layers, [&](int64_t i) { return i % every != 0; }))
              config.layer_kinds.push_back({near ? window / 2 + 1 : 0, RotaryConfig{.theta = near ? of_near : of_all}});
          },
      [=](const EncoderConfig& config, ConfigFile& file) {
        std::vector<std::string> types;
        for (const LayerKind& kind : config.layer_kinds) {
          types.emplace_back(kind.window > 0 ? kSlidingLayer : kFullLayer);
          if (kind.window > 0) file.set("local_attention", 2 * (kind.window - 1));
          file.set(kind.window > 0 ? "local_rope_theta" : "global_rope_theta", kind.rotary->theta);
        }
        file.set(kLayerTypes, types);
      }};
}

// "classifier_bias", "classifier_activation" and "classifier_pooling".
Field<EncoderConfig> heads() {
  return {[](const ConfigFile& file, EncoderConfig& config) {
            config.head_biases = file.flag("classifier_bias", false);
            config.head_activation = config.pooler_activation =
                read_word(file, "classifier_activation", kActivations, Activation::kGelu);
            config.mean_pooled = file.choice("classifier_pooling", {"cls", "mean"}) == "mean";
          },
      [](const EncoderConfig& config, ConfigFile& file) {
        file.set("classifier_bias", config.head_biases);
        file.set("classifier_pooling", config.mean_pooled ? "mean" : "cls");
      }};
}
}  // namespace

FamilyList families_of_modernbert() {
  using C = EncoderConfig;
  using enum ModelHead;
  return {encoder_family({.model_type = "modernbert",
      // Its heads for tokens and spans have an extra layer and are not supported.
      .architectures = encoder_architectures("ModernBert", {kNone, kTokens, kClasses}),
      .base = {.token_types = 0,
          .dropout = 0,
          .learned_positions = false,
          .norm_place = NormPlace::kInput,
          .fused_gate = true,
          .first_attention_norm = false,
          .final_norm = true,
          .has_pooler = false,
          .pooler_norm = true},
      .fields = {field("vocab_size", &C::vocab_size, kSizes), lengths_field(8192, 50283),
          size_fields<C>({}, kEncoderLayers),
          field("hidden_activation", &C::activation, kActivations, Activation::kGelu),
          probability("embedding_dropout", &C::dropout, 0),
          probability("attention_dropout", &C::attention_dropout, 0, &C::dropout),
          probability("mlp_dropout", &C::hidden_dropout, 0), positive("norm_eps", &C::epsilon, 1e-5), norm_bias(),
          biases("attention_bias", {&Biases::attention, &Biases::output}), biases("mlp_bias", {&Biases::feed_forward}),
          layer_kinds(), heads(), fixed("decoder_bias", true)},
      .names = EncoderNames{.prefix = "model.",
          .layers = "layers.*.",
          .own = {{"bert.words", "^embeddings.tok_embeddings"}, {"bert.embedding_norm", "^embeddings.norm"},
              {"bert.norm", "^final_norm"}, {"*.self_attn.in_proj", "attn.Wqkv"}, {"*.self_attn.out_proj", "attn.Wo"},
              {"*.norm1", "attn_norm"}, {"*.linear1", "mlp.Wi"}, {"*.linear2", "mlp.Wo"}, {"*.norm2", "mlp_norm"}},
          .masked_dense = "head.dense",
          .masked_norm = "head.norm",
          .masked_bias = "decoder.bias",
          .masked_copies = {"decoder.weight"},
          .class_dense = "head.dense",
          .class_norm = "head.norm",
          .heads = {"head.*", "decoder.*", "classifier.*", "qa_outputs.*"}}})};
}
}  // namespace linnet
