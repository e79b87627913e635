#include "models/families/torchvision.h"
#include <algorithm>
#include <filesystem>
#include "base/fail.h"
#include "base/files.h"
#include "base/json.h"
#include "formats/safetensors.h"
#include "formats/tensor_file.h"
#include "formats/weight_files.h"
#include "models/modules/resnet.h"

namespace linnet {
namespace {
bool is_filter(const Shape& shape) { return shape.rank() == 4; }

Shape shape_in_file(const Shape& shape) {
  return is_filter(shape) ? Shape{shape[0], shape[3], shape[1], shape[2]} : shape;
}

constexpr const char *kHead = "fc.", *kFirst = "conv1.weight";

std::string file_of(const std::string& path) {
  if (!is_folder(path)) return path;
  const std::filesystem::path folder(path);
  return (folder / (file_exists(folder / kWeightsFile) ? kWeightsFile : kPickledFile)).string();
}

// Numbers or texts of a JSON file beside the weights; null: none.
Json beside(const std::string& file, const char* name, std::initializer_list<const char*> keys) {
  const std::string path = std::filesystem::path(file).replace_filename(name).string();
  if (!file_exists(path)) return nullptr;
  Json json = Json::parse_or_null(read_file(path), JsonLimits::settings());
  for (const char* key : keys) {
    const Json* inner = json.find(key);
    json = inner ? Json(*inner) : Json(nullptr);
  }
  return json;
}
}  // namespace

bool is_torchvision_path(const std::string& path) {
  if (!is_folder(path)) return path.ends_with(".safetensors") || path.ends_with(".pth") || path.ends_with(".bin");
  const Json type = beside(file_of(path), "config.json", {"model_type"});
  return file_exists(file_of(path)) && type.is_null() && !file_exists(path + "/config.toml") &&
         !file_exists(path + "/network.onnx");
}

TorchvisionNetwork describe_torchvision(const std::string& path) {
  const std::unique_ptr<const TensorFile> opened = open_tensor_file(file_of(path));
  const TensorFile& file = *opened;
  std::vector<int64_t> blocks;
  const auto has_block = [&](int64_t i) {
    return file.find("layer" + std::to_string(blocks.size()) + "." + std::to_string(i) + "." + kFirst) != nullptr;
  };
  do {
    blocks.push_back(0);
    while (has_block(blocks.back())) ++blocks.back();
  } while (blocks.back() > 0);
  blocks.pop_back();
  const TensorEntry *first = file.find(kFirst), *head = file.find(kHead + std::string("weight"));
  TorchvisionNetwork network{.file = file.path(),
      .depth = resnet_depth(blocks, file.find("layer1.0.conv3.weight") != nullptr),
      .mean = {0.485, 0.456, 0.406},
      .deviation = {0.229, 0.224, 0.225}};
  if (network.depth == 0 || !first || first->type.shape.rank() != 4 || !head || head->type.shape.rank() != 2)
    fail_user("'", file.path(),
        "' is no residual network of torchvision's layout (conv1.weight, layer1.0.conv1.weight, ..., fc.weight) "
        "with 18, 34, 50, 101, 152 or 6 n + 2 layers");
  network.channels = first->type.shape[1], network.classes = head->type.shape[0];
  const auto take = [&](const Json& mean, const Json& deviation) {
    if (mean.is_array() && deviation.is_array()) mean.get_to(network.mean), deviation.get_to(network.deviation);
  };
  take(beside(network.file, "config.json", {"pretrained_cfg", "mean"}),
      beside(network.file, "config.json", {"pretrained_cfg", "std"}));
  take(beside(network.file, "images.json", {"mean"}), beside(network.file, "images.json", {"deviation"}));
  if (const Json names = beside(network.file, "images.json", {"classes"}); names.is_array())
    names.get_to(network.class_names);
  return network;
}

void load_torchvision(const std::string& path, const ParameterLayout& layout, const ParameterTarget& parameters,
    bool new_head, uint64_t seed) {
  const std::unique_ptr<const TensorFile> opened = open_tensor_file(path);
  const TensorFile& file = *opened;
  std::vector<float> values;
  for (const ParameterSlot& slot : layout.parameters()) {
    const ParameterSpec& spec = slot.spec;
    float* ours = parameters.flat + slot.offset;
    if (new_head && spec.name.starts_with(kHead)) {
      initialize(spec, seed, ours);
      parameters.finish(slot);
      continue;
    }
    const TensorEntry& entry = file.at(spec.name);
    Shape shape = shape_in_file(spec.shape);
    const bool one_channel = spec.name == kFirst && shape[1] == 1 && entry.type.shape.rank() == 4;
    if (one_channel) shape.set(1, entry.type.shape[1]);
    if (entry.type.shape != shape)
      fail_user(path, ": tensor \"", entry.name, "\" has shape ", entry.type.shape.text(), ", the model needs ",
          shape.text());
    values.resize(shape.elements());
    read_floats(entry.dtype, entry.data, shape.elements(), values.data());
    if (one_channel) {
      const int64_t window = shape[2] * shape[3], channels = shape[1];
      for (int64_t i = 0; i < spec.shape.elements(); ++i) {
        ours[i] = 0;
        for (int64_t c = 0; c < channels; ++c) ours[i] += values[(i / window * channels + c) * window + i % window];
      }
    } else if (is_filter(shape)) {
      transpose_each(shape[0], shape[1], shape[2] * shape[3], values.data(), ours);
    } else {
      std::ranges::copy(values, ours);
    }
    parameters.finish(slot);
  }
  for (const TensorEntry& entry : file.entries()) {
    if (entry.name.ends_with(".num_batches_tracked")) continue;
    if (!contains(layout.parameters(), entry.name, &ParameterSlot::name))
      fail_user(path, ": the model has no tensor \"", entry.name, "\"");
  }
}

void save_torchvision(const std::string& path, const ParameterLayout& layout, const float* parameters) {
  std::vector<std::vector<float>> values;
  std::vector<SafetensorsTensor> tensors;
  for (const ParameterSlot& slot : layout.parameters()) {
    const Shape& shape = slot.spec.shape;
    const float* ours = parameters + slot.offset;
    std::vector<float>& in_file = values.emplace_back(ours, ours + shape.elements());
    if (is_filter(shape)) transpose_each(shape[0], shape[1] * shape[2], shape[3], ours, in_file.data());
    tensors.push_back({slot.spec.name, {DType::kF32, shape_in_file(shape)}, in_file.data()});
  }
  save_safetensors(path, tensors, {{"format", "pt"}});
}
}  // namespace linnet
