// A model in one file, "model.linnet": weights, configuration and tokenizer. It is a safetensors file, so that other
// programs read its weights; the model's other files are tensors of bytes:
//
//   tensors        parameters as graphs read them (models/nn/parameter_file.h) or, of models that are only trained
//                  further, under the names of model.safetensors; then U8 tensors "linnet.file:PATH"
//   __metadata__   that of the weights, linnet_packed (the format's version), linnet_packed_sums (a checksum of each
//                  tensor's data, 16 hexadecimal digits, by name), linnet_packed_checksum (of the rest of the header)
//
// Opening compares linnet_packed_checksum and the files' sums; the weights' sums are compared on request: before
// weights are read, or before a first text is finished (serving/loaded/workers.h). Version 2 has one checksum of
// everything, compared on opening. Data begin at a page.
//
// After use_packed_models() the file is read like a folder (base/files.h).
#pragma once
#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <vector>
#include "base/files.h"
#include "formats/weight_files.h"

namespace linnet {
constexpr int kPackedVersion = 3, kOldestPackedVersion = 2;

struct PackedContents {
  std::vector<WeightSource> weights;  // in the order of the file
  SafetensorsMetadata metadata;
  std::map<std::string, std::string> files;  // contents by path: "config.json", "1_Pooling/config.json"
};
// Replaces `path` in one step. Asks for weights twice: for the checksum and for the file.
void save_packed_model(const std::string& path, const PackedContents& contents);

// User error of one line for a damaged, newer or other file. PackedFiles::check() finds altered weights.
PackedFiles read_packed_model(const std::string& path);
// The same of bytes, which must outlive the result and are checked as a whole; `name` stands for the path in messages.
PackedFiles read_packed_model(std::span<const std::byte> bytes, const std::string& name);

void use_packed_models();

struct OpenedPackedModel {
  explicit OpenedPackedModel(const std::string& path)
      : file(path), tensors(file.bytes(), path, SafetensorsTypes::kAll) {}
  // PackedFiles::check(): compares once, from any thread; later calls check for lost pages only (base/files.h).
  void check_weights() const;
  const SharedFile file;
  const SafetensorsFile tensors;

 private:
  mutable std::mutex mutex_;
  mutable std::atomic<bool> checked_{false};
};
// The tensors of a packed model (is_packed()), read once as open_packed() does.
std::shared_ptr<const OpenedPackedModel> open_packed_model(const std::string& path);
}  // namespace linnet
