// Text classifiers from ONNX files, with their tokenizers.
#pragma once
#include "data/text/pretrained_tokenizer.h"
#include "models/families/pretrained.h"
#include "onnx/save_onnx.h"
#include "onnx/text_network.h"

namespace linnet {
// Loads the tokenizer beside an ONNX file, or above it if its folder is named "onnx". User error if there is none.
std::unique_ptr<PretrainedTokenizer> load_onnx_tokenizer(const std::string& path);

// A classifier from an ONNX file or an imported folder. If the config.json beside it names the same `classes`, they get
// its numbers, else keep their order; `classes` is set to that order. If empty, they are those of the network's logits,
// or two for a new head. The result has no family: its weights are the module's initializers.
PretrainedModel open_onnx_classifier(const std::string& path, std::vector<std::string>& classes);

// Saves the network (network.onnx), config.json and the tokenizer in a run folder.
void save_onnx_assets(const std::string& folder, const PretrainedModel& model, const PretrainedTokenizer& tokenizer);
bool is_onnx_run(const std::string& folder);
PretrainedModel open_onnx_run(const std::string& folder);

// Writes the run's network with its best weights as DIR/model.onnx, with config.json and tokenizer files. Operators
// keep the file's opset; `opset` is the requested one, 0: none.
void export_onnx_run(const std::string& folder, const std::string& out, OnnxPrecision precision, int64_t opset);
}  // namespace linnet
