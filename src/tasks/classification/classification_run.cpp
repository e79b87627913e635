// Apart from text_classifier.cpp, so that a library without the import of ONNX files (src/api/runtime) has its own.
#include "training/run/pretrained_run.h"
#include "tasks/classification/onnx_classifier.h"
#include "tasks/classification/text_classifier.h"

namespace linnet {

PretrainedModel open_classification_run(const std::string& folder) {
  return is_onnx_run(folder) ? open_onnx_run(folder) : open_run_model(folder);
}

}  // namespace linnet
