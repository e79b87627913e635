#include "training/run/run_reporter.h"
#include <fmt/format.h>
#include <climits>
#include <cstdio>
#include "base/json.h"
#include "base/numbers.h"
#include "base/process.h"
#include "base/text.h"
#include "data/text/unicode/utf8.h"
#include "engine/plan/store.h"
#include "formats/safetensors.h"

namespace linnet {
// One line of metrics.jsonl.
struct MetricsLine {
  int64_t step;
  std::string_view split;  // "train", "valid"
  double loss, learning_rate, grad_norm, speed, seconds, memory_mb;
  const char* items = "tokens";                                   // counted by speed: "tokens_per_second"
  std::vector<std::pair<std::string_view, double>> metrics = {};  // "bleu" and its value, for evaluations
  double loss_scale = 0;                                          // above 0: written, with the steps skipped so far
  int64_t skipped_steps = 0;
  std::string_view weights = {};  // evaluated weights with a moving average: "average" or "trained"
};

namespace {
// "encoder.layers.0.ff.weight" -> "encoder.layers.0.ff".
std::string module_of(const std::string& parameter) {
  const size_t dot = parameter.rfind('.');
  return dot == std::string::npos ? parameter : parameter.substr(0, dot);
}

// An indented Markdown block, which shows the text as it is.
std::string as_code(std::string text) {
  replace_all(text, "\n", "\n    ");
  return "    " + text;
}

// Text must need no escapes; numbers are the shortest that read back. No allocation while the line has room.
template <class T> void add_field(std::string& line, std::string_view name, T value) {
  for (const std::string_view part : {std::string_view(line.size() > 1 ? ",\"" : "\""), name, std::string_view("\":")})
    line += part;
  if constexpr (std::is_same_v<T, std::string_view>) ((line += '"') += value) += '"';
  else if (std::isfinite(static_cast<double>(value))) append_shortest(line, value);
  else line += "null";  // JSON has no NaN
}

// The size of the lines up to `last_step`, with or without its evaluations, without a line cut off by a crash. A
// damaged line before the end is kept, as valid lines follow it.
uint64_t bytes_up_to_step(const std::string& path, int64_t last_step, bool keep_evaluation) {
  if (!std::filesystem::is_regular_file(path)) return 0;  // not there, or /dev/null
  const std::string text = read_file(path);
  size_t good = 0;
  for (size_t start = 0, end; (end = text.find('\n', start)) != std::string::npos; start = end + 1) {
    const Json line = Json::parse_or_null(std::string_view(text).substr(start, end - start), JsonLimits::settings());
    const Json* step = line.find("step");
    if (!step || !step->is_integer()) continue;
    const int64_t before = last_step - step->get<int64_t>();
    if (before < 0 || (before == 0 && line.value("split", "train") != "train" && !keep_evaluation)) break;
    good = end + 1;
  }
  return good;
}

constexpr int kMemoryEvery = 64;       // steps between reads of /proc
constexpr size_t kLongestLine = 4096;  // exceeds any line of metrics.jsonl

double resident_mb() { return static_cast<double>(resident_bytes()) / 1e6; }

double running_average(double average, double value, int64_t earlier, double most) {  // a plain mean at first
  const double keep = std::min(most, static_cast<double>(earlier) / static_cast<double>(earlier + 1));
  return average == 0 ? value : keep * average + (1 - keep) * value;
}

std::string metric_text(const std::string& name, double value) {
  if (name == "chrf") return fmt::format("chrF {:.2f}", value);
  if (name == "bleu") return fmt::format("BLEU {:.2f}", value);
  return fmt::format("{} {:.4f}", name == "exact_match" ? "exact match" : name, value);
}

// Whether weights and average differ enough for a line: a BLEU point, 1% of the examples, or 2% of the loss.
bool differ(const TrainConfig& config, const TaskEvaluation& a, const TaskEvaluation& b) {
  const double by_metric = std::abs(metric_of(config, a) - metric_of(config, b));
  if (config.metric != "loss" && by_metric > (config.metric == "bleu" ? 1 : 0.01)) return true;
  return std::abs(a.loss - b.loss) > 0.02 * std::abs(a.loss);
}

bool is_left_out(const std::string& name) { return state::is_moment(name) || state::is_gradient(name); }

std::string anomaly_path(const std::string& run_folder) { return run_folder + "/anomaly.safetensors"; }

const Graph& step_graph(const TrainerPlans& plans, int shape) { return plans.step_plans(shape).front().forward->graph; }

constexpr size_t kLongestBar = 24, kShortestBar = 8;

// Large enough to draw without an allocation between two steps.
using Text = fmt::basic_memory_buffer<char, 320>;

template <class... Values>
void write(Text& text, fmt::format_string<const Values&...> format, const Values&... values) {
  fmt::format_to(std::back_inserter(text), format, values...);
}

std::string_view shown_text(const Text& text) { return {text.data(), text.size()}; }

void add_duration(Text& text, double seconds) {
  const auto s = static_cast<int64_t>(std::clamp(seconds, 0.0, 3.6e9));
  if (s >= 3600) write(text, "{}:{:02}:{:02} left", s / 3600, s / 60 % 60, s % 60);
  else write(text, "{}:{:02} left", s / 60, s % 60);
}

// One figure of the line. If space is short, figures of the highest rank are left out.
struct Figure {
  int rank;
  Text text = Text();
};

std::array<Figure, 6> figures_of(const ProgressView& v) {
  std::array<Figure, 6> figures{Figure{0}, {2}, {5}, {3}, {4}, {1}};
  write(figures[0].text, "step {}/{}", v.step, v.max_steps);
  write(figures[1].text, "loss {:.4f}", v.loss);
  write(figures[2].text, "lr {:.2e}", v.learning_rate);
  write(figures[3].text, "{:.0f} {}/s", v.speed, v.items);
  write(figures[4].text, "{:.0f} MB", v.memory_mb);
  add_duration(figures[5].text, v.seconds_left);
  return figures;
}

void add_bar(Text& line, const ProgressView& v, size_t width) {
  const double share = static_cast<double>(v.step) / static_cast<double>(std::max<int64_t>(1, v.max_steps));
  const auto filled = static_cast<size_t>(static_cast<double>(width) * std::clamp(share, 0.0, 1.0));
  write(line, "[{:=<{}}{:<{}}] ", "", filled, "", width - filled);
}

void add_figures(Text& line, const std::array<Figure, 6>& figures, int shown) {
  const char* gap = "";
  for (const Figure& figure : figures)
    if (figure.rank < shown) write(line, "{}{}", std::exchange(gap, "  "), shown_text(figure.text));
}

// The figures that fit in `room` characters, and before them a bar if at least a short one fits.
Text progress_line(const ProgressView& v, size_t room) {
  constexpr size_t kGap = 2, kFrame = 3;
  const std::array<Figure, 6> figures = figures_of(v);
  size_t used = 0;
  int shown = 0;  // ranks below this one
  while (shown < static_cast<int>(figures.size())) {
    const auto next = std::ranges::find(figures, shown, &Figure::rank);
    const size_t more = next->text.size() + (shown > 0 ? kGap : 0);
    if (shown > 0 && used + more > room) break;
    used += more, ++shown;
  }
  Text line;
  if (used + kFrame + kShortestBar <= room) add_bar(line, v, std::min(kLongestBar, room - used - kFrame));
  add_figures(line, figures, shown);
  return line;
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
  for (const auto& [name, value] : line.metrics) scalar(std::string(name), value);
}

void EventLog::count_gradient(Trainer& trainer, int shape, int64_t step_tokens, double loss_scale) {
  gradients_.clear();
  auto tokens = static_cast<double>(step_tokens);
  const auto count = [&](const ParameterSlot& slot, std::span<const float> values) {
    gradients_[module_of(slot.spec.name)].add(values, 1 / (std::max(tokens, 1.0) * loss_scale));
  };
  trainer.visit_gradient(shape, count, &tokens);
}

void EventLog::write_histograms(int64_t step, const ParameterLayout& layout, const float* parameters) {
  std::map<std::string, Histogram> weights;
  for (const ParameterSlot& slot : layout.parameters())
    if (!layout.is_quantized(slot))  // quantized weights are frozen
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

double metric_of(const TrainConfig& config, const TaskEvaluation& result) {
  return config.metric == "loss" ? -result.loss : result.metric(config.metric);
}

RunReporter::RunReporter(const Config& config, const std::string& metrics_path, const Progress& resumed)
    : config_(config.train), metrics_(task_row(config).metrics), items_(task_row(config).items), log_(metrics_path),
      memory_mb_(resident_mb()) {
  line_.reserve(kLongestLine);
  const std::string folder = std::filesystem::path(metrics_path).parent_path().string();
  log_.truncate_to(bytes_up_to_step(metrics_path, resumed.step, resumed.evaluated));
  samples_path_ = folder + "/samples.jsonl";
  if (file_exists(samples_path_))
    samples_.emplace(samples_path_).truncate_to(bytes_up_to_step(samples_path_, resumed.step, resumed.evaluated));
  if (config_.tensorboard) events_.emplace(folder, resumed.step);
  else if (has_event_files(folder)) EventLog(folder, resumed.step);  // voids the events of steps that this run repeats
}

void RunReporter::write(const MetricsLine& metrics) {
  line_ = "{";
  add_field(line_, "step", metrics.step);
  add_field(line_, "split", metrics.split);
  add_field(line_, "loss", metrics.loss);
  add_field(line_, "learning_rate", metrics.learning_rate);
  add_field(line_, "grad_norm", metrics.grad_norm);
  const std::string_view items = metrics.items;
  const char* const rate = items == "images"  ? "images_per_second"
                           : items == "texts" ? "texts_per_second"
                                              : "tokens_per_second";
  add_field(line_, rate, metrics.speed);
  add_field(line_, "seconds", metrics.seconds);
  add_field(line_, "memory_mb", metrics.memory_mb);
  for (const auto& [name, value] : metrics.metrics) add_field(line_, name, value);
  if (metrics.loss_scale > 0) {
    add_field(line_, "loss_scale", metrics.loss_scale);
    add_field(line_, "skipped_steps", metrics.skipped_steps);
  }
  if (!metrics.weights.empty()) add_field(line_, "weights", metrics.weights);
  log_.write_line(line_ += "}");
  if (events_) events_->write(metrics);
}

void RunReporter::write_samples(int64_t step, const std::vector<std::string>& samples) {
  if (samples.empty()) return;
  if (!samples_) samples_.emplace(samples_path_);
  const Json line{{"step", step}, {"split", "valid"}, {"samples", samples}};
  samples_->write_line(line.dump());
}

void RunReporter::sync() {
  log_.sync();
  if (samples_) samples_->sync();
  if (events_) events_->flush();
}

void RunReporter::step(const Progress& progress, const StepReport& report, double rate, double seconds,
    double seconds_here, int64_t total_steps, std::optional<int64_t> skipped_steps) {
  const double speed = static_cast<double>(report.tokens) / seconds;
  speed_ = running_average(speed_, speed, steps_here_, 0.98);
  if (std::isfinite(report.loss)) loss_ = running_average(loss_, report.loss, steps_here_, 0.95);
  if (progress.step % kMemoryEvery == 0) memory_mb_ = resident_mb();
  if (progress.step % config_.log_every == 0) {
    MetricsLine line{
        progress.step, "train", report.loss, rate, report.grad_norm, speed, progress.seconds, memory_mb_, items_};
    if (skipped_steps) line.loss_scale = report.loss_scale, line.skipped_steps = *skipped_steps;
    write(line);
  }
  const double per_step = seconds_here / static_cast<double>(++steps_here_);
  bar_.update({progress.step, total_steps, loss_, rate, speed_,
      per_step * static_cast<double>(total_steps - progress.step), memory_mb_, items_});
}

std::string RunReporter::figures(const TaskEvaluation& result) const {
  std::string text = fmt::format("loss {:.4f}", result.loss);
  for (const auto& [name, value] : told_metrics(result)) text += "  " + metric_text(std::string(name), value);
  return text;
}

// The metric that chooses the best weights; if that is the loss, all metrics.
std::vector<std::pair<std::string_view, double>> RunReporter::told_metrics(const TaskEvaluation& result) const {
  if (config_.metric != "loss") return {{config_.metric, metric_of(config_, result)}};
  std::vector<std::pair<std::string_view, double>> told;
  for (const auto& [name, value] : result.metrics)
    if (contains(metrics_, std::string_view(name))) told.emplace_back(name, value);
  return told;
}

void RunReporter::evaluation(const Progress& progress, const Judged& judged, double rate, double seconds, bool better) {
  const TaskEvaluation& result = judged.best;
  const std::string* only = result.classes ? result.classes->only_answer() : nullptr;
  const DecisionCounts found = result.classes ? result.classes->total() : DecisionCounts();
  nothing_learned_ = only                                 ? "calls every validation example \"" + *only + "\""
                     : found.there > 0 && found.both == 0 ? "finds no label of the validation examples"
                                                          : "";
  told_apart_ = told_apart_ || (result.classes && nothing_learned_.empty());
  const double speed = static_cast<double>(result.items) / seconds;
  MetricsLine line{progress.step, "valid", result.loss, rate, 0, speed, progress.seconds, memory_mb_, items_};
  line.metrics = told_metrics(result);
  if (judged.other) line.weights = judged.average ? "average" : "trained";
  write(line);
  write_samples(progress.step, result.samples);
  if (events_) events_->write_samples(progress.step, result.samples);
  bar_.print(fmt::format(
      "step {}  valid {}  ({:.1f} s){}", progress.step, figures(result), seconds, better ? "  best so far" : ""));
  if (judged.other && differ(config_, result, *judged.other))
    bar_.print((judged.average ? "    of the weights' moving average; the weights themselves have "
                               : "    of the weights themselves; their moving average is worse: ") +
               figures(*judged.other));
  for (const std::string& sample : result.samples) bar_.print(replace_invalid_utf8(sample));
}

void RunReporter::warn_of_nothing_learned() const {
  if (!nothing_learned_.empty() && !told_apart_)
    log_warning("the model " + nothing_learned_ +
                ": it has learned nothing yet. More steps, another --lr or a model to start from "
                "(model.from=FOLDER) may help");
}

void save_anomaly(const std::string& run_folder, const TrainingTask& task, Trainer& trainer, int shape, int64_t step) {
  trainer.state().pull();
  const Graph& graph = step_graph(trainer.plans(), shape);
  std::vector<SafetensorsTensor> tensors;
  for (const GraphInput& input : graph.inputs())
    if (!is_left_out(input.name))
      tensors.push_back({input.name, graph.value(input.value).type, task.store().data(input.name)});
  save_safetensors(anomaly_path(run_folder), tensors,
      {{"format", "linnet anomaly"}, {"step", std::to_string(step)}, {"shape", std::to_string(shape)}});
}

std::string replay_anomaly(const std::string& run_folder, TrainingTask& task) {
  const std::string path = anomaly_path(run_folder);
  if (!file_exists(path))
    fail_user("run '", run_folder,
        "' has kept no step to replay; `linnet train --detect-anomaly` keeps one that is not finite");
  const SafetensorsFile file(path);
  file.check_data();
  SafetensorsMetadata facts = file.metadata();
  const int shape = std::atoi(facts["shape"].c_str());
  Trainer& trainer = task.trainer();
  if (!trainer.plans().by_name().contains("train." + std::to_string(shape)))
    fail_user("'", path, "' is of another model or other data");
  const Graph& graph = step_graph(trainer.plans(), shape);
  for (const GraphInput& input : graph.inputs()) {
    if (is_left_out(input.name)) continue;
    const SafetensorsEntry& entry = file.at(input.name);
    if (entry.type != graph.value(input.value).type)
      fail_user("'", path, "': ", input.name, " is ", entry.text(), ", the model's is ",
          graph.value(input.value).type.text());
    std::memcpy(task.store().data(input.name), entry.data, entry.bytes());
  }
  trainer.state().push();
  const std::string where = trainer.find_non_finite(shape);
  return "step " + facts["step"] + ": " + (where.empty() ? "every value is finite" : "first at " + where);
}

ProgressBar::ProgressBar()
    : shown_(log_shows_info()), last_(std::chrono::steady_clock::now() - std::chrono::hours(1)) {}

void ProgressBar::update(const ProgressView& view) {
  if (!shown_) return;
  const auto now = std::chrono::steady_clock::now();
  const auto wait = line_.usable() ? std::chrono::milliseconds(100) : std::chrono::seconds(10);
  if (now - last_ < wait && view.step < view.max_steps) return;
  last_ = now;
  if (line_.usable()) return line_.draw(shown_text(progress_line(view, line_.room())));
  Text line;
  add_figures(line, figures_of(view), INT_MAX);
  std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
}

void ProgressBar::print(const std::string& line) {
  if (!shown_) return;
  clear();
  std::fprintf(stderr, "%s\n", line.c_str());
  std::fflush(stderr);
}
}  // namespace linnet
