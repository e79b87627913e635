// A model in one file, "model.linnet": weights, configuration and tokenizer. It is a safetensors file, so other
// programs read its weights; what else belongs to the model lies beside them as tensors of bytes:
//
//   tensors        the weights: the model's parameters as graphs read them (models/nn/parameter_file.h), or, of models
//                  that are only trained further, under the names of model.safetensors; then U8 tensors
//                  "linnet.file:PATH"
//   __metadata__   that of the weights, and linnet_packed (the format's version), linnet_packed_sums (a checksum of
//                  each tensor's data, 16 hexadecimal digits, in the order of the names), linnet_packed_checksum (of
//                  the other metadata, names, types and shapes)
//
// Opening compares linnet_packed_checksum and the sums of the files; the sums of the weights are compared when somebody
// asks for it: before the weights are read, or before a first text is finished (serving/loaded/text_worker.h). Version
// 2 had one checksum of everything, which is compared when such a file is opened. The data begin at a page of the file.
//
// After use_packed_models() the file is read like a folder (base/packed_files.h).
#pragma once
#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <vector>
#include "base/packed_files.h"
#include "formats/weight_files.h"

namespace linnet {

constexpr int kPackedVersion = 3, kOldestPackedVersion = 2;

struct PackedContents {
  std::vector<WeightSource> weights;  // in the order of the file
  SafetensorsMetadata metadata;
  std::map<std::string, std::string> files;  // contents by path: "config.json", "1_Pooling/config.json"
};
// Replaces `path` in one step. Weights are asked for twice: for the checksum and for the file.
void save_packed_model(const std::string& path, const PackedContents& contents);

// User error of one line for a file that is cut short, altered, of a newer version or no packed model; what is altered
// in the weights is found by PackedFiles::check().
PackedFiles read_packed_model(const std::string& path);
// The same of bytes, which must outlive the result and are checked as a whole; `name` stands for the path in messages.
PackedFiles read_packed_model(std::span<const std::byte> bytes, const std::string& name);

void use_packed_models();

struct OpenedPackedModel {
  explicit OpenedPackedModel(const std::string& path)
      : file(path), tensors(file.bytes(), path, SafetensorsTypes::kAll) {}
  // PackedFiles::check(): compares once, from any thread; later calls ask for lost pages alone (base/lost_pages.h).
  void check_weights() const;
  const SharedFile file;
  const SafetensorsFile tensors;

 private:
  mutable std::mutex mutex_;
  mutable std::atomic<bool> checked_{false};
};
// The tensors of a packed model, for which is_packed() holds; read once, as open_packed() does.
std::shared_ptr<const OpenedPackedModel> open_packed_model(const std::string& path);

}  // namespace linnet
