// The program's commands on tasks as functions: training, planning, checks, reports and evaluation.
#include <linnet/error.h>
#include <linnet/version.h>
#include <nanobind/stl/variant.h>
#include <exception>
#include "api/python/python.h"
#include "base/files.h"
#include "base/log.h"
#include "config/hints.h"
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
  read_options(given, "config", choice.config, "settings", choice.settings, "data", choice.data, "source",
      choice.source, "target", choice.target, "steps", choice.steps, "epochs", choice.epochs, "batch", choice.batch,
      "rate", choice.learning_rate, "threads", choice.threads, "device", choice.device, "memory", choice.memory);
  return choice;
}

nb::tuple fields_of(const TrainEvent& event) {
  return nb::make_tuple(event.step, event.epoch, event.total_steps, event.loss, event.rate, event.seconds,
      event.evaluation ? nb::object(to_dict_of(event.evaluation->metrics)) : nb::none());
}

// An exception of the callback, or Ctrl-C, stops the run after saving.
nb::tuple train(
    const nb::dict& given, const std::string& run, bool resume, const std::string& init, nb::object callback) {
  const ConfigChoice choice = choice_of(given);
  std::exception_ptr failed;
  TrainRequest request{.folder = run, .resume = resume, .init = init};
  request.program = std::string("linnet for Python ") + version();
  request.on_event = [&](const TrainEvent& event) {
    const nb::gil_scoped_acquire gil;
    try {
      check_signals();
      return !callback(fields_of(event)).is(nb::handle(Py_False));
    } catch (...) {
      failed = std::current_exception();
      return false;
    }
  };
  const TrainOutcome outcome = without_gil([&] {
    request.config = choice.load(resume);
    if (!resume && init.empty()) choice.check_preset_files(request.config);
    return run_training(request, make_training_task);
  });
  if (failed) std::rethrow_exception(failed);
  const auto& progress = outcome.progress;
  const auto of_best = [&](auto value) { return progress.best_step > 0 ? nb::cast(value) : nb::none(); };
  return nb::make_tuple(run, outcome.stopped, progress.step, progress.epoch, outcome.train_seconds,
      of_best(progress.best_step), of_best(progress.best_loss), of_best(progress.best_metric));
}

nb::dict plan(const nb::dict& given, bool exact) {
  const ConfigChoice choice = choice_of(given);
  uint64_t limit = 0;
  std::string page;
  const PlanAnswer answer = without_gil([&] {
    const Config config = choice.load();
    limit = parse_byte_size(config.train.memory).value_or(available_memory());
    PlanAnswer planned = plan_memory({.config = of_one_shard(config), .memory = limit, .exact = exact});
    ReportRun run{.name = choice.config, .config = report_config(config), .memory = planned.memory_record};
    page = report_page({.title = "Memory of " + choice.config,
                           .subtitle = "Planned before training; batches of " + planned.batches,
                           .command = "plan"},
        std::span(&run, 1));
    return planned;
  });
  nb::dict found;
  found["memory"] = to_dict_of(answer.forecast.items);
  found["peak"] = answer.forecast.peak(), found["limit"] = limit;
  found["parameters"] = answer.parameters, found["batches"] = answer.batches;
  found["batch_key"] = answer.batch_key, found["largest_batch"] = answer.largest_batch;
  found["assumption"] = answer.assumption, found["recomputation"] = answer.recomputation, found["page"] = page;
  return found;
}

nb::list check(const nb::dict& given) {
  const ConfigChoice choice = choice_of(given);
  const std::vector<CheckLine> lines = without_gil([&] { return run_checks(TaskCheck(choice.load()).subject()); });
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
  const std::vector<ReportRun> runs = read_report_runs(folders);
  if (runs.empty()) fail_user("a report is about at least one run");
  if (title.empty()) title = runs.size() == 1 ? runs[0].name : std::to_string(runs.size()) + " runs";
  return report_page({.title = title, .subtitle = "", .command = "report"}, runs);
}

nb::tuple evaluate(const std::string& folder, const nb::dict& given) {
  EvaluationRequest request;
  request.folder = folder;
  read_options(given, "split", request.split, "source", request.source, "target", request.target, "data", request.data,
      "beams", request.beams, "threads", request.threads, "device", request.device, "quantize", request.quantize);
  const EvaluationAnswer answer = without_gil([&] {
    Config config = evaluation_config(folder);
    apply(request, config, folder);
    return task_actions(config).evaluate(request, config);
  });
  return nb::make_tuple(answer.result.loss, answer.result.items, to_dict_of(answer.result.metrics), answer.line);
}
}  // namespace

void add_tasks(nb::module_& module) {
  module.def("train", train);
  module.def("plan", plan);
  module.def("check", check);
  module.def("report", report, nb::call_guard<nb::gil_scoped_release>());
  module.def("evaluate", evaluate);
  module.def(
      "presets",
      [] {
        nb::dict found;
        for (const Preset& preset : presets()) found[preset.name] = preset.description;
        return found;
      },
      "The configurations that train() and plan() know by name, with a description of each.");
}
}  // namespace linnet::python
