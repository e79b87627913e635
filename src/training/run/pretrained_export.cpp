#include "base/error.h"
#include "models/nn/model_file.h"
#include "models/families/static_scales.h"
#include "training/run/pretrained_run.h"
#include "training/run/run_folder.h"
#include "training/trainer/trainer.h"

namespace linnet {

void export_adapters(const std::string& folder, const std::string& out) {
  const Config config = RunFolder(folder).load_config();
  if (config.lora.rank == 0) fail_user("run '" + folder + "' has no adapters: it was trained without lora.rank");
  const PretrainedModel model = open_run_model(folder);
  const ParameterLayout layout(*model.module);
  std::vector<float> parameters(static_cast<size_t>(layout.parameter_count()));
  load_model(RunFolder(folder).best_weights(), layout, parameters.data());
  save_adapters(model, layout, parameters.data(), config.model.from, out);
}

void export_pretrained_run(const std::string& folder, const std::string& out) {
  const PretrainedModel model = open_run_model(folder);
  const ParameterLayout layout(*model.module);
  std::vector<float> parameters(static_cast<size_t>(layout.parameter_count()));
  load_model(RunFolder(folder).best_weights(), layout, parameters.data());
  save_pretrained(model, layout, parameters.data(), out, {.files = open_run_tokenizer(folder)->files()});
  if (const auto scales = read_static_scales(folder)) write_static_scales(out, *scales);
}

void load_initial_weights(Trainer& trainer, const PretrainedModel& model, const Config& config) {
  if (trainer.layout().division()) return;  // load_divided_weights() takes them
  trainer.load_parameters([&](const ParameterTarget& parameters) {
    load_parameters(model, trainer.layout(), parameters, static_cast<uint64_t>(config.train.seed));
  });
}

}  // namespace linnet
