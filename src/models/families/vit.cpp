#include "models/families/vit.h"
#include <filesystem>
#include "base/files.h"
#include "models/families/config_file.h"

namespace linnet {
namespace {
// A key with one number, or the same twice.
int64_t side_of(const ConfigFile& file, const std::string& key) {
  const std::vector<int64_t> sides = file.integers(key);
  if (sides.size() > 2 || (sides.size() == 2 && sides[0] != sides[1]))
    file.fail("\"", key, "\" has two sizes, Linnet supports only squares");
  const int64_t side = sides.empty() ? file.size(key) : sides[0];
  if (side < 1 || side > 1 << 16) file.fail("\"", key, "\" is ", side);
  return side;
}

Field<VitConfig> patch_field() {
  return {[](const ConfigFile& file, VitConfig& config) { config.patch = side_of(file, "patch_size"); },
      [](const VitConfig& config, ConfigFile& file) { file.set("patch_size", config.patch); }};
}
Field<VitConfig> image_field() {
  return {[](const ConfigFile& file, VitConfig& config) {
            const int64_t side = side_of(file, "image_size"),
                          channels = file.has("num_channels") ? integer_in(file, "num_channels", kWidths) : 3;
            config.images = {side, side, channels, label_count(file)};
          },
      [](const VitConfig& config, ConfigFile& file) {
        file.set("image_size", config.images.height);
        file.set("num_channels", config.images.channels);
      }};
}

void read_normalization(const ConfigFile& file, VitConfig& config) {
  const std::filesystem::path folder = std::filesystem::path(file.path()).parent_path();
  const ConfigFile own =
      folder.empty() ? ConfigFile() : ConfigFile::if_exists((folder / "preprocessor_config.json").string());
  const double scale = own.flag("do_rescale", true) ? positive_of(own, "rescale_factor", 1 / 255.0) : 1;
  // One number per channel, for pixels divided by 255; a single number in the file is for all channels.
  const auto values = [&](const char* key, double without) {
    std::vector<double> found = own.flag("do_normalize", true) ? own.numbers(key) : std::vector{without};
    if (std::ssize(found) != config.images.channels)
      found.assign(static_cast<size_t>(config.images.channels), found.size() == 1 ? found[0] : 0.5);
    for (double& value : found) value /= 255 * scale;
    return found;
  };
  config.mean = values("image_mean", 0), config.deviation = values("image_std", 1);
}

Fields<VitConfig> vit_fields() {
  using C = VitConfig;
  return {image_field(), patch_field(), size_fields<C>(), probability("hidden_dropout_prob", &C::dropout, 0),
      probability("attention_probs_dropout_prob", &C::attention_dropout, 0, &C::dropout),
      field("hidden_act", &C::activation, kActivations, Activation::kGelu),
      positive("layer_norm_eps", &C::epsilon, 1e-12), field("qkv_bias", &C::biases, true), {read_normalization}};
}

NameTable vit_names(const VitConfig&, ModelHead, const Module& model) {
  using enum TensorForm;
  NameTable table{.prefix = "vit.", .other_heads = {"pooler.*", "embeddings.mask_token", "decoder.*"}};
  table.add(model,
      in_full(
          {{"cls_token", "^embeddings.cls_token"}, {"positions", "^embeddings.position_embeddings"},
              {"patches", "^embeddings.patch_embeddings.projection", kChannelsFirst},
              {"*.self_attn.in_proj", "attention.attention.query attention.attention.key attention.attention.value"},
              {"*.self_attn.out_proj", "attention.output.dense"}, {"*.norm1", "layernorm_before"},
              {"*.norm2", "layernorm_after"}, {"*.linear1", "intermediate.dense"}, {"*.linear2", "output.dense"},
              {"norm", "^layernorm"}, {"classifier", "classifier", kSame, TensorRole::kHead}},
          table.prefix, "layers.*.", "^encoder.layer.*."));
  return table;
}
}  // namespace

std::unique_ptr<Module> make_model(const VitConfig& config, const ConfigFile& file, ModelHead) {
  file.choice("problem_type", {"single_label_classification", "multi_label_classification", "regression"});
  return std::make_unique<Vit>(config);
}

VitConfig vit_config(const ConfigFile& file) { return find_family_as<VitFamily>("vit").read(file); }

ConfigFile vit_config_file(const VitConfig& config, const std::vector<std::string>& classes) {
  const ImageShape& images = config.images;
  ConfigFile file = find_family_as<VitFamily>("vit").write(config, ModelHead::kClasses);
  if (images.height != images.width)
    file.fail("a ViT of transformers takes square images; this one takes ", images.height, " x ", images.width);
  name_labels(file, classes);
  return file;
}

std::string vit_preprocessor_file(const VitConfig& config, const std::string& fit) {
  const bool crops = fit == "crop";
  ConfigFile size, shortest, file;
  size.set("height", config.images.height);
  size.set("width", config.images.width);
  shortest.set("shortest_edge", config.images.height);
  // ViTImageProcessor of transformers 4 does not crop.
  file.set("image_processor_type", crops ? "CLIPImageProcessor" : "ViTImageProcessor");
  file.set("do_convert_rgb", config.images.channels == 3);
  file.set("do_rescale", true);
  file.set("rescale_factor", 1 / 255.0);
  file.set("do_resize", true);
  file.set("size", crops ? shortest : size);
  file.set("do_center_crop", crops);
  file.set("crop_size", size);
  file.set("resample", 3);
  file.set("image_fit", fit);
  file.set("do_normalize", true);
  file.set("image_mean", config.mean);
  file.set("image_std", config.deviation);
  return file.dump();
}

FamilyList families_of_vit() {
  return {std::make_shared<VitFamily>(FamilyTable<VitConfig>{.model_type = "vit",
      .architectures = {{"ViTForImageClassification", ModelHead::kClasses}},
      .fields = vit_fields(),
      .names = vit_names})};
}
}  // namespace linnet
