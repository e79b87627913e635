// Classifiers of texts that start from an ONNX file: the network and its tokenizer, as folders and runs have them.
#pragma once
#include <memory>
#include <string>
#include <vector>
#include "data/text/pretrained_tokenizer.h"
#include "models/families/pretrained.h"
#include "onnx/save_onnx.h"
#include "onnx/text_network.h"

namespace linnet {

// The tokenizer's files that lie beside an ONNX file, or in the folder above it where it is in one named "onnx". User
// error when there are none.
std::unique_ptr<PretrainedTokenizer> load_onnx_tokenizer(const std::string& path);

// The network of an ONNX file, or of an imported folder, as a classifier. The classes get the numbers that the
// config.json beside it gives them, if it names the same ones, and their order else; `classes` is set to that order.
// Without classes they are those of the network's logits, or two that a new head tells apart.
// The result has no family: its weights are those of the module's initializers.
PretrainedModel open_onnx_classifier(const std::string& path, std::vector<std::string>& classes);

// What a run folder keeps of it: the network (network.onnx), config.json and the tokenizer.
void save_onnx_assets(const std::string& folder, const PretrainedModel& model, const PretrainedTokenizer& tokenizer);
bool is_onnx_run(const std::string& folder);
PretrainedModel open_onnx_run(const std::string& folder);

// Writes the run's network with its best weights as DIR/model.onnx, beside config.json and the tokenizer's files.
// The operators stay of the file's opset; `opset` is the one asked for, 0: none.
void export_onnx_run(const std::string& folder, const std::string& out, OnnxPrecision precision, int64_t opset);

}  // namespace linnet
