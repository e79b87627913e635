// Training, planning, checking, reporting and evaluating by tasks: the commands of the program as functions.
#include <linnet/error.h>
#include <linnet/version.h>
#include <nanobind/stl/variant.h>

#include <exception>
#include <set>

#include "api/python/python.h"
#include "base/files.h"
#include "base/log.h"
#include "config/config.h"
#include "config/hints.h"
#include "engine/kernels/isa.h"
#include "tasks/check_subject.h"
#include "tasks/planning/plan_memory.h"
#include "tasks/task_table.h"
#include "training/run/config_choice.h"
#include "training/run/run_record.h"
#include "training/run/training_run.h"

namespace linnet::python {
namespace {

ConfigChoice choice_of(const nb::dict& given) {
  ConfigChoice choice;
  const auto get = [&](const char* name, auto& to) { to = nb::cast<std::decay_t<decltype(to)>>(given[name]); };
  get("config", choice.config), get("settings", choice.settings), get("data", choice.data);
  get("source", choice.source), get("target", choice.target), get("steps", choice.steps);
  get("epochs", choice.epochs), get("batch", choice.batch), get("rate", choice.learning_rate);
  get("threads", choice.threads), get("device", choice.device), get("memory", choice.memory);
  return choice;
}

nb::dict metrics_of(const Evaluation& evaluation) {
  nb::dict found;
  for (const auto& [name, value] : evaluation.metrics) found[name.c_str()] = value;
  return found;
}

nb::dict to_dict(const TrainEvent& event) {
  nb::dict found;
  found["step"] = event.step, found["epoch"] = event.epoch, found["total_steps"] = event.total_steps;
  found["loss"] = event.loss, found["rate"] = event.rate, found["seconds"] = event.seconds;
  found["metrics"] = event.evaluation ? nb::object(metrics_of(*event.evaluation)) : nb::none();
  return found;
}

// An exception of the callback, or Ctrl-C, ends the run as a stop does: it is saved first.
nb::dict train(const nb::dict& given, const std::string& run, bool resume, const std::string& init,
               nb::object callback) {
  const ConfigChoice choice = choice_of(given);
  std::exception_ptr failed;
  TrainRequest request{.folder = run, .resume = resume, .init = init};
  request.program = std::string("linnet for Python ") + version();
  request.on_event = [&](const TrainEvent& event) {
    const nb::gil_scoped_acquire gil;
    try {
      check_signals();
      return callback.is_none() || !callback(to_dict(event)).is(nb::handle(Py_False));
    } catch (...) {
      failed = std::current_exception();
      return false;
    }
  };
  TrainOutcome outcome;
  {
    const nb::gil_scoped_release free;
    request.config = choice.load(resume);
    outcome = run_training(request, make_training_task);
  }
  if (failed) std::rethrow_exception(failed);
  nb::dict found;
  found["run"] = run, found["stopped"] = outcome.stopped, found["steps"] = outcome.progress.step;
  found["epochs"] = outcome.progress.epoch, found["seconds"] = outcome.train_seconds;
  const auto& progress = outcome.progress;
  const auto of_best = [&](auto value) { return progress.best_step > 0 ? nb::cast(value) : nb::none(); };
  found["best_step"] = of_best(progress.best_step), found["best_loss"] = of_best(progress.best_loss);
  found["best_metric"] = of_best(progress.best_metric);
  return found;
}

nb::dict plan(const nb::dict& given, bool exact) {
  const ConfigChoice choice = choice_of(given);
  PlanAnswer answer;
  uint64_t limit = 0;
  std::string page;
  {
    const nb::gil_scoped_release free;
    const Config config = choice.load();
    limit = parse_byte_size(config.train.memory).value_or(available_memory());
    answer = plan_memory({.config = of_one_shard(config), .memory = limit, .exact = exact});
    ReportRun run{.name = choice.config, .config = report_config(config), .memory = answer.memory_record};
    page = report_page({.title = "Memory of " + choice.config,
                        .subtitle = "Planned before training; batches of " + answer.batches,
                        .command = "plan"},
                       std::span(&run, 1));
  }
  nb::dict found, memory;
  for (const MemoryItem& item : answer.forecast.items) memory[item.name.c_str()] = item.bytes;
  found["memory"] = memory, found["peak"] = answer.forecast.peak(), found["limit"] = limit;
  found["parameters"] = answer.parameters, found["batches"] = answer.batches;
  found["batch_key"] = answer.batch_key, found["largest_batch"] = answer.largest_batch;
  found["assumption"] = answer.assumption, found["recomputation"] = answer.recomputation, found["page"] = page;
  return found;
}

nb::list check(const nb::dict& given) {
  const ConfigChoice choice = choice_of(given);
  std::vector<CheckLine> lines;
  {
    const nb::gil_scoped_release free;
    TaskCheck task(choice.load());
    lines = run_checks(task.subject());
  }
  nb::list found;
  for (const CheckLine& line : lines)
    found.append(nb::make_tuple(line.name,
                                line.verdict == Verdict::kPass   ? "pass"
                                : line.verdict == Verdict::kFail ? "fail"
                                                                 : "skip",
                                line.figure));
  return found;
}

std::string report(const std::vector<std::string>& folders, std::string title) {
  const nb::gil_scoped_release free;
  std::vector<ReportRun> runs;
  for (const std::string& folder : folders) runs.push_back(read_report_run(folder));
  std::multiset<std::string> names;
  for (const ReportRun& run : runs) names.insert(run.name);
  for (size_t i = 0; i < runs.size(); ++i)
    if (names.count(runs[i].name) > 1) runs[i].name = folders[i];
  if (runs.empty()) fail_user("a report is about at least one run");
  if (title.empty()) title = runs.size() == 1 ? runs[0].name : std::to_string(runs.size()) + " runs";
  return report_page({.title = title, .subtitle = "", .command = "report"}, runs);
}

nb::dict evaluate(const std::string& folder, const nb::dict& given) {
  EvaluationRequest request;
  request.folder = folder;
  const auto get = [&](const char* name, auto& to) { to = nb::cast<std::decay_t<decltype(to)>>(given[name]); };
  get("split", request.split), get("source", request.source), get("target", request.target), get("data", request.data);
  get("beams", request.beams), get("threads", request.threads), get("device", request.device);
  get("quantize", request.quantize);
  EvaluationAnswer answer;
  {
    const nb::gil_scoped_release free;
    Config config = evaluation_config(folder);
    apply(request, config, folder);
    force_isa(config.train.isa);
    answer = task_actions(config).evaluate(request, config);
  }
  nb::dict found;
  found["loss"] = answer.result.loss, found["count"] = answer.result.items;
  found["metrics"] = metrics_of(answer.result), found["line"] = answer.line;
  return found;
}

}  // namespace

void add_tasks(nb::module_& module) {
  module.def("train", &train, nb::arg("choice"), nb::arg("run"), nb::arg("resume"), nb::arg("init"),
             nb::arg("callback").none());
  module.def("plan", &plan, nb::arg("choice"), nb::arg("exact"));
  module.def("check", &check, nb::arg("choice"));
  module.def("report", &report, nb::arg("runs"), nb::arg("title"));
  module.def("evaluate", &evaluate, nb::arg("folder"), nb::arg("options"));
  module.def(
      "presets",
      [] {
        nb::dict found;
        for (const Preset& preset : presets()) found[preset.name.c_str()] = preset.description;
        return found;
      },
      "The configurations that train() and plan() know by name, with a description of each.");
  module.def(
      "task_of", [](const std::string& config) { return std::string(task_row(load_config(config)).name); },
      nb::arg("config"));
}

}  // namespace linnet::python
