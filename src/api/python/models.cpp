// The program's commands on tasks as functions: training, planning, checks, reports and evaluation. Loaded models for
// texts, rows of numbers, scores and tokenizers, which are thread-safe.
#include <linnet/error.h>
#include <linnet/pretrained_tokenizer.h>
#include <linnet/version.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/variant.h>
#include <chrono>
#include <exception>
#include <future>
#include <mutex>
#include "api/python/python.h"
#include "base/fail.h"
#include "base/files.h"
#include "base/log.h"
#include "config/hints.h"
#include "serving/loaded/loaded_model.h"
#include "tasks/check_subject.h"
#include "tasks/planning/plan_memory.h"
#include "tasks/task_table.h"
#include "training/run/config_choice.h"
#include "training/run/run_folder.h"
#include "training/run/run_record.h"
#include "training/run/training_run.h"

namespace linnet::python {
namespace {
ConfigChoice choice_of(const nb::dict& given) {
  ConfigChoice choice;
  read_options(given, "config", choice.config, "settings", choice.settings, "data", choice.data, "valid", choice.valid,
      "test", choice.test, "source", choice.source, "target", choice.target, "steps", choice.steps, "epochs",
      choice.epochs, "batch", choice.batch, "rate", choice.learning_rate, "threads", choice.threads, "device",
      choice.device, "memory", choice.memory);
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
    return goes_on(failed, [&] { return callback(fields_of(event)); });
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
  found["all_fit"] = answer.all_fit;
  found["assumption"] = answer.assumption, found["recomputation"] = answer.recomputation, found["page"] = page;
  return found;
}

nb::list check(const nb::dict& given) {
  const ConfigChoice choice = choice_of(given);
  const std::vector<CheckLine> lines = without_gil([&] {
    TaskCheck task(choice.load());
    task.subject().before_step = let_stop;
    return run_checks(task.subject());
  });
  return to_list_of(
      lines, [](const CheckLine& line) { return nb::make_tuple(line.name, enum_name(line.verdict), line.figure); });
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

// Lets other Python threads and Ctrl-C run. is_ready() waits for milliseconds and returns whether something is there.
template <class Function> void wait_until(const ForkGuard& guard, const Function& is_ready) {
  while (!without_gil(is_ready)) {
    check_signals();
    if (guard.is_child()) fail_user("the process was forked while the model was at work");
  }
}
constexpr std::chrono::milliseconds kPatience(50);

class PyModel {
 public:
  PyModel(std::string folder, LoadedModelOptions options) : folder_(std::move(folder)), options_(std::move(options)) {
    open();
  }
  ~PyModel() { nb::is_alive() ? close() : leave(); }

  // Users of the result keep the model open. A forked process opens it anew.
  std::shared_ptr<LoadedModel> model() {
    const WithoutGil free;
    const std::lock_guard lock(mutex_);
    if (!model_) fail_user("the model '", folder_, "' is closed");
    if (guard_.is_child()) {
      leave();
      open();
      guard_ = ForkGuard();
    }
    return model_;
  }
  void close() {
    if (guard_.is_child()) return leave();
    const WithoutGil free;
    const std::lock_guard lock(mutex_);
    model_.reset();
    scorer_.reset();
  }
  std::shared_ptr<TextWorker> writer() {
    const std::shared_ptr<LoadedModel> opened = model();
    if (!opened->text) fail_user("'", folder_, "' writes no texts; its kind is ", enum_name(opened->kind));
    return {opened, opened->text.get()};
  }
  std::shared_ptr<RowWorker> rows(ModelKind kind, const char* what) {
    const std::shared_ptr<LoadedModel> opened = model();
    if (opened->kind != kind) fail_user("'", folder_, "' ", what, "; its kind is ", enum_name(opened->kind));
    return {opened, opened->rows.get()};
  }
  std::pair<double, int64_t> score(const std::string& text, const std::string& source) {
    (void)model();
    const WithoutGil free;
    const std::lock_guard lock(mutex_);
    if (!scorer_) scorer_ = open_scorer(folder_, InferenceOptions{options_});
    if (scorer_->takes_pairs() == source.empty())
      fail_user(source.empty() ? "a translation is scored with its source: score(text, source=...)"
                               : "a language model scores texts alone, without a source");
    const TextScore found = scorer_->score(text, source);
    return {found.log_probability, found.tokens};
  }
  const std::string& folder() const { return folder_; }
  const ForkGuard& guard() const { return guard_; }

 private:
  void open() { model_ = open_loaded_model(folder_, options_); }
  // Never freed: its threads are not in this process and cannot be waited for.
  void leave() {
    if (model_) new std::shared_ptr<LoadedModel>(std::move(model_));
    (void)scorer_.release();
  }

  const std::string folder_;
  const LoadedModelOptions options_;
  std::mutex mutex_;
  std::shared_ptr<LoadedModel> model_;
  std::unique_ptr<Scorer> scorer_;
  ForkGuard guard_;
};

// Generated text may be cut within a character: U+FFFD replaces invalid UTF-8.
nb::str text_of(const std::string& text) {
  return nb::steal<nb::str>(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
}

class PyStream {
 public:
  PyStream(std::shared_ptr<TextWorker> worker, TextJob job)
      : worker_(std::move(worker)), heard_(std::make_shared<HeardText>()),
        order_(worker_->submit({.job = std::move(job), .events = heard_->events()})) {
    if (order_ < 0) fail_user("too many texts wait for the model");
  }
  ~PyStream() {
    if (guard_.is_child() || !nb::is_alive()) new std::shared_ptr<TextWorker>(std::move(worker_));
    close();
  }
  void close() {
    if (std::exchange(closed_, true) || !worker_) return;
    const WithoutGil free;
    if (!heard_->ended()) worker_->cancel(order_);
  }
  // Empty at the end of the text. Thread-safe.
  std::optional<std::string> next() {
    std::optional<std::string> piece;
    if (closed_) return piece;
    wait_until(guard_, [&] { return heard_->next(piece, kPatience); });
    if (!piece && !heard_->outcome().error.empty()) throw Error(heard_->outcome().kind, heard_->outcome().error);
    return piece;
  }
  std::string finish() {
    while (next()) continue;
    return heard_->ended() ? heard_->outcome().text.text : "";
  }

 private:
  std::shared_ptr<TextWorker> worker_;
  const std::shared_ptr<HeardText> heard_;
  const ForkGuard guard_;
  const int64_t order_;
  bool closed_ = false;
};

using Pairs = std::vector<std::optional<std::string>>;  // the second text of each pair

nb::object rows_of(PyModel& model, const std::shared_ptr<RowWorker>& worker, const std::vector<std::string>& texts,
    const Pairs& pairs = {}) {
  const auto width = static_cast<int64_t>(worker->model().width);
  if (texts.empty()) return numpy_of({}, {0, width});
  const auto promise = std::make_shared<std::promise<RowOutcome>>();
  std::future<RowOutcome> future = promise->get_future();
  const bool taken = without_gil([&] {
    std::vector<RowText> tokens;
    for (size_t i = 0; i < texts.size(); ++i)
      tokens.push_back(worker->model().encode(texts[i], i < pairs.size() && pairs[i] ? &*pairs[i] : nullptr));
    return worker->submit(std::move(tokens), [promise](RowOutcome&& found) { promise->set_value(std::move(found)); });
  });
  if (!taken) fail_user("too many texts wait for the model");
  wait_until(model.guard(), [&] { return future.wait_for(kPatience) == std::future_status::ready; });
  RowOutcome outcome = future.get();
  if (!outcome.error.empty()) fail_user(outcome.error);
  return numpy_of(std::move(outcome.rows), {static_cast<int64_t>(texts.size()), width});
}

std::unique_ptr<PyStream> stream(PyModel& model, const std::string& given, bool translates) {
  const std::shared_ptr<TextWorker> worker = model.writer();
  auto& writer = worker->model();
  const TextRequest request = parse_text_request(given, {}, "the prompt");
  if (translates && !writer.answers()) fail_user("'", model.folder(), "' translates no texts; its kind is language");
  TextJob job = translates ? writer.prepare_translation(request) : writer.prepare(request);
  if (const std::string beams = std::to_string(job.choice.beams); job.choice.beams > writer.beams())
    fail_user("a search of ", beams, " beams needs linnet.load(..., beams=", beams, ")");
  job.choice.max_tokens = std::min(job.choice.max_tokens, writer.room());
  return std::make_unique<PyStream>(worker, std::move(job));
}

std::shared_ptr<const Tokenizer> tokenizer_of(const std::string& folder, bool target) {
  if (RunFolder(folder).has_config()) return load_run_tokenizer(folder, target);
  return load_pretrained_tokenizer(folder);
}

nb::dict info_of(PyModel& self) {
  nb::dict found;
  const std::shared_ptr<LoadedModel> opened = self.model();
  LoadedModel& model = *opened;
  found["folder"] = self.folder(), found["kind"] = enum_name(model.kind);
  if (model.rows) found["width"] = model.rows->model().width, found["classes"] = nb::cast(model.rows->model().classes);
  if (model.text) {
    found["max_length"] = model.text->model().room(), found["beams"] = model.text->model().beams();
    found["chat"] = model.text->model().has_chat_template();
  }
  if (RunFolder(self.folder()).has_config()) found["run"] = describe_run(self.folder());
  return found;
}

LoadedModelOptions options_of(const nb::dict& given) {
  LoadedModelOptions options;
  read_options(given, "device", options.device, "threads", options.threads, "quantize", options.quantize, "keep",
      options.keep, "adapters", options.adapters, "slots", options.text.slots, "beams", options.text.beams,
      "max_length", options.text.max_length);
  if (options.threads < 0 || options.threads > 512 || options.text.slots < 1 || options.text.slots > 1024 ||
      options.text.beams < 0 || options.text.beams > 1024 || options.text.max_length < 0)
    fail_user("threads are 0 to 512, slots 1 to 1024, beams 0 to 1024, and max_length is not negative");
  options.limits.waiting = int64_t{1} << 20;
  return options;
}

void add_tokenizer(nb::module_& module) {
  nb::class_<Tokenizer>(module, "Tokenizer", "Texts to token ids and back. Safe from several threads.")
      .def(
          "encode", [](const Tokenizer& self, const std::string& text) { return self.encode(text); }, "text"_a,
          "The tokens of a text alone, without begin and end.")
      .def(
          "decode",
          [](const Tokenizer& self, const std::vector<int32_t>& ids) {
            for (const int32_t id : ids)
              if (id < 0 || id >= self.vocab_size())
                fail_user("there is no token ", id, "; the vocabulary has ", self.vocab_size());
            return text_of(self.decode(ids));
          },
          "ids"_a, "The text of tokens, without special ones.")
      .def("piece", &Tokenizer::piece, "id"_a, "One token as its files spell it.")
      .def_prop_ro("vocab_size", &Tokenizer::vocab_size, "The number of tokens.")
      .def_prop_ro("kind", &Tokenizer::kind, "\"bpe\", \"wordpiece\", ...")
      .def("__repr__", [](const Tokenizer& self) {
        return "linnet.Tokenizer(" + self.kind() + ", " + std::to_string(self.vocab_size()) + " tokens)";
      });
  module.def("load_tokenizer", tokenizer_of, "folder"_a, "target"_a = false,
      "The tokenizer of a run or a model folder; target: of a translation's other side.");
}
}  // namespace

void add_tasks(nb::module_& module) {
  module.def("train", train);
  module.def("plan", plan);
  module.def("check", check);
  module.def("report", report, nb::call_guard<WithoutGil>());
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

void add_models(nb::module_& module) {
  add_tokenizer(module);
  nb::class_<PyStream>(module, "StreamCore")
      .def("next",
          [](PyStream& self) -> nb::object {
            const std::optional<std::string> piece = self.next();
            return piece ? nb::object(text_of(*piece)) : nb::none();
          })
      .def("finish", [](PyStream& self) { return text_of(self.finish()); })
      .def("close", &PyStream::close);
  nb::class_<PyModel>(module, "ModelCore")
      .def("__init__",
          [](PyModel* self, const std::string& folder, const nb::dict& options) {
            const LoadedModelOptions chosen = options_of(options);
            const WithoutGil free;
            new (self) PyModel(folder, chosen);
          })
      .def("stream", stream)
      .def("embed",
          [](PyModel& self, const std::vector<std::string>& texts) {
            return rows_of(self, self.rows(ModelKind::kEmbedder, "embeds no texts"), texts);
          })
      .def("classify",
          [](PyModel& self, const std::vector<std::string>& texts, const Pairs& pairs) {
            return rows_of(self, self.rows(ModelKind::kClassifier, "classifies no texts"), texts, pairs);
          })
      .def("score", &PyModel::score)
      .def("info", info_of)
      .def("close", &PyModel::close);
  module.def("is_run", [](const std::string& folder) { return RunFolder(folder).has_config(); });
  module.def(
      "export_run",
      [](const std::string& run, const std::string& folder) {
        task_actions(RunFolder(run).load_config()).export_model(run, folder);
      },
      nb::call_guard<WithoutGil>());
}
}  // namespace linnet::python
