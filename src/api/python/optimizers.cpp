#include <linnet/error.h>
#include <linnet/optimizer.h>
#include <linnet/schedule.h>
#include <nanobind/stl/variant.h>
#include "api/python/learner.h"
#include "base/fail.h"

namespace linnet::python {
namespace {
template <class T> void add_adam(nb::module_& module, const char* name, double weight_decay) {
  nb::class_<T>(module, name,
      "beta1, beta2: decays of the moments; epsilon: added to the root of the second; weight_decay: of matrices.")
      .def(nb::init<double, double, double, double>(), nb::kw_only(), "beta1"_a = 0.9, "beta2"_a = 0.999,
          "epsilon"_a = 1e-8, "weight_decay"_a = weight_decay);
}

FrozenStorage storage_of(const std::string& name) {
  const char* const names[] = {"fp32", "bf16", "int8", "int4"};  // in the order of FrozenStorage
  for (int i = 0; i < 4; ++i)
    if (name == names[i]) return static_cast<FrozenStorage>(i);
  fail_user("there is no storage \"", name, "\"; there are fp32, bf16, int8 and int4");
}

Schedule::Kind schedule_kind(const std::string& name) {
  if (name == "constant") return Schedule::Kind::kConstant;
  if (name == "linear") return Schedule::Kind::kLinear;
  if (name == "cosine") return Schedule::Kind::kCosine;
  if (name == "inverse_sqrt") return Schedule::Kind::kInverseSqrt;
  fail_user("there is no schedule \"", name, "\"; there are constant, linear, cosine and inverse_sqrt");
}
}  // namespace

Optimizer optimizer_of(nb::handle given) {
  Optimizer found;
  if (!nb::try_cast(given, found))
    fail_user("the optimizer is a ", class_name(given),
        "; it is one of Sgd, Adam, AdamW, AdamW8bit, Lion, Muon and Adafactor");
  return found;
}

void add_optimizers(nb::module_& module) {
  nb::class_<Sgd>(module, "Sgd", "Stochastic gradient descent, as torch.optim.SGD has it.")
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
      .def_ro("frozen", &TrainingGroup::frozen, "As constructed.");
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
          "__call__", [](const Schedule& self, int64_t step) { return learning_rate(self, step); }, "step"_a);
}
}  // namespace linnet::python
