// Apart from text_classifier.cpp, so that a library without the import of ONNX files (src/api/runtime) has its own.
#include "tasks/texts/onnx_classifier.h"
#include "tasks/texts/text_classifier.h"
#include "training/run/pretrained_run.h"

namespace linnet {

PretrainedModel open_classification_run(const std::string& folder) {
  return is_onnx_run(folder) ? open_onnx_run(folder) : open_run_model(folder);
}

}  // namespace linnet
