#include "app/cli/export_onnx.h"

#include <filesystem>

#include "onnx/sources.h"
#include "engine/plan/state_names.h"
#include "models/families/static_scales.h"
#include "training/run/run_folder.h"
#include "tasks/texts/onnx_classifier.h"
#include "tasks/images/image_session.h"
#include "tasks/task_table.h"
#include "tasks/translation/translation_model.h"

namespace linnet {
namespace {

namespace fs = std::filesystem;

OnnxFolderOptions options_of(const ExportOnnxRequest& request) {
  OnnxFolderOptions options{.onnx = {.opset = request.opset, .precision = request.precision},
                            .files = {.cache = request.cache, .joined_past = request.joined_past}};
  if (request.precision == OnnxPrecision::kInt8Qdq)
    if (const auto scales = read_static_scales(request.model)) options.onnx.input_scales = scales->input_scales;
  return options;
}

void export_model_folder(const std::string& folder, const ExportOnnxRequest& request) {
  const PretrainedModel model = open_pretrained(folder);
  const ParameterLayout layout(*model.module);
  std::vector<float> parameters(static_cast<size_t>(layout.parameter_count()));
  load_parameters(model, layout, parameters.data());
  export_onnx_folder(model, layout, parameters.data(), request.out, options_of(request));
}

// What optimum reads of an encoder-decoder: its classes know models by the names of Transformers' families, and take
// from the configuration what generating needs. Marian is the family whose sizes ours are.
ConfigFile translation_config_file(const OpenedTranslationModel& opened) {
  const auto& t = dynamic_cast<const Transformer&>(*opened.model).config;
  const SpecialTokens& special = opened.tokenizers.special;
  ConfigFile file;
  file.set("architectures", std::vector<std::string>{"MarianMTModel"});
  file.set("model_type", "marian");
  file.set("is_encoder_decoder", true);
  file.set("vocab_size", t.source_vocab);
  file.set("decoder_vocab_size", t.target_vocab);
  file.set("d_model", t.d_model);
  file.set("encoder_layers", t.num_encoder_layers);
  file.set("decoder_layers", t.num_decoder_layers);
  for (const std::string stack : {"encoder", "decoder"}) {
    file.set(stack + "_attention_heads", t.num_heads);
    file.set(stack + "_ffn_dim", t.d_ff);
  }
  file.set("max_position_embeddings", t.max_seq_len);
  file.set("pad_token_id", static_cast<int64_t>(special.pad));
  file.set("decoder_start_token_id", static_cast<int64_t>(special.begin));
  file.set("eos_token_id", static_cast<int64_t>(special.end));
  return file;
}

// A run of the plain Transformer, which no model folder can hold.
void export_translation_onnx(const OpenedTranslationModel& opened, const ExportOnnxRequest& request) {
  const ParameterLayout layout(*opened.model);
  std::vector<float> parameters(static_cast<size_t>(layout.parameter_count()));
  opened.load_weights(layout, parameters.data());
  make_directories(request.out);
  const OnnxFolderOptions options = options_of(request);
  for (const OnnxFile& file : onnx_files(*opened.model, options.files))
    save_onnx(layout, parameters.data(), file, request.out, options.onnx);
  translation_config_file(opened).save(request.out + "/config.json");
  opened.tokenizers.save(request.out);
}

void export_image_onnx(const Config& config, const ExportOnnxRequest& request) {
  const ImageFormat format = ImageFormat::load(request.model);
  ImageSession session(config, format, /*training=*/false);
  take_run_weights(session, request.model);
  make_directories(request.out);
  for (const OnnxFile& file : onnx_files(session.image_model()))
    save_onnx(session.layout, session.store.as<float>(state::kParameters), file, request.out, options_of(request).onnx);
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
  if (task_kind(config) == TaskKind::kTranslation) {
    const OpenedTranslationModel opened = open_translation_model(request.model);
    if (!opened.pretrained) return export_translation_onnx(opened, request);
  }
  if (task_kind(config) == TaskKind::kTexts && is_onnx_run(request.model))
    return export_onnx_run(request.model, request.out, request.precision,
                           request.opset == ExportOnnxRequest{}.opset ? 0 : request.opset);
  // A run has its tokenizer in forms of its own: the model folder made of it has those that other programs read.
  const TemporaryFolder folder(request.out + ".folder.tmp");
  task_actions(config).export_model(request.model, folder.path);
  export_model_folder(folder.path, request);
}

}  // namespace linnet
