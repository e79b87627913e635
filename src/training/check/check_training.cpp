// The loss at the beginning, one batch learned by heart, equal bits, products in bf16.
#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "base/process_memory.h"
#include "training/check/checks.h"
#include "engine/ir/op.h"

namespace linnet {
namespace {

// The classes that the loss chooses from; 0: the graph has no such loss.
int64_t class_count(const Graph& graph) {
  for (const Node& node : graph.nodes()) {
    const std::string_view op = node.op->name;
    if (op == "cross_entropy") return graph.value(node.in[0]).type.shape[-1];
    if (op == "linear_cross_entropy") return graph.value(node.in[1]).type.shape[0];
  }
  return 0;
}

}  // namespace

// Random weights should know nothing and be sure of nothing: their loss is that of a guess among all classes. It is
// that of a training step: at first batch normalization has no statistics for evaluation yet.
CheckLine check_initial_loss(CheckSubject& subject) {
  constexpr const char* kName = "initial loss";
  restart(subject);
  load(subject, subject.batch);
  const StepReport report = subject.trainer.step(subject.shape, 0, 1);
  const double loss = report.loss;
  const int64_t classes = class_count(evaluation_graph(subject));
  if (report.tokens == 0) return verdict(kName, false, "the batch has no targets");
  if (!std::isfinite(loss)) return verdict(kName, false, "the loss is not finite");
  if (classes < 2) return skipped(kName, text_of("loss %.3f; the loss is not over classes", loss));
  // Few targets may be unlucky ones.
  const double guess = std::log(static_cast<double>(classes));
  const double most = 1.25 * guess + 1 + 3 / std::sqrt(static_cast<double>(report.tokens));
  const bool fits = loss < most && (!subject.is_fresh || loss > 0.5 * guess);
  return verdict(kName, fits,
                 text_of("%.3f; a guess among %lld classes has %.3f, at most %.3f is usual", loss,
                         static_cast<long long>(classes), guess, most));
}

CheckLine check_overfitting(CheckSubject& subject, std::vector<CheckLine>& more) {
  constexpr int64_t kMostSteps = 150;
  constexpr double kEnough = 0.7, kLeastRate = 5e-4;  // of the first loss; 150 steps are few
  restart(subject);
  load(subject, subject.batch);
  const double began = now();
  double first = 0, loss = 0, step_seconds = 1e9;
  int64_t step = 0, tokens = 0;
  while (step < kMostSteps && (step < 3 || now() - began < subject.overfit_seconds)) {
    // A few steps of warmup: Adam's first steps are all of the size of the rate.
    const double rate = std::max(subject.learning_rate, kLeastRate) * std::min(1.0, static_cast<double>(step + 1) / 10);
    const double before = now();
    const StepReport report = subject.trainer.step(subject.shape, rate, ++step);
    step_seconds = std::min(step_seconds, now() - before);
    loss = report.loss, tokens = report.tokens;
    if (step == 1) first = loss;
    if (!report.finite || loss < 0.3 * first) break;
  }
  const uint64_t taken = resident_bytes();
  more.push_back(verdict("throughput", true,
                         text_of("%.3g a second of what the loss counts, %.1f ms a step of this batch",
                                 static_cast<double>(tokens) / step_seconds, step_seconds * 1e3)));
  if (subject.planned_bytes > 0)
    more.push_back(verdict("memory",
                           static_cast<double>(taken) < 1.1 * static_cast<double>(subject.planned_bytes) + 64e6,
                           text_of("%.1f MB taken, %.1f MB planned", static_cast<double>(taken) / 1e6,
                                   static_cast<double>(subject.planned_bytes) / 1e6)));
  const bool out_of_time = step < kMostSteps && loss > kEnough * first;
  return verdict("overfitting one batch", std::isfinite(loss) && loss < (out_of_time ? 0.95 : kEnough) * first,
                 text_of("from %.3f to %.3f in %lld steps%s", first, loss, static_cast<long long>(step),
                         out_of_time ? ", stopped by the time" : ""));
}

CheckLine check_determinism(CheckSubject& subject) {
  const auto steps = [&] {
    restart(subject);
    load(subject, subject.batch);
    std::vector<double> figures;
    for (int64_t step = 1; step <= 2; ++step) {
      const StepReport report = subject.trainer.step(subject.shape, subject.learning_rate, step);
      figures.insert(figures.end(), {report.loss, report.grad_norm});
    }
    return figures;
  };
  const std::vector<double> first = steps(), second = steps();
  // The same is the same also where the loss is not a number, which is for other checks to tell.
  const bool equal =
      std::ranges::equal(first, second, [](double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); });
  return verdict("determinism", equal, text_of("loss after a step %.9g, again %.9g", first[2], second[2]));
}

CheckLine check_drift(CheckSubject& subject) {
  constexpr const char* kName = "bf16 against fp32";
  if (!subject.bf16_loss) return skipped(kName, "no bf16 instructions here, or bf16 is not to be had");
  restart(subject);
  const LossTotal total = loss_of(subject, subject.batch);
  const double loss = total.sum / static_cast<double>(total.tokens), other = subject.bf16_loss();
  return verdict(
      kName, difference(loss, other) < 0.02,
      text_of("loss %.5f in fp32, %.5f in bf16: %.2g relative, 0.02 allowed", loss, other, difference(loss, other)));
}

}  // namespace linnet
