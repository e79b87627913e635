// Training and generation. The Python object of a learner holds all Python objects, and its method is the loss;
// PyLearner has a weak reference to it, so that Python's garbage collector sees every cycle.
#include "api/python/learner.h"
#include <linnet/decoder.h>
#include <linnet/error.h>
#include <linnet/onnx.h>
#include <linnet/optimizer.h>
#include <linnet/pretrained.h>
#include <linnet/schedule.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/variant.h>
#include <map>
#include "base/fail.h"
#include "base/functions.h"
#include "base/text.h"
#include "training/run/run_setup.h"

namespace linnet::python {
namespace {
// The Python object, which is alive while any of its methods runs.
nb::object owner_of(const nb::object& reference) {
  nb::object owner = reference();
  if (owner.is_none()) fail_user("the learner is being destroyed");
  return owner;
}

// Reads (sum, count or None, outputs) of Learner._record().
Loss loss_of(const nb::tuple& recorded, Tracer& tracer) {
  const auto tensor = [](nb::handle value) { return nb::cast<Operand>(value).tensor(); };
  for (const auto& [name, value] : nb::cast<nb::dict>(recorded[2]))
    tracer.output(nb::cast<std::string>(name), At(tensor(value), python_line()));
  const Tensor sum = tensor(recorded[0]);
  return {sum, recorded[1].is_none() ? tracer.number(1, python_line()) : tensor(recorded[1])};
}

// Fields of the NamedTuples in python/linnet/learner.py, in order.
nb::tuple fields_of(const Evaluation& evaluation) {
  return nb::make_tuple(evaluation.loss, evaluation.count, to_dict_of(evaluation.metrics));
}

nb::object fields_of(const std::optional<Evaluation>& evaluation) {
  return evaluation ? nb::object(fields_of(*evaluation)) : nb::none();
}

nb::tuple fields_of(const FitEvent& event) {
  return nb::make_tuple(event.step, event.epoch, event.result.loss, event.mean_loss, event.result.grad_norm, event.rate,
      fields_of(event.evaluation));
}

nb::tuple fields_of(const LoadReport& report) {
  return nb::make_tuple(report.taken, report.fresh, report.unused, report.different);
}

// "accuracy", or a function of (batch, outputs, samples) that returns (sum, count).
Metric metric_of(nb::handle given) {
  if (PyUnicode_Check(given.ptr())) return accuracy();
  // The caller's list of metrics keeps the function alive.
  return {
      nb::cast<std::string>(given.attr("__name__")), [given](const Arrays& batch, const Arrays& outputs) -> MetricPart {
        const WithGil gil;
        const nb::object found = given(to_dict(batch), to_dict(outputs), batch.samples);
        return {nb::cast<double>(found[0]), nb::cast<double>(found[1])};
      }};
}

std::vector<Metric> metrics_of(const nb::list& given) { return mapped(given, metric_of); }

Rate rate_of(nb::handle given) {
  if (nb::isinstance<Schedule>(given)) return nb::cast<Schedule>(given);
  if (double number = 0; nb::try_cast(given, number)) return number;
  if (!PyCallable_Check(given.ptr())) fail_user("a rate is a number, a Schedule or a function of the step");
  return std::function<double(int64_t)>([given](int64_t step) {
    const WithGil gil;
    const nb::object found = given(step);
    double number = 0;
    if (!nb::try_cast(found, number))
      fail_user("the function of the learning rate returned a ", class_name(found), "; a number is wanted");
    return number;
  });
}

nb::tuple fit(PyLearner& self, PyLoader& loader, const nb::dict& options) {
  FitOptions fit;
  read_options(options, "epochs", fit.epochs, "max_steps", fit.max_steps, "patience", fit.patience);
  const nb::object rate = options["rate"], on_step = options["on_step"], on_epoch = options["on_epoch"];
  fit.rate = rate_of(rate);
  const auto metrics = nb::cast<nb::list>(options["metrics"]);
  fit.metrics = metrics_of(metrics);
  const nb::object validation = options["validation"];
  if (!validation.is_none()) fit.validation = &nb::cast<PyLoader&>(validation).loader();
  const auto hear = [](const nb::object& callback, const FitEvent& event) {
    const WithGil gil;
    check_signals();
    return callback.is_none() || !callback(fields_of(event)).is(nb::handle(Py_False));
  };
  fit.on_step = [&](const FitEvent& event) { return hear(on_step, event); };
  fit.on_epoch = [&](const FitEvent& event) { return hear(on_epoch, event); };
  fit.before_validation_batch = let_stop;
  Loader& batches = loader.loader();
  const FitReport report = without_gil([&] { return self.learner().fit(batches, fit); });
  return nb::make_tuple(report.steps, report.epochs, report.loss, report.reason, fields_of(report.best));
}

Shape shape_of(const Learner& learner, const std::string& name) {
  for (const ParameterSpec& spec : learner.parameters())
    if (spec.name == name) return spec.shape;
  fail_user("the model has no parameter \"", name, "\"");
}

PretrainedBert& bert_of(PyLearner& self, nb::handle layer) {
  auto* bert = dynamic_cast<PretrainedBert*>(self.tree().find(layer));
  if (!bert) fail_user("the PretrainedBert is no part of the learner's model");
  return *bert;
}

Optimizer optimizer_of(nb::handle given) {
  Optimizer found;
  if (!nb::try_cast(given, found))
    fail_user("the optimizer is a ", class_name(given),
        "; it is one of Sgd, Adam, AdamW, AdamW8bit, Lion, Muon and Adafactor");
  return found;
}

LearnerOptions options_of(const nb::dict& given) {
  LearnerOptions options;
  options.optimizer = optimizer_of(given["optimizer"]);
  for (const nb::handle group : nb::cast<nb::list>(given["groups"]))
    options.groups.push_back(nb::cast<TrainingGroup>(group));
  read_options(given, "clip_norm", options.clip_norm, "average_decay", options.average_decay, "accumulate",
      options.accumulate, "precision", options.precision, "storage", options.storage, "device", options.device,
      "threads", options.threads, "seed", options.seed, "memory", options.memory, "training", options.training);
  return options;
}

// `outputs`: takes a dict of the inputs, and returns one of operands.
void write_onnx(PyLearner& self, const nb::callable& outputs, const nb::dict& inputs, const std::string& path,
    const std::map<std::string, std::map<int, std::string>>& open_axes, int64_t opset) {
  const InputTypes types = to_types(inputs);
  export_onnx(self.learner(), types,
      [&](Tracer& tracer) {
        const Recording recording(self.tree(), &tracer);
        nb::dict tensors;
        for (const auto& [name, type] : types) tensors[name.c_str()] = tracer.input(name);
        for (const auto& [name, value] : nb::cast<nb::dict>(outputs(tensors)))
          tracer.output(nb::cast<std::string>(name), nb::cast<Operand>(value).at());
      },
      path, {open_axes, opset});
}

void add_steps(nb::class_<PyLearner>& learner) {
  learner
      .def("step",
          [](PyLearner& self, const nb::list& batches, double rate) {
            const auto micro =
                mapped(batches, [&](nb::handle batch) { return to_arrays(nb::cast<nb::dict>(batch), self.types()); });
            const StepResult result = without_gil([&] { return self.learner().step(micro, rate); });
            return nb::make_tuple(result.loss, result.grad_norm, result.count, result.finite, result.skipped);
          })
      .def("fit", fit)
      .def("evaluate",
          [](PyLearner& self, PyLoader& loader, const nb::list& given) {
            const std::vector<Metric> metrics = metrics_of(given);
            Loader& batches = loader.loader();
            return fields_of(without_gil([&] { return self.learner().evaluate(batches, metrics, let_stop); }));
          })
      .def("predict", [](PyLearner& self, const nb::dict& batch, int64_t number) {
        const Arrays arrays = to_arrays(batch, self.types());
        return to_dict(without_gil([&] { return self.learner().predict(arrays, number); }));
      });
}

void add_weights(nb::class_<PyLearner>& learner) {
  learner
      .def("parameter",
          [](nb::handle core, const std::string& name) {
            Learner& self = nb::cast<PyLearner&>(core).learner();
            float* values = self.parameter(name).data();
            return numpy_view(values, {DType::kF32, shape_of(self, name)}, core, true);
          })
      .def("push", [](PyLearner& self) { self.learner().push(); })
      .def("gradient",
          [](PyLearner& self, const std::string& name) {
            std::vector<float> values = self.learner().gradient(name);
            return numpy_of(std::move(values), shape_of(self.learner(), name));
          })
      .def("parameters",
          [](PyLearner& self) {
            return to_list_of(self.learner().parameters(), [](const ParameterSpec& spec) {
              return nb::make_tuple(spec.name, to_tuple(spec.shape), spec.trainable);
            });
          })
      .def("save", [](PyLearner& self, const std::string& path,
                       const std::string& type) { without_gil([&] { self.learner().save(path, type); }); })
      .def("load",
          [](PyLearner& self, const std::string& path, bool strict, const std::string& prefix, int filters) {
            const LoadOptions options{strict, prefix, static_cast<FilterLayout>(filters)};
            return fields_of(without_gil([&] { return self.learner().load(path, options); }));
          })
      .def("load_bert",
          [](PyLearner& self, nb::object layer) { return fields_of(bert_of(self, layer).load(self.learner())); })
      .def("save_bert", [](PyLearner& self, nb::object layer,
                            const std::string& folder) { bert_of(self, layer).save(self.learner(), folder); })
      .def("export_onnx", write_onnx)
      .def("save_state",
          [](PyLearner& self, const std::string& path, int64_t epoch, int64_t batch) {
            without_gil([&] { self.learner().save_state(path, {epoch, batch}); });
          })
      .def("load_state", [](PyLearner& self, const std::string& path) {
        const LoaderPosition position = self.learner().load_state(path);
        return nb::make_tuple(position.epoch, position.batch);
      });
}

template <class T> void add_adam(nb::module_& module, const char* name, double weight_decay) {
  nb::class_<T>(module, name,
      "beta1, beta2: decays of the moments; epsilon: added to the root of the second; weight_decay: of matrices.")
      .def(nb::init<double, double, double, double>(), nb::kw_only(), "beta1"_a = 0.9, "beta2"_a = 0.999,
          "epsilon"_a = 1e-8, "weight_decay"_a = weight_decay)
      .def("__repr__", [name](const T& self) {
        return printed("linnet.%s(beta1=%g, beta2=%g, epsilon=%g, weight_decay=%g)", name, self.beta1, self.beta2,
            self.epsilon, self.weight_decay);
      });
}

FrozenStorage storage_of(const std::string& name) {
  const char* const names[] = {"fp32", "bf16", "int8", "int4"};  // in the order of FrozenStorage
  for (int i = 0; i < 4; ++i)
    if (name == names[i]) return static_cast<FrozenStorage>(i);
  fail_user("there is no storage \"", name, "\"; there are fp32, bf16, int8 and int4");
}

Schedule::Kind schedule_kind(const std::string& name) {
  if (const auto kind = enum_value<Schedule::Kind>(name)) return *kind;
  fail_user("there is no schedule \"", name, "\"; there are constant, linear, cosine and inverse_sqrt");
}

class PyGenerator {
 public:
  PyGenerator(nb::handle model, nb::list kept, const GeneratorOptions& options) : tree_(model, std::move(kept)) {
    auto* decoder = dynamic_cast<Decoder*>(&tree_.root());
    if (!decoder) fail_user("a TextGenerator writes with a linnet.Decoder");
    generator_ = without_gil([&] { return std::make_unique<TextGenerator>(*decoder, options); });
  }
  ~PyGenerator() {
    if (!nb::is_alive()) (void)generator_.release();
  }
  TextGenerator& generator() { return *generator_; }

