// What the files of a model's ONNX folder compute, with the names that optimum gives them: inputs, outputs and files
// are those that its ORTModel classes look for.
#pragma once
#include <string>
#include <vector>

#include "onnx/save_onnx.h"

namespace linnet {

struct OnnxFile {
  std::string name;  // "model.onnx"
  OnnxSource source;
};

struct OnnxFileOptions {
  bool cache = true;  // decoders take and give the keys and values of earlier positions
};

// User error when there is no form of this model in ONNX. The module must outlive the result.
std::vector<OnnxFile> onnx_files(Module& module, const OnnxFileOptions& options = {});

}  // namespace linnet
