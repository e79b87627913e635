#include "onnx/export_folder.h"

#include <filesystem>

#include "base/files.h"

namespace linnet {

void export_onnx_folder(const PretrainedModel& model, const ParameterLayout& layout, const float* parameters,
                        const std::string& folder, const OnnxFolderOptions& options) {
  make_directories(folder);
  for (const OnnxFile& file : onnx_files(*model.module, options.files))
    write_onnx(make_onnx(layout, parameters, file, options.onnx), (std::filesystem::path(folder) / file.name).string(),
               {.most_inside = options.onnx.most_inside});
  save_companions(model, folder);
}

}  // namespace linnet
