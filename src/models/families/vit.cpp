#include "models/families/vit.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "models/families/activations.h"
#include "models/families/bert.h"
#include "models/families/family.h"

namespace linnet {
namespace {

// The one number that a key has, or the same one twice.
int64_t side_of(const ConfigFile& config, const std::string& key) {
  const std::vector<int64_t> sides = config.integers(key);
  if (sides.size() > 2 || (sides.size() == 2 && sides[0] != sides[1]))
    config.fail("\"" + key + "\" has two sizes, Linnet supports only squares");
  const int64_t side = sides.empty() ? config.size(key) : sides[0];
  if (side < 1 || side > 1 << 16) config.fail("\"" + key + "\" is " + std::to_string(side));
  return side;
}

std::vector<double> channel_values(const nlohmann::json& json, const char* key, int64_t channels, double fallback) {
  std::vector<double> values(static_cast<size_t>(channels), fallback);
  if (!json.contains(key) || json[key].is_null()) return values;
  if (json[key].is_number()) return std::vector(values.size(), json[key].get<double>());
  const auto found = json[key].get<std::vector<double>>();
  if (found.size() == values.size()) return found;
  return found.size() == 1 ? std::vector(values.size(), found[0]) : values;
}

void read_normalization(const ConfigFile& config, VitConfig& vit) {
  const std::filesystem::path folder = std::filesystem::path(config.path()).parent_path();
  const std::string path = (folder / "preprocessor_config.json").string();
  nlohmann::json json = nlohmann::json::object();
  try {
    if (!folder.empty() && file_exists(path)) json = nlohmann::json::parse(read_file(path));
    const int64_t channels = vit.images.channels;
    const bool normalizes = json.value("do_normalize", true);
    vit.mean = normalizes ? channel_values(json, "image_mean", channels, 0.5)
                          : std::vector<double>(static_cast<size_t>(channels), 0);
    vit.deviation = normalizes ? channel_values(json, "image_std", channels, 0.5)
                               : std::vector<double>(static_cast<size_t>(channels), 1);
  } catch (const nlohmann::json::exception& error) {
    config.fail("its preprocessor_config.json: " + std::string(error.what()));
  }
}

std::unique_ptr<Module> construct(const ConfigFile& config, const std::string&) {
  config.choice("problem_type", {"single_label_classification"});
  return std::make_unique<Vit>(vit_config(config));
}

void add_layer(NameTable& table, const VitConfig& config, int64_t i) {
  const std::string theirs = "vit.encoder.layer." + std::to_string(i) + ".", ours = "layers." + std::to_string(i) + ".",
                    self = theirs + "attention.attention.";
  table.add_stacked({self + "query", self + "key", self + "value"}, {config.width, config.width, config.width},
                    ours + "self_attn.in_proj", config.biases);
  table.add_linear(theirs + "attention.output.dense", ours + "self_attn.out_proj");
  table.add_linear(theirs + "layernorm_before", ours + "norm1");
  table.add_linear(theirs + "layernorm_after", ours + "norm2");
  table.add_linear(theirs + "intermediate.dense", ours + "linear1");
  table.add_linear(theirs + "output.dense", ours + "linear2");
}

NameTable names(const ConfigFile& file, const std::string&) {
  const VitConfig config = vit_config(file);
  const std::string embeddings = "vit.embeddings.";
  NameTable table;
  table.prefix = "vit.";
  table.add(embeddings + "cls_token", "cls_token");
  table.add(embeddings + "position_embeddings", "positions");
  table.add_linear(embeddings + "patch_embeddings.projection", "patches", TensorForm::kChannelsFirst);
  for (int64_t i = 0; i < config.layers; ++i) add_layer(table, config, i);
  table.add_linear("vit.layernorm", "norm");
  table.add_linear("classifier", "classifier", TensorForm::kSame, TensorRole::kHead);
  table.other_heads = {"pooler.*", "embeddings.mask_token", "decoder.*"};
  return table;
}

}  // namespace

VitConfig vit_config(const ConfigFile& config) {
  check_heads(config, "hidden_size", "num_attention_heads");
  const int64_t side = side_of(config, "image_size");
  VitConfig vit{.images = {side, side, config.size("num_channels", 3), label_count(config)},
                .patch = side_of(config, "patch_size"),
                .width = config.size("hidden_size"),
                .heads = config.size("num_attention_heads"),
                .layers = config.layers("num_hidden_layers"),
                .hidden = config.size("intermediate_size"),
                .dropout = probability_of(config, "hidden_dropout_prob", 0),
                .attention_dropout = probability_of(config, "attention_probs_dropout_prob", 0),
                .activation = activation_of(config, "hidden_act", Activation::kGelu),
                .epsilon = positive_of(config, "layer_norm_eps", 1e-12),
                .biases = config.flag("qkv_bias", true)};
  read_normalization(config, vit);
  return vit;
}

ConfigFile vit_config_file(const VitConfig& config, const std::vector<std::string>& classes) {
  const ImageShape& images = config.images;
  ConfigFile file;
  if (images.height != images.width)
    file.fail("a ViT of transformers takes square images; this one takes " + std::to_string(images.height) + " x " +
              std::to_string(images.width));
  file.set("architectures", std::vector<std::string>{kVitArchitecture});
  file.set("model_type", "vit");
  file.set("image_size", images.height);
  file.set("patch_size", config.patch);
  file.set("num_channels", images.channels);
  file.set("hidden_size", config.width);
  file.set("num_attention_heads", config.heads);
  file.set("num_hidden_layers", config.layers);
  file.set("intermediate_size", config.hidden);
  file.set("hidden_dropout_prob", config.dropout);
  file.set("attention_probs_dropout_prob", config.attention_dropout.value_or(config.dropout));
  file.set("hidden_act", activation_name(config.activation));
  file.set("layer_norm_eps", config.epsilon);
  file.set("qkv_bias", config.biases);
  file.set("dtype", "float32");
  name_labels(file, classes);
  return file;
}

std::string vit_preprocessor_file(const VitConfig& config) {
  const nlohmann::ordered_json json{{"image_processor_type", "ViTImageProcessor"},
                                    {"do_rescale", true},
                                    {"rescale_factor", 1 / 255.0},
                                    {"do_resize", true},
                                    {"size", {{"height", config.images.height}, {"width", config.images.width}}},
                                    {"resample", 2},
                                    {"do_normalize", true},
                                    {"image_mean", config.mean},
                                    {"image_std", config.deviation}};
  return json.dump(2) + "\n";
}

const Family kVitFamily{"vit", {kVitArchitecture}, construct, names};

}  // namespace linnet