 private:
  Tree tree_;
  std::unique_ptr<TextGenerator> generator_;
};

std::vector<std::vector<int32_t>> generate(PyGenerator& self, const std::vector<std::vector<int32_t>>& prompts,
    const GenerateOptions& options, const std::optional<nb::object>& listener) {
  std::exception_ptr stopped;
  const TextGenerator::Listener hear = [&](int64_t row, int32_t token, std::span<const float>) {
    return goes_on(stopped, [&] { return listener ? (*listener)(row, token) : nb::object(nb::none()); });
  };
  auto texts = without_gil([&] { return self.generator().generate(prompts, options, hear); });
  if (stopped) std::rethrow_exception(stopped);
  return texts;
}
}  // namespace

PyLearner::PyLearner(nb::object owner, nb::handle model, nb::list kept, const nb::list& names, const nb::list& shapes,
    const nb::dict& options)
    : owner_(std::move(owner)), tree_(model, std::move(kept)) {
  for (const nb::handle types : shapes) shapes_.push_back(to_types(nb::cast<nb::dict>(types)));
  if (shapes_.empty()) fail_user("a learner needs at least one batch shape");
  const auto inputs = nb::cast<std::vector<std::string>>(names);
  const LearnerOptions chosen = options_of(options);
  const TracedLoss loss = [this, inputs](Tracer& tracer) {
    const WithGil gil;
    const Recording recording(tree_, &tracer);
    nb::dict tensors;
    for (const std::string& name : inputs) tensors[name.c_str()] = tracer.input(name);
    return loss_of(nb::cast<nb::tuple>(owner_of(owner_).attr("_record")(tensors)), tracer);
  };
  const WithoutGil free;
  learner_ = std::make_unique<Learner>(tree_.root(), loss, shapes_, chosen);
}

PyLearner::~PyLearner() {
  if (!nb::is_alive()) (void)learner_.release();
}

void add_learner(nb::module_& module) {
  nb::class_<PyLearner> learner(module, "LearnerCore");
  learner.def(nb::init<nb::object, nb::handle, nb::list, const nb::list&, const nb::list&, const nb::dict&>());
  add_steps(learner);
  add_weights(learner);
  learner.def("steps", [](PyLearner& self) { return self.learner().steps(); })
      .def("memory", [](PyLearner& self) { return to_dict_of(self.learner().memory()); })
      .def("shapes", [](PyLearner& self) { return to_list(self.shapes()); })
      .def("path_of", [](PyLearner& self, nb::handle object) -> nb::object {
        if (const Module* found = self.tree().find(object)) return nb::cast(found->path());
        if (const Parameter* found = self.tree().find_parameter(object)) return nb::cast(found->spec().name);
        return nb::none();
      });
}

void add_optimizers(nb::module_& module) {
  nb::class_<Sgd>(
      module, "Sgd", "Stochastic gradient descent as torch.optim.SGD has it; biases and norms do not decay.")
      .def(nb::init<double, double>(), nb::kw_only(), "momentum"_a = 0.0, "weight_decay"_a = 0.0);
  add_adam<Adam>(module, "Adam", 0);
  add_adam<AdamW>(module, "AdamW", 0.01);
  add_adam<AdamW8bit>(module, "AdamW8bit", 0.01);
  nb::class_<Lion>(module, "Lion", "The sign of an average of gradients; half of Adam's memory.")
      .def(
          nb::init<double, double, double>(), nb::kw_only(), "beta1"_a = 0.9, "beta2"_a = 0.99, "weight_decay"_a = 0.0);
  nb::class_<Muon>(module, "Muon", "Matrices move along the nearest orthogonal matrix to their momentum.")
      .def(nb::init<double, double, double, double, double>(), nb::kw_only(), "momentum"_a = 0.95, "beta1"_a = 0.9,
          "beta2"_a = 0.999, "epsilon"_a = 1e-8, "weight_decay"_a = 0.01);
  nb::class_<Adafactor>(module, "Adafactor", "The second moment as a row and a column: the least memory of all.")
      .def(nb::init<double, double>(), nb::kw_only(), "decay_power"_a = 0.8, "weight_decay"_a = 0.0);
  nb::class_<TrainingGroup>(module, "Group", "Parameters that are trained alike, chosen by patterns of their names.")
      .def(
          "__init__",
          [](TrainingGroup* self, std::vector<std::string> patterns, bool frozen, const std::string& storage,
              double rate_factor, std::optional<double> weight_decay, nb::object optimizer) {
            TrainingGroup group{std::move(patterns), frozen, storage_of(storage), rate_factor, weight_decay, {}};
            if (!optimizer.is_none()) group.optimizer = optimizer_of(optimizer);
            new (self) TrainingGroup(std::move(group));
          },
          "patterns"_a, nb::kw_only(), "frozen"_a = false, "storage"_a = "fp32", "rate_factor"_a = 1.0,
          "weight_decay"_a = nb::none(), "optimizer"_a = nb::none(),
          "patterns: of full names, '*' stands for any characters. storage: fp32, bf16, int8 or int4, of matrices.")
      .def_ro("patterns", &TrainingGroup::patterns, "As constructed.")
      .def_ro("frozen", &TrainingGroup::frozen, "As constructed.")
      .def("__repr__", [](const TrainingGroup& self) {
        return "linnet.Group(" + joined(self.patterns) + (self.frozen ? "; frozen)" : ")");
      });
  nb::class_<Schedule>(module, "Schedule", "The learning rate of each step.")
      .def(
          "__init__",
          [](Schedule* self, const std::string& kind, double peak, double final, int64_t warmup, int64_t steps) {
            const Schedule schedule{schedule_kind(kind), peak, final, warmup, steps};
            (void)learning_rate(schedule, 1);  // an error if it lacks its end
            new (self) Schedule(schedule);
          },
          "kind"_a, nb::kw_only(), "peak"_a = 1e-3, "final"_a = 0.0, "warmup_steps"_a = 0, "max_steps"_a = 0,
          "kind: constant, linear, cosine or inverse_sqrt. The rate grows from 0 in warmup_steps, of max_steps at most "
          "a quarter; linear and cosine end at `final` in step max_steps. Steps are counted from 1.")
      .def(
          "__call__", [](const Schedule& self, int64_t step) { return learning_rate(self, step); }, "step"_a)
      .def("__repr__", [](const Schedule& self) {
        return printed("linnet.Schedule(%s, peak=%g, final=%g)", enum_name(self.kind), self.peak, self.final);
      });
}

void add_generator(nb::module_& module) {
  nb::class_<PyGenerator>(module, "GeneratorCore")
      .def("__init__",
          [](PyGenerator* self, nb::object model, nb::list kept, int64_t slots, int64_t max_length, bool cache,
              bool same_bits, int threads) {
            new (self) PyGenerator(model, std::move(kept), {slots, max_length, cache, same_bits, threads});
          })
      .def("take", [](PyGenerator& self, PyLearner& learner) { self.generator().take(learner.learner()); })
      .def("load", [](PyGenerator& self, const std::string& path) { self.generator().load(path); })
      .def("generate", [](PyGenerator& self, const std::vector<std::vector<int32_t>>& prompts, int64_t max_tokens,
                           double temperature, int64_t top_k, double top_p, uint64_t seed, std::vector<int32_t> ends,
                           const std::optional<nb::object>& listener) {
        return generate(self, prompts, {max_tokens, temperature, top_k, top_p, seed, std::move(ends)}, listener);
      });
}
}  // namespace linnet::python
