// Twenty training steps of PyTorch's nn.Transformer in float64, as tests/golden/make_transformer.py wrote them.
#pragma once
#include <gtest/gtest.h>
#include <cstring>
#include <string>
#include <vector>
#include "formats/safetensors.h"
#include "models/modules/transformer.h"
#include "models/nn/parameter_layout.h"

namespace linnet::testing {
inline std::vector<double> read_doubles(const SafetensorsEntry& entry) {
  std::vector<double> values(static_cast<size_t>(entry.type.shape.elements()));
  std::memcpy(values.data(), entry.data, entry.type.bytes());
  return values;
}

class TransformerGolden {
 public:
  // "post_ln_relu" or "pre_ln_gelu"; the working folder is the repository's root.
  explicit TransformerGolden(const std::string& name) : file_("tests/golden/transformer_" + name + ".safetensors") {}

  double number(const char* key) const { return std::stod(file_.metadata().at(key)); }
  bool flag(const char* key) const { return file_.metadata().at(key) == "true"; }

  TransformerConfig config() const {
    TransformerConfig config;
    const bool tied = flag("tied");
    const Shape& target = file_.at(tied ? "init.shared_embedding.weight" : "init.target_embedding.weight").type.shape;
    config.source_vocab =
        file_.at(tied ? "init.shared_embedding.weight" : "init.source_embedding.weight").type.shape[0];
    config.target_vocab = target[0];
    config.d_model = static_cast<int64_t>(number("d_model"));
    config.num_heads = static_cast<int64_t>(number("num_heads"));
    config.d_ff = static_cast<int64_t>(number("d_ff"));
    config.num_encoder_layers = static_cast<int64_t>(number("num_encoder_layers"));
    config.num_decoder_layers = static_cast<int64_t>(number("num_decoder_layers"));
    config.max_seq_len = 16;
    config.dropout = 0;
    config.norm_first = flag("norm_first");
    config.final_norm = true;
    config.activation = file_.metadata().at("activation") == "gelu" ? Activation::kGelu : Activation::kRelu;
    config.share_embeddings = config.tie_head = tied;
    return config;
  }

  // The flat buffer with "<prefix>.<name>" of the file in each parameter's slot.
  std::vector<double> flat(const ParameterLayout& layout, const std::string& prefix) const {
    std::vector<double> values(static_cast<size_t>(layout.parameter_count()));
    for (const ParameterSlot& slot : layout.parameters()) {
      const SafetensorsEntry& entry = file_.at(prefix + "." + slot.spec.name);
      EXPECT_EQ(entry.type.shape, slot.spec.shape) << slot.spec.name;
      std::memcpy(values.data() + slot.offset, entry.data, entry.type.bytes());
    }
    return values;
  }

  const SafetensorsFile& file() const { return file_; }

 protected:
  SafetensorsFile file_;
};
}  // namespace linnet::testing
