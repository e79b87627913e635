#include "training/run/event_log.h"
#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <optional>
#include <span>
#include "base/error.h"
#include "base/json.h"
#include "base/text.h"

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

struct LogPosition {
  int64_t step;
  bool evaluation;
};

std::optional<LogPosition> location_of(std::string_view text) {
  const Json line = Json::parse_or_null(text, JsonLimits::settings());
  if (!line.is_object() || !line.contains("step") || !line["step"].is_integer()) return {};
  return LogPosition{line["step"].get<int64_t>(), line.value("split", "train") != "train"};
}

// A line in the making, without allocation.
class Line {
 public:
  void add(std::string_view text) { size_ += text.copy(text_ + size_, sizeof text_ - size_); }
  void field(std::string_view name, double value) {
    key(name);
    if (!std::isfinite(value)) return add("null");  // JSON has no other word for it
    number(value);
  }
  void field(std::string_view name, int64_t value) {
    key(name);
    number(value);
  }
  void field(std::string_view name, std::string_view value) {  // of letters that need no escape
    key(name);
    add("\"");
    add(value);
    add("\"");
  }
  std::string_view text() const { return {text_, size_}; }

 private:
  void key(std::string_view name) {
    add(size_ > 1 ? ",\"" : "\"");
    add(name);
    add("\":");
  }
  template <class T>
  void number(T value) {  // the shortest text that reads back exactly
    const std::to_chars_result written = std::to_chars(text_ + size_, text_ + sizeof text_, value);
    if (written.ec != std::errc{}) fail_internal("a line of metrics is longer than its buffer");
    size_ = static_cast<size_t>(written.ptr - text_);
  }

  char text_[4096];
  size_t size_ = 0;
};

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
  for (const auto& [name, value] : line.metrics) scalar(std::string(name), value);
}

void EventLog::count_gradient(Trainer& trainer, int shape, int64_t step_tokens, double loss_scale) {
  gradients_.clear();
  auto tokens = static_cast<double>(step_tokens);
  const auto count = [&](const TrainedRange& range, std::span<const float> values) {
    const double factor = 1 / (std::max(tokens, 1.0) * loss_scale);
    for (const ParameterSlot& slot : trainer.state().layout().trained()) {
      if (slot.offset < range.offset || slot.offset >= range.offset + range.count) continue;
      const auto first = static_cast<size_t>(slot.offset - range.offset);
      gradients_[module_of(slot.spec.name)].add(values.subspan(first, static_cast<size_t>(slot.spec.shape.elements())),
                                                factor);
    }
  };
  trainer.visit_gradient(shape, count, &tokens);
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
  const std::string text = joined(samples, "\n\n---\n\n", as_code);
  if (!text.empty()) file_.add_text(step, "samples", text);
  file_.flush();
}

// A damaged line before the end is kept: it says nothing, but what follows it does.
uint64_t bytes_up_to_step(const std::string& path, int64_t last_step, bool keep_evaluation) {
  if (!std::filesystem::is_regular_file(path)) return 0;  // not there, or /dev/null
  const std::string text = read_file(path);
  size_t good = 0;
  for (size_t start = 0, end; (end = text.find('\n', start)) != std::string::npos; start = end + 1) {
    const std::optional<LogPosition> location = location_of(std::string_view(text).substr(start, end - start));
    if (!location) continue;
    if (location->step > last_step || (location->step == last_step && location->evaluation && !keep_evaluation)) break;
    good = end + 1;
  }
  return good;
}

MetricsLog::MetricsLog(const std::string& path, int64_t last_step, bool keep_evaluation) : file_(path) {
  const uint64_t good = bytes_up_to_step(path, last_step, keep_evaluation);
  if (good != file_.size()) file_.truncate_to(good);
}

void MetricsLog::write(const MetricsLine& metrics) {
  Line line;
  line.add("{");
  line.field("step", metrics.step);
  line.field("split", metrics.split);
  line.field("loss", metrics.loss);
  line.field("learning_rate", metrics.learning_rate);
  line.field("grad_norm", metrics.grad_norm);
  const std::string_view items = metrics.items;
  line.field(items == "images"  ? "images_per_second"
             : items == "texts" ? "texts_per_second"
                                : "tokens_per_second",
             metrics.speed);
  line.field("seconds", metrics.seconds);
  line.field("memory_mb", metrics.memory_mb);
  for (const auto& [name, value] : metrics.metrics) line.field(name, value);
  if (metrics.loss_scale > 0) {
    line.field("loss_scale", metrics.loss_scale);
    line.field("skipped_steps", metrics.skipped_steps);
  }
  if (!metrics.weights.empty()) line.field("weights", metrics.weights);
  line.add("}");
  file_.write_line(line.text());
}

}  // namespace linnet
