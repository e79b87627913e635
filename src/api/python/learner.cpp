// Learner: the loss is a method of the Python object, which holds all Python objects; this one holds a weak reference
// to it, so that Python's garbage collector sees every cycle.
#include "api/python/learner.h"

#include <linnet/decoder.h>
#include <linnet/error.h>
#include <linnet/learner.h>
#include <linnet/pretrained.h>

#include <cstring>
#include <exception>
#include <span>

#include "api/python/loader.h"
#include "api/python/tree.h"

namespace linnet::python {
namespace {

// The Python object, which is alive while any of its methods runs.
nb::object owner_of(const nb::object& reference) {
  nb::object owner = reference();
  if (owner.is_none()) fail_user("the learner is being destroyed");
  return owner;
}

// (sum, count or None, outputs) of Learner._record().
Loss loss_of(const nb::tuple& recorded, Tracer& tracer) {
  const auto tensor = [](nb::handle value, const char* what) {
    Operand operand{value};
    if (!nb::try_cast(value, operand))
      fail_user(std::string(what) + " is a " + nb::cast<std::string>(value.type().attr("__name__")) +
                "; the loss returns a tensor or a linnet.Loss, and outputs as a dict of tensors beside it");
    return operand.tensor();
  };
  for (const auto& [name, value] : nb::cast<nb::dict>(recorded[2]))
    tracer.output(nb::cast<std::string>(name), At(tensor(value, "an output of the loss"), python_line()));
  const Tensor sum = tensor(recorded[0], "the loss");
  return {sum, recorded[1].is_none() ? tracer.number(1, python_line()) : tensor(recorded[1], "the count of the loss")};
}

nb::dict to_dict(const StepResult& result) {
  nb::dict found;
  found["loss"] = result.loss, found["grad_norm"] = result.grad_norm, found["count"] = result.count;
  found["finite"] = result.finite, found["skipped"] = result.skipped;
  return found;
}

nb::dict to_dict(const Evaluation& evaluation) {
  nb::dict found;
  found["loss"] = evaluation.loss, found["count"] = evaluation.count;
  nb::dict metrics;
  for (const auto& [name, value] : evaluation.metrics) metrics[name.c_str()] = value;
  found["metrics"] = metrics;
  return found;
}

nb::dict to_dict(const FitEvent& event) {
  nb::dict found;
  found["step"] = event.step, found["epoch"] = event.epoch, found["loss"] = event.result.loss;
  found["mean_loss"] = event.mean_loss, found["grad_norm"] = event.result.grad_norm, found["rate"] = event.rate;
  found["evaluation"] = event.evaluation ? nb::object(to_dict(*event.evaluation)) : nb::none();
  return found;
}

Metric metric_of(nb::handle given) {
  if (PyUnicode_Check(given.ptr())) {
    const auto name = nb::cast<std::string>(given);
    if (name == "accuracy") return accuracy();
    fail_user("there is no metric \"" + name + "\"; there are \"accuracy\" and functions of (batch, outputs)");
  }
  if (!PyCallable_Check(given.ptr())) fail_user("a metric is a name or a function of (batch, outputs)");
  // The list of metrics, which the caller holds, keeps the function.
  return {nb::cast<std::string>(nb::str(nb::getattr(given, "__name__", nb::str("metric")))),
          [given](const Arrays& batch, const Arrays& outputs) -> MetricPart {
            const nb::gil_scoped_acquire gil;
            const nb::object found =
                given(linnet::python::to_dict(batch), linnet::python::to_dict(outputs), batch.samples);
            if (PyTuple_Check(found.ptr())) {
              const auto pair = nb::cast<nb::tuple>(found);
              return {nb::cast<double>(pair[0]), nb::cast<double>(pair[1])};
            }
            return {nb::cast<double>(found), 1};
          }};
}

std::vector<Metric> metrics_of(const nb::list& given) {
  std::vector<Metric> metrics;
  for (const nb::handle metric : given) metrics.push_back(metric_of(metric));
  return metrics;
}

Rate rate_of(nb::handle given) {
  if (nb::isinstance<Schedule>(given)) return nb::cast<Schedule>(given);
  if (double number = 0; nb::try_cast(given, number)) return number;
  if (!PyCallable_Check(given.ptr())) fail_user("a rate is a number, a Schedule or a function of the step");
  return std::function<double(int64_t)>([given](int64_t step) {
    const nb::gil_scoped_acquire gil;
    return nb::cast<double>(given(step));
  });
}

nb::dict fit(PyLearner& self, PyLoader& loader, const nb::dict& options) {
  FitOptions fit;
  const auto get = [&](const char* name, auto& to) { to = nb::cast<std::decay_t<decltype(to)>>(options[name]); };
  get("epochs", fit.epochs), get("max_steps", fit.max_steps), get("patience", fit.patience);
  const nb::object rate = options["rate"], on_step = options["on_step"], on_epoch = options["on_epoch"];
  fit.rate = rate_of(rate);
  const auto metrics = nb::cast<nb::list>(options["metrics"]);
  fit.metrics = metrics_of(metrics);
  const nb::object validation = options["validation"];
  if (!validation.is_none()) fit.validation = &nb::cast<PyLoader&>(validation).loader();
  fit.on_step = [&](const FitEvent& event) {
    const nb::gil_scoped_acquire gil;
    check_signals();
    self.take_shared();
    return on_step.is_none() || !on_step(to_dict(event)).is(nb::handle(Py_False));
  };
  fit.on_epoch = [&](const FitEvent& event) {
    const nb::gil_scoped_acquire gil;
    check_signals();
    return on_epoch.is_none() || !on_epoch(to_dict(event)).is(nb::handle(Py_False));
  };
  self.take_shared();
  Loader& batches = loader.loader();
  FitReport report;
  {
    const nb::gil_scoped_release free;
    report = self.learner().fit(batches, fit);
  }
  nb::dict found;
  found["steps"] = report.steps, found["epochs"] = report.epochs, found["loss"] = report.loss;
  found["reason"] = report.reason;
  found["best"] = report.best ? nb::object(to_dict(*report.best)) : nb::none();
  return found;
}

nb::object parameter_view(nb::handle core, const std::string& name) {
  auto& self = nb::cast<PyLearner&>(core);
  const std::span<float> values = self.learner().parameter(name);
  for (const ParameterSpec& spec : self.learner().parameters())
    if (spec.name == name) return numpy_view(values.data(), {DType::kF32, spec.shape}, core, true);
  fail_user("the model has no parameter \"" + name + "\"");
}

nb::dict to_dict(const LoadReport& report) {
  nb::dict found;
  found["taken"] = nb::cast(report.taken), found["fresh"] = nb::cast(report.fresh);
  found["unused"] = nb::cast(report.unused), found["different"] = nb::cast(report.different);
  return found;
}

LearnerOptions options_of(const nb::dict& given) {
  LearnerOptions options;
  const auto get = [&](const char* name, auto& to) { to = nb::cast<std::decay_t<decltype(to)>>(given[name]); };
  options.optimizer = optimizer_of(given["optimizer"]);
  for (const nb::handle group : nb::cast<nb::list>(given["groups"]))
    options.groups.push_back(nb::cast<TrainingGroup>(group));
  get("clip_norm", options.clip_norm), get("average_decay", options.average_decay);
  get("accumulate", options.accumulate), get("precision", options.precision), get("storage", options.storage);
  get("device", options.device), get("threads", options.threads), get("seed", options.seed);
  get("memory", options.memory), get("training", options.training);
  return options;
}

std::vector<InputTypes> shapes_of(const nb::list& given) {
  std::vector<InputTypes> shapes;
  for (const nb::handle types : given) shapes.push_back(to_types(nb::cast<nb::dict>(types)));
  return shapes;
}

template <class Class>
void add_steps(Class& learner) {
  learner
      .def(
          "step",
          [](PyLearner& self, const nb::list& batches, double rate) {
            self.take_shared();
            std::vector<Arrays> micro;
            for (const nb::handle batch : batches) micro.push_back(to_arrays(nb::cast<nb::dict>(batch), self.types()));
            StepResult result;
            {
              const nb::gil_scoped_release free;
              result = self.learner().step(micro, rate);
            }
            return to_dict(result);
          },
          nb::arg("batches"), nb::arg("rate"))
      .def("fit", fit, nb::arg("loader"), nb::arg("options"))
      .def(
          "evaluate",
          [](PyLearner& self, PyLoader& loader, const nb::list& metrics) {
            self.take_shared();
            const std::vector<Metric> found = metrics_of(metrics);
            Loader& batches = loader.loader();
            Evaluation result;
            {
              const nb::gil_scoped_release free;
              result = self.learner().evaluate(batches, found);
            }
            return to_dict(result);
          },
          nb::arg("loader"), nb::arg("metrics"))
      .def(
          "predict",
          [](PyLearner& self, const nb::dict& batch) {
            self.take_shared();
            const Arrays arrays = to_arrays(batch, self.types());
            Arrays outputs;
            {
              const nb::gil_scoped_release free;
              outputs = self.learner().predict(arrays);
            }
            return linnet::python::to_dict(outputs);
          },
          nb::arg("batch"));
}

template <class Class>
void add_weights(Class& learner) {
  learner.def("parameter", &parameter_view, nb::arg("name"))
      .def(
          "set_parameter",
          [](PyLearner& self, const std::string& name, nb::object values) {
            const Converted converted = convert(values, DType::kF32, "\"" + name + "\"");
            const std::span<float> to = self.learner().parameter(name);
            for (const ParameterSpec& spec : self.learner().parameters())
              if (spec.name == name && spec.shape != converted.type.shape)
                throw Error(ErrorKind::kShape, "\"" + name + "\" is " + spec.shape.text() + ", and was given " +
                                                   converted.type.shape.text());
            std::memcpy(to.data(), converted.bytes.data(), converted.bytes.size());
          },
          nb::arg("name"), nb::arg("values"))
      .def("push", [](PyLearner& self) { self.learner().push(); })
      .def(
          "gradient",
          [](PyLearner& self, const std::string& name) {
            Shape shape;
            for (const ParameterSpec& spec : self.learner().parameters())
              if (spec.name == name) shape = spec.shape;
            return numpy_of(self.learner().gradient(name), shape);
          },
          nb::arg("name"))
      .def("parameters",
           [](PyLearner& self) {
             nb::list found;
             for (const ParameterSpec& spec : self.learner().parameters())
               found.append(nb::make_tuple(spec.name, to_tuple(spec.shape), spec.trainable));
             return found;
           })
      .def(
          "save",
          [](PyLearner& self, const std::string& path) {
            const nb::gil_scoped_release free;
            self.learner().save(path);
          },
          nb::arg("path"))
      .def(
          "load",
          [](PyLearner& self, const std::string& path, bool strict, const std::string& prefix) {
            LoadReport report;
            {
              const nb::gil_scoped_release free;
              report = self.learner().load(path, {strict, prefix});
            }
            return to_dict(report);
          },
          nb::arg("path"), nb::arg("strict"), nb::arg("prefix"))
      .def(
          "load_bert",
          [](PyLearner& self, nb::object layer) {
            auto* bert = dynamic_cast<PretrainedBert*>(self.tree().find(layer));
            if (!bert) fail_user("the PretrainedBert is no part of the learner's model");
            return to_dict(bert->load(self.learner()));
          },
          nb::arg("layer"))
      .def(
          "save_bert",
          [](PyLearner& self, nb::object layer, const std::string& folder) {
            auto* bert = dynamic_cast<PretrainedBert*>(self.tree().find(layer));
            if (!bert) fail_user("the PretrainedBert is no part of the learner's model");
            bert->save(self.learner(), folder);
          },
          nb::arg("layer"), nb::arg("folder"))
      .def(
          "save_state",
          [](PyLearner& self, const std::string& path, int64_t epoch, int64_t batch) {
            const nb::gil_scoped_release free;
            self.learner().save_state(path, {epoch, batch});
          },
          nb::arg("path"), nb::arg("epoch"), nb::arg("batch"))
      .def(
          "load_state",
          [](PyLearner& self, const std::string& path) {
            const LoaderPosition position = self.learner().load_state(path);
            return nb::make_tuple(position.epoch, position.batch);
          },
          nb::arg("path"));
}

}  // namespace

PyLearner::PyLearner(nb::object owner, nb::handle model, nb::list kept, const nb::list& names, const nb::list& shapes,
                     const nb::dict& options)
    : owner_(std::move(owner)), tree_(model, std::move(kept)) {
  shapes_ = shapes_of(shapes);
  if (shapes_.empty()) fail_user("a learner needs at least one batch shape");
  const auto inputs = nb::cast<std::vector<std::string>>(names);
  const LearnerOptions chosen = options_of(options);
  const TracedLoss loss = [this, inputs](Tracer& tracer) {
    const nb::gil_scoped_acquire gil;
    const Recording recording(tree_, &tracer);
    nb::dict tensors;
    for (const std::string& name : inputs) tensors[name.c_str()] = tracer.input(name);
    return loss_of(nb::cast<nb::tuple>(owner_of(owner_).attr("_record")(tensors)), tracer);
  };
  const nb::gil_scoped_release free;
  learner_ = std::make_unique<Learner>(tree_.root(), loss, shapes_, chosen);
}

PyLearner::~PyLearner() {
  if (!nb::is_alive()) (void)learner_.release();
}

void PyLearner::share(PyLearner& other, nb::object kept) {
  for (const ParameterSpec& spec : other.learner().parameters()) {
    const nb::object found = kept.attr("get")(nb::str(spec.name.c_str()), nb::none());
    if (!found.is_none()) shared_.push_back({&other, spec.name, nb::cast<std::string>(found)});
  }
}

void PyLearner::take_shared() {
  if (shared_.empty()) return;
  bool any = false;
  for (Shared& shared : shared_) {
    if (shared.other->learner().steps() == shared.seen) continue;
    const std::span<float> from = shared.other->learner().parameter(shared.name);
    std::ranges::copy(from, learner().parameter(shared.own_name).begin());
    shared.seen = shared.other->learner().steps();
    any = true;
  }
  if (any) learner().push();
}

void add_learner(nb::module_& module) {
  nb::class_<PyLearner> learner(module, "LearnerCore");
  learner.def(nb::init<nb::object, nb::handle, nb::list, const nb::list&, const nb::list&, const nb::dict&>(),
              nb::arg("owner"), nb::arg("model"), nb::arg("kept"), nb::arg("names"), nb::arg("shapes"),
              nb::arg("options"));
  add_steps(learner);
  add_weights(learner);
  learner.def("steps", [](PyLearner& self) { return self.learner().steps(); })
      .def("memory",
           [](PyLearner& self) {
             nb::dict found;
             for (const MemoryUse& use : self.learner().memory()) found[use.kind.c_str()] = use.bytes;
             return found;
           })
      .def("shapes",
           [](PyLearner& self) {
             nb::list found;
             for (const InputTypes& types : self.shapes()) found.append(linnet::python::to_dict(types));
             return found;
           })
      .def(
          "path_of",
          [](PyLearner& self, nb::handle object) -> nb::object {
            if (const Module* found = self.tree().find(object)) return nb::cast(found->path());
            if (const Parameter* found = self.tree().find_parameter(object)) return nb::cast(found->spec().name);
            return nb::none();
          },
          nb::arg("object"))
      .def("share", &PyLearner::share, nb::arg("other"), nb::arg("names"));
}

}  // namespace linnet::python
