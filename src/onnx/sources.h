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
  // Of a merged decoder: what it computes when its input "use_cache_branch" is true; `source` is what it does else.
  std::optional<OnnxSource> with_past = {};
};

struct OnnxFileOptions {
  bool cache = true;  // decoders take and give the keys and values of earlier positions
};

OnnxModel make_onnx(const ParameterLayout& layout, const float* parameters, const OnnxFile& file,
                    const OnnxOptions& options);

// User error when there is no form of this model in ONNX. The module must outlive the result.
std::vector<OnnxFile> onnx_files(Module& module, const OnnxFileOptions& options = {});

}  // namespace linnet
