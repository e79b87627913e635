#include <fmt/format.h>
#include <filesystem>
#include "config/config.h"
#include "formats/safetensors.h"
#include "models/nn/model_file.h"
#include "models/nn/parameter_file.h"
#include "tasks/images/image_session.h"
#include "tasks/task_table.h"
#include "training/run/run_folder.h"

namespace linnet {
namespace {
std::string line(const char* name, const std::string& value) { return fmt::format("{:<16}  {}\n", name, value); }

std::string model_text(const Config& config, const std::string& folder) {
  const ModelConfig& m = config.model;
  if (!m.from.empty()) return fmt::format("{}, started from '{}'", m.architecture, m.from);
  if (m.architecture == "cnn" || m.architecture == "resnet" || m.architecture == "vit") {
    std::string text = fmt::format("{} of depth {}", m.architecture, m.depth);
    if (m.architecture == "cnn") text = fmt::format("{}, {} filters", m.architecture, m.filters);
    if (m.architecture == "vit")
      text = fmt::format("vit, {} layers of width {}, {} heads, patches of {} x {}", m.num_encoder_layers, m.d_model,
          m.num_heads, m.patch_size, m.patch_size);
    if (!file_exists(folder + "/images.json")) return text;
    const ImageFormat format = ImageFormat::load(folder);
    return text + fmt::format(", images of {} x {} x {} {} {} {}", format.height, format.width, format.channels,
                      format.problem == TextProblem::kOneClass ? "in" : "with", format.class_names.size(),
                      format.problem == TextProblem::kOneClass ? "classes" : "outputs");
  }
  const std::string layers = m.architecture == "bert" ? std::to_string(m.num_encoder_layers)
                             : m.architecture == "gpt" || m.architecture == "llama"
                                 ? std::to_string(m.num_decoder_layers)
                                 : fmt::format("{} + {}", m.num_encoder_layers, m.num_decoder_layers);
  return fmt::format("{}, {} layers of width {}, {} heads, {} in the feed-forward layers", m.architecture, layers,
      m.d_model, m.num_heads, m.d_ff);
}

std::string data_text(const Config& config) {
  const DataConfig& data = config.data;
  for (const std::string& path : {data.train_tsv, data.train_source, data.text})
    if (!path.empty()) return data_path(data, path);
  return task_row(config).origin == ExampleOrigin::kFiles ? data.data_dir : "made by the program";
}

std::string parameters_text(const SafetensorsFile& weights) {
  int64_t count = 0;
  for (const SafetensorsEntry& entry : weights.entries()) count += entry.type.shape.elements();
  if (const auto frozen = FrozenWeights::beside(weights, FrozenWeights::Check::kShapes))
    count += frozen->parameter_count();
  return std::to_string(count);
}

double number(const SafetensorsFile& state, const char* key) {
  const auto found = state.metadata().find(key);
  return found == state.metadata().end() ? 0 : std::atof(found->second.c_str());
}

std::string training_text(const SafetensorsFile& state, const TrainConfig& train) {
  const auto step = static_cast<int64_t>(number(state, "step")),
             best = static_cast<int64_t>(number(state, "best_step"));
  const double seconds = number(state, "seconds");
  const bool out_of_time = train.max_minutes > 0 && seconds >= 60 * train.max_minutes && step < train.max_steps;
  std::string text = line("trained", fmt::format("{} of {} steps, {:.0f} s{}", step, train.max_steps, seconds,
                                         out_of_time ? ", then max_minutes was over" : ""));
  if (best == 0) return text + line("best", "not evaluated yet");
  const std::string metric =
      train.metric == "loss" ? "" : fmt::format("{} {:.4f}, ", train.metric, number(state, "best_metric"));
  return text + line("best", fmt::format("step {}: {}loss {:.4f}", best, metric, number(state, "best_loss")));
}
}  // namespace

std::string describe_run(const std::string& folder) {
  const RunFolder run(folder);
  const Config config = run.load_config();
  std::string text = line("run", folder);
  text += line("task", task_row(config).description);
  text += line("model", model_text(config, folder));
  text += line("data", data_text(config));
  const auto packed = ParameterFile::open(folder);
  if (packed) {
    packed->check_weights();
    text += line("packed", packed->words().text());
  }
  if (!packed && file_exists(run.model_path()))
    text += line("parameters", parameters_text(SafetensorsFile(run.model_path())));
  if (run.has_state()) text += training_text(SafetensorsFile(run.state_path()), config.train);
  else if (!packed)  // packed models have no training state
    text += line("trained", "nothing saved yet");
  std::error_code error;
  uintmax_t bytes = 0;
  const auto size = [](const std::filesystem::path& file) {
    std::error_code gone;  // a training run may remove files
    const uintmax_t of_file = std::filesystem::file_size(file, gone);
    return gone ? 0 : of_file;
  };
  std::filesystem::recursive_directory_iterator entry(folder, error);
  for (; !error && entry != std::filesystem::recursive_directory_iterator(); entry.increment(error))
    if (std::error_code gone; entry->is_regular_file(gone)) bytes += size(entry->path());
  if (is_packed(folder)) bytes = size(folder);
  return text + line("size", fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6));
}
}  // namespace linnet
