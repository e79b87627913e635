// A model folder in ONNX: what optimum, Transformers.js and other programs load.
#pragma once
#include "onnx/sources.h"
#include "models/families/pretrained.h"

namespace linnet {

struct OnnxFolderOptions {
  OnnxOptions onnx = {};
  OnnxFileOptions files = {};
};

// Writes the ONNX files, and config.json, generation_config.json and tokenizer files beside them.
void export_onnx_folder(const PretrainedModel& model, const ParameterLayout& layout, const float* parameters,
                        const std::string& folder, const OnnxFolderOptions& options = {});

}  // namespace linnet
