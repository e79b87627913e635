#include "onnx/export_folder.h"

#include "base/files.h"

namespace linnet {

void export_onnx_folder(const PretrainedModel& model, const ParameterLayout& layout, const float* parameters,
                        const std::string& folder, const OnnxFolderOptions& options) {
  make_directories(folder);
  for (const OnnxFile& file : onnx_files(model, options.files))
    save_onnx(layout, parameters, file, folder, options.onnx);
  save_companions(model, folder);
}

}  // namespace linnet
