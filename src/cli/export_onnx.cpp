#include "cli/export_onnx.h"

#include <filesystem>

#include "onnx/export_folder.h"
#include "run/run_folder.h"
#include "tasks/images/image_session.h"
#include "tasks/task_table.h"

namespace linnet {
namespace {

namespace fs = std::filesystem;

OnnxFolderOptions options_of(const ExportOnnxRequest& request) {
  return {.onnx = {.opset = request.opset}, .files = {.cache = request.cache, .joined_past = request.joined_past}};
}

void export_model_folder(const std::string& folder, const ExportOnnxRequest& request) {
  const PretrainedModel model = open_pretrained(folder);
  const ParameterLayout layout(*model.module);
  std::vector<float> parameters(static_cast<size_t>(layout.parameter_count()));
  load_parameters(model, layout, parameters.data());
  export_onnx_folder(model, layout, parameters.data(), request.out, options_of(request));
}

void export_image_onnx(const Config& config, const ExportOnnxRequest& request) {
  const ImageFormat format = ImageFormat::load(request.model);
  ImageSession session(config, format, /*training=*/false);
  take_run_weights(session, request.model);
  make_directories(request.out);
  for (const OnnxFile& file : onnx_files(session.image_model()))
    save_onnx(session.layout, session.store.as<float>("parameters"), file.source,
              (fs::path(request.out) / file.name).string(), options_of(request).onnx);
  format.save(request.out);
}

// A folder that is removed again, whatever happens.
struct TemporaryFolder {
  explicit TemporaryFolder(std::string path) : path(std::move(path)) {}
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string path;
};

}  // namespace

void export_onnx(const ExportOnnxRequest& request) {
  const RunFolder run(request.model);
  if (!run.has_config()) return export_model_folder(request.model, request);
  const Config config = run.load_config();
  if (task_kind(config) == TaskKind::kImages) return export_image_onnx(config, request);
  // A run has its tokenizer in forms of its own: the model folder made of it has those that other programs read.
  const TemporaryFolder folder(request.out + ".folder.tmp");
  task_actions(config).export_model(request.model, folder.path);
  export_model_folder(folder.path, request);
}

}  // namespace linnet
