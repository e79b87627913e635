#pragma once
#include <string>

#include "onnx/export_precision.h"

namespace linnet {

struct ExportOnnxRequest {
  std::string model, out;  // a run or a model folder; the folder to write
  int64_t opset = 17;
  OnnxPrecision precision = OnnxPrecision::kF32;
  bool cache = true;         // decoders take earlier keys and values
  bool joined_past = false;  // see OnnxFileOptions
};

void export_onnx(const ExportOnnxRequest& request);

}  // namespace linnet
