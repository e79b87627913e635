#include "training/run/event_log.h"

#include <algorithm>
#include <span>

namespace linnet {
namespace {

// "encoder.layers.0.ff" of "encoder.layers.0.ff.weight".
std::string module_of(const std::string& parameter) {
  const size_t dot = parameter.rfind('.');
  return dot == std::string::npos ? parameter : parameter.substr(0, dot);
}

// A block of Markdown that shows the text as it is.
std::string as_code(const std::string& text) {
  std::string code = "    ";
  for (const char c : text) code += c == '\n' ? "\n    " : std::string(1, c);
  return code;
}

}  // namespace

void EventLog::write(const MetricsLine& line) {
  const bool training = line.split == "train";
  const std::string group = training ? "train/" : "eval/";
  const auto scalar = [&](const std::string& name, double value) { file_.add_scalar(line.step, group + name, value); };
  scalar("loss", line.loss);
  if (training) {
    scalar("learning_rate", line.learning_rate);
    scalar("grad_norm", line.grad_norm);
    scalar("memory_mb", line.memory_mb);
  }
  scalar(std::string(line.items) + "_per_second", line.speed);
  if (!line.metric.empty()) scalar(std::string(line.metric), line.metric_value);
}

void EventLog::count_gradient(Trainer& trainer, int shape, int64_t tokens) {
  gradients_.clear();
  const double factor = 1 / static_cast<double>(std::max<int64_t>(tokens, 1));
  trainer.visit_gradient(shape, [&](const TrainedRange& range, std::span<const float> values) {
    for (const ParameterSlot& slot : trainer.layout().trained()) {
      if (slot.offset < range.offset || slot.offset >= range.offset + range.count) continue;
      const auto first = static_cast<size_t>(slot.offset - range.offset);
      gradients_[module_of(slot.spec.name)].add(values.subspan(first, static_cast<size_t>(slot.spec.shape.elements())),
                                                factor);
    }
  });
}

void EventLog::write_histograms(int64_t step, const ParameterLayout& layout, const float* parameters) {
  std::map<std::string, Histogram> weights;
  for (const ParameterSlot& slot : layout.parameters())
    if (!layout.is_quantized(slot))  // such a weight is frozen
      weights[module_of(slot.spec.name)].add(
          {parameters + slot.offset, static_cast<size_t>(slot.spec.shape.elements())});
  for (const auto& [module, histogram] : weights) file_.add_histogram(step, "weights/" + module, histogram);
  for (const auto& [module, histogram] : gradients_) file_.add_histogram(step, "gradients/" + module, histogram);
  gradients_.clear();
}

void EventLog::write_samples(int64_t step, const std::vector<std::string>& samples) {
  std::string text;
  for (const std::string& sample : samples) text += (text.empty() ? "" : "\n\n---\n\n") + as_code(sample);
  if (!text.empty()) file_.add_text(step, "samples", text);
  file_.flush();
}

}  // namespace linnet
