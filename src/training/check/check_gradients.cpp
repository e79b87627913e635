// Gradients: of every parameter, and against differences of the loss.
#include <algorithm>
#include <cmath>

#include "engine/plan/state_names.h"
#include "training/check/checks.h"

namespace linnet {
namespace {

struct ParameterGradient {
  const ParameterSlot* slot;
  std::vector<float> values;
  double norm = 0;  // of the mean loss
  double rms() const { return norm / std::sqrt(static_cast<double>(values.size())); }
};

// Of the mean loss at the first weights. A step with learning rate 0 leaves these as they are.
std::vector<ParameterGradient> gradients_of(CheckSubject& subject) {
  restart(subject);
  load(subject, subject.batch);
  const StepReport report = subject.trainer.step(subject.shape, 0, 1);
  std::vector<ParameterGradient> all;
  subject.trainer.visit_gradient(subject.shape, [&](const TrainedRange& range, std::span<const float> values) {
    for (const ParameterSlot& slot : subject.trainer.layout().trained()) {
      if (slot.offset < range.offset || slot.offset >= range.offset + range.count) continue;
      const auto part = values.subspan(static_cast<size_t>(slot.offset - range.offset),
                                       static_cast<size_t>(slot.spec.shape.elements()));
      ParameterGradient& gradient = all.emplace_back(ParameterGradient{&slot, {part.begin(), part.end()}});
      double squares = 0;
      for (float& value : gradient.values) {
        value = static_cast<float>(value / static_cast<double>(std::max<int64_t>(report.tokens, 1)));
        squares += static_cast<double>(value) * value;
      }
      gradient.norm = std::sqrt(squares);
    }
  });
  restart(subject);  // the moments
  return all;
}

double evaluated_loss(CheckSubject& subject) {
  const LossTotal total = subject.trainer.evaluate(subject.shape);
  return total.sum / static_cast<double>(total.tokens);
}

// The loss that a step would lower. A rate of 0 leaves the weights, and step 1 draws the same dropout every time.
double trained_loss(CheckSubject& subject) { return subject.trainer.step(subject.shape, 0, 1).loss; }

using MeanLoss = double (*)(CheckSubject& subject);

// Dropout of a model folder and statistics of a batch make training compute another loss than evaluation; where they
// agree, evaluation takes a third of the time.
MeanLoss loss_of_training(CheckSubject& subject) {
  return difference(trained_loss(subject), evaluated_loss(subject)) < 1e-5 ? evaluated_loss : trained_loss;
}

// How large the parameter's values are together; of small ones, as biases are at first, what they grow to.
double size_of(CheckSubject& subject, const ParameterGradient& gradient) {
  constexpr double kUsual = 0.02;
  const float* values = subject.trainer.state(state::kParameters) + gradient.slot->offset;
  double squares = 0;
  for (size_t i = 0; i < gradient.values.size(); ++i) squares += static_cast<double>(values[i]) * values[i];
  return std::sqrt(squares) + kUsual * std::sqrt(static_cast<double>(gradient.values.size()));
}

// The loss's rate of change along the gradient of one parameter, by differences on both sides.
double slope(CheckSubject& subject, const ParameterGradient& gradient, double step, MeanLoss mean_loss) {
  float* values = subject.trainer.state(state::kParameters) + gradient.slot->offset;
  const std::vector<float> kept(values, values + gradient.values.size());
  const auto at = [&](double distance) {
    for (size_t i = 0; i < kept.size(); ++i)
      values[i] = static_cast<float>(kept[i] + distance / gradient.norm * gradient.values[i]);
    subject.trainer.push_states();
    return mean_loss(subject);
  };
  const double above = at(step), below = at(-step);
  std::ranges::copy(kept, values);
  subject.trainer.push_states();
  return (above - below) / (2 * step);
}

}  // namespace

CheckLine check_gradient_norms(CheckSubject& subject) {
  constexpr const char* kName = "gradients by layer";
  constexpr double kMostRatio = 1e6;
  const std::vector<ParameterGradient> gradients = gradients_of(subject);
  if (gradients.empty()) return skipped(kName, "the plan has written over the gradient");
  const ParameterGradient *least = nullptr, *most = nullptr;
  for (const ParameterGradient& gradient : gradients) {
    if (!std::isfinite(gradient.norm))
      return verdict(kName, false, "the gradient of " + gradient.slot->spec.name + " is not finite");
    if (gradient.norm == 0)
      return verdict(kName, false, "the gradient of " + gradient.slot->spec.name + " is zero: nothing reaches it");
    // Biases before a softmax have gradients of rounding errors alone.
    if (gradient.slot->spec.shape.rank() < 2) continue;
    if (!least || gradient.rms() < least->rms()) least = &gradient;
    if (!most || gradient.rms() > most->rms()) most = &gradient;
  }
  if (!least) return skipped(kName, "the model has no matrices");
  return verdict(kName, most->rms() / least->rms() < kMostRatio,
                 text_of("%zu parameters; root mean squares from %.1e (%s) to %.1e (%s)", gradients.size(),
                         least->rms(), least->slot->spec.name.c_str(), most->rms(), most->slot->spec.name.c_str()));
}

CheckLine check_finite_differences(CheckSubject& subject) {
  constexpr const char* kName = "gradients against differences";
  constexpr size_t kMost = 12;
  constexpr double kTolerance = 0.05, kLeastChange = 2.5e-4;  // relative: of the slope; of the loss
  std::vector<ParameterGradient> gradients = gradients_of(subject);
  if (gradients.empty()) return skipped(kName, "the plan has written over the gradient");
  load(subject, subject.batch);
  const MeanLoss mean_loss = loss_of_training(subject);
  const double loss = mean_loss(subject);
  // Those whose effect on the loss stands out from its rounding without a step that leaves its straight part.
  std::erase_if(gradients, [&](const ParameterGradient& g) {
    return !std::isfinite(g.norm) || !(kLeastChange * loss / g.norm < 0.03 * size_of(subject, g));
  });
  if (gradients.empty()) return skipped(kName, "no gradient is large enough to be measured");
  const size_t stride = (gradients.size() + kMost - 1) / kMost;
  double worst = -1, worst_slope = 0;
  const ParameterGradient* at = nullptr;
  size_t checked = 0;
  for (size_t i = 0; i < gradients.size(); i += stride, ++checked) {
    const ParameterGradient& g = gradients[i];
    double best = INFINITY, best_slope = 0;
    // Long steps leave the straight part of the loss, short ones drown in rounding.
    for (const double change : {1e-3, kLeastChange, 4e-3, 2e-2}) {
      const double measured = slope(subject, g, change * loss / g.norm, mean_loss);
      if (difference(measured, g.norm) < best) best = difference(measured, g.norm), best_slope = measured;
      if (best < kTolerance / 2) break;
    }
    if (best > worst) worst = best, worst_slope = best_slope, at = &g;
  }
  return verdict(
      kName, worst < kTolerance,
      text_of("%zu parameters; the worst is %s: gradient %.4g, differences %.4g (%.2g relative, %.2g allowed)", checked,
              at->slot->spec.name.c_str(), at->norm, worst_slope, worst, kTolerance));
}

}  // namespace linnet
