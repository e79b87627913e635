#include "training/run/anomaly.h"

#include <cstring>

#include "base/error.h"
#include "engine/plan/state_names.h"
#include "formats/safetensors.h"

namespace linnet {
namespace {

bool is_left_out(const std::string& name) { return state::is_moment(name) || state::is_gradient(name); }

const Graph& step_graph(const Trainer& trainer, int shape) { return trainer.step_plans(shape).front().forward->graph; }

}  // namespace

std::string anomaly_path(const std::string& run_folder) { return run_folder + "/anomaly.safetensors"; }

void save_anomaly(const std::string& run_folder, const TrainingTask& task, Trainer& trainer, int shape, int64_t step) {
  trainer.pull_states();
  const Graph& graph = step_graph(trainer, shape);
  std::vector<SafetensorsTensor> tensors;
  for (const GraphInput& input : graph.inputs())
    if (!is_left_out(input.name))
      tensors.push_back({input.name, graph.value(input.value).type, task.store().data(input.name)});
  save_safetensors(anomaly_path(run_folder), tensors,
                   {{"format", "linnet anomaly"}, {"step", std::to_string(step)}, {"shape", std::to_string(shape)}});
}

std::string replay_anomaly(const std::string& run_folder, TrainingTask& task) {
  const std::string path = anomaly_path(run_folder);
  if (!file_exists(path))
    fail_user("run '" + run_folder +
              "' has kept no step to replay; `linnet train --detect-anomaly` keeps one that is " + "not finite");
  const SafetensorsFile file(path);
  file.check_data();
  const auto fact = [&](const char* name) {
    const auto found = file.metadata().find(name);
    return found == file.metadata().end() ? "" : found->second;
  };
  const int shape = std::atoi(fact("shape").c_str());
  Trainer& trainer = task.trainer();
  if (!trainer.plans().contains("train." + std::to_string(shape)))
    fail_user("'" + path + "' is of another model or other data");
  const Graph& graph = step_graph(trainer, shape);
  for (const GraphInput& input : graph.inputs()) {
    if (is_left_out(input.name)) continue;
    const SafetensorsEntry& entry = file.at(input.name);
    if (entry.type != graph.value(input.value).type)
      fail_user("'" + path + "': " + input.name + " is " + entry.text() + ", the model's is " +
                graph.value(input.value).type.text());
    std::memcpy(task.store().data(input.name), entry.data, entry.bytes());
  }
  trainer.push_states();
  const std::string where = trainer.find_non_finite(shape);
  return "step " + fact("step") + ": " + (where.empty() ? "every value is finite" : "first at " + where);
}

}  // namespace linnet
