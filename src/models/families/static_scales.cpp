#include "models/families/static_scales.h"
#include "base/fail.h"
#include "base/files.h"
#include "base/json.h"
#include "engine/ops/quantized/quantized.h"
#include "formats/safetensors.h"
#include "formats/weight_files.h"
#include "models/families/binding.h"
#include "models/nn/parameter_file.h"

namespace linnet {
namespace {
constexpr const char* kFormat = "linnet static int8";
constexpr int kVersion = 1;

std::string path_of(const std::string& folder) { return folder + "/" + kStaticScalesFile; }

void add_scale(StaticScales& scales, const std::string& weight, float scale, const std::string& path) {
  if (!(scale > 0 && std::isfinite(scale))) fail_user("'", path, "': the scale of ", weight, " is no number above 0");
  scales.input_scales[weight] = scale;
}

StaticScales parse(const std::string& path) {
  try {
    const Json json = Json::parse(read_file(path), JsonLimits::settings());
    if (json.at("format") != kFormat) fail_user("'", path, "' holds no scales of static int8");
    if (json.at("version").get<int>() != kVersion)
      fail_user("'", path, "' is of version ", json.at("version").dump(), "; this program reads version ", kVersion);
    StaticScales scales{.method = json.at("method").text(),
        .examples = json.at("examples").get<int64_t>(),
        .keep = json.at("keep").get<std::vector<std::string>>()};
    for (const auto& [weight, scale] : json.at("input_scales").items())
      add_scale(scales, weight, scale.get<float>(), path);
    return scales;
  } catch (const JsonError& error) {
    fail_user("'", path, "' is damaged: ", error.what());
  }
}

std::optional<StaticScales> trained_scales(const std::string& folder) {  // the steps among the weights
  const std::string path = folder + "/" + kWeightsFile;
  if (!file_exists(path)) return {};
  StaticScales scales{.method = "training"};
  const SafetensorsFile file(path, SafetensorsTypes::kAll);
  for (const SafetensorsEntry& entry : file.entries()) {
    const std::string weight = weight_of_input_step(entry.name);
    if (weight.empty() || entry.dtype != FileDType::kF32 || entry.type.shape.elements() != 1) continue;
    float step = 0;
    std::memcpy(&step, entry.data, sizeof step);
    add_scale(scales, weight, std::max(step, kLeastStep), path);
  }
  if (scales.input_scales.empty()) return {};
  return scales;
}
}  // namespace

std::optional<StaticScales> read_static_scales(const std::string& folder) {
  if (file_exists(path_of(folder))) return parse(path_of(folder));
  return trained_scales(folder);
}

std::string static_scales_file(const StaticScales& scales) {
  Json json{{"format", kFormat}, {"version", kVersion}, {"method", scales.method}, {"examples", scales.examples},
      {"keep", scales.keep}, {"input_scales", Json::object()}};
  for (const auto& [weight, scale] : scales.input_scales) json["input_scales"][weight] = scale;
  return json.dump(1) + "\n";
}

void write_static_scales(const std::string& folder, const StaticScales& scales) {
  write_file_atomically(path_of(folder), static_scales_file(scales));
}

WeightQuantization folder_quantization(
    const std::string& folder, const std::string& word, const std::vector<std::string>& keep) {
  const bool has_network = folder.ends_with(".onnx") || file_exists(folder + "/network.onnx");
  if (has_network && (word.starts_with("int") || word == "static"))
    fail_user("'", folder, "' has a network from an ONNX file, whose weights cannot be quantized: they stay in fp32");
  if (!word.empty() && word != "static") return quantization_of(folder, parse_quantization(word, keep));
  if (WeightQuantization packed = quantization_of(folder, {}); word.empty() && packed.any()) {
    const auto scales = packed.linear == WeightFormat::kInt8 ? read_static_scales(folder) : std::nullopt;
    if (scales) packed.input_scales = scales->input_scales;
    return packed;
  }
  if (word.empty() && is_gguf(folder)) return {.blocks = parameters_in_blocks(folder), .keep = keep};
  const std::optional<StaticScales> scales = read_static_scales(folder);
  if (!scales && word == "static")
    fail_user("'", folder, "' has no scales for static int8; `linnet quantize ", folder,
        " --calibrate FILE -o OUT` finds them");
  if (!scales) return parse_quantization("none", keep);
  WeightQuantization quantization = parse_quantization("int8", keep);
  quantization.keep.insert(quantization.keep.end(), scales->keep.begin(), scales->keep.end());
  quantization.input_scales = scales->input_scales;
  return quantization;
}
}  // namespace linnet
