// A model in one file, "model.linnet": weights, configuration and tokenizer. It is a safetensors file, so other
// programs read its weights; what else belongs to the model lies beside them as tensors of bytes:
//
//   tensors        the weights: the model's parameters as graphs read them (nn/parameter_file.h), or, of models
//                  that are only trained further, under the names of model.safetensors; then U8 tensors
//                  "linnet.file:PATH"
//   __metadata__   that of the weights, and linnet_packed (the format's version), linnet_packed_checksum (of names,
//                  types, shapes, metadata and data)
//
// The data begin at a page of the file.
//
// After use_packed_models() the file is read like a folder (base/packed_files.h), by everything that reads model
// folders and runs.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "base/packed_files.h"
#include "base/shared_file.h"
#include "io/weight_files.h"

namespace linnet {

constexpr int kPackedVersion = 2;

struct PackedContents {
  std::vector<WeightSource> weights;  // in the order of the file
  SafetensorsMetadata metadata;
  std::map<std::string, std::string> files;  // contents by path: "config.json", "1_Pooling/config.json"
};
// Replaces `path` in one step. Weights are asked for twice: for the checksum and for the file.
void save_packed_model(const std::string& path, const PackedContents& contents);

// Checks the whole file. User error of one line for one that is cut short, altered, of a newer version or no packed
// model.
PackedFiles read_packed_model(const std::string& path);
// The same of bytes, which must outlive the result; `name` stands for the path in messages.
PackedFiles read_packed_model(std::span<const std::byte> bytes, const std::string& name);

void use_packed_models();

struct OpenedPackedModel {
  explicit OpenedPackedModel(const std::string& path)
      : file(path), tensors(file.bytes(), path, SafetensorsTypes::kAll) {}
  const SharedFile file;
  const SafetensorsFile tensors;
};
// The tensors of a packed model, for which is_packed() holds; checked once, as open_packed() does.
std::shared_ptr<const OpenedPackedModel> open_packed_model(const std::string& path);

}  // namespace linnet
