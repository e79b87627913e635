#include "training/run/rate_range.h"
#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include "base/fail.h"
#include "base/numbers.h"
#include "base/signals.h"
#include "training/trainer/step_queue.h"

namespace linnet {
namespace {
constexpr double kKeep = 0.9;      // of the running average of the loss
constexpr double kBreakOut = 2.0;  // times the lowest loss
constexpr double kNoise = 0.02;    // of the first losses: a smaller fall is noise of the batches

double number(const std::string& text, const std::string& shown) {
  const auto value = parse_number<double>(text);
  if (!value || !std::isfinite(*value) || *value <= 0)
    fail_user("--lr-range ", shown, ": '", text, "' is not a rate above 0; write for example 1e-6:1");
  return *value;
}
}  // namespace

RateRange parse_rate_range(const std::string& text) {
  const size_t colon = text.find(':');
  if (colon == text.npos) fail_user("--lr-range ", text, " has no colon; write for example 1e-6:1");
  const RateRange range{number(text.substr(0, colon), text), number(text.substr(colon + 1), text)};
  if (range.from >= range.to) fail_user("--lr-range ", text, ": the second rate must be above the first");
  return range;
}

RateAnswer test_rates(TrainingTask& task, const RateRange& range, int64_t steps) {
  std::vector<RateTrial> trials;
  StepQueue queue(task.trainer(), task.batches(), nullptr, task.store());
  double average = 0, weight = 0, least = INFINITY;
  bool broke_out = false;
  for (int64_t step = 1; step <= steps && !broke_out && !stop_requested(); ++step) {
    const double location = static_cast<double>(step - 1) / static_cast<double>(std::max<int64_t>(steps - 1, 1));
    const double rate = range.from * std::pow(range.to / range.from, location);
    queue.submit(std::span(&rate, 1), step);
    const StepReport report = queue.collect().report;
    average = kKeep * average + (1 - kKeep) * report.loss, weight = kKeep * weight + 1 - kKeep;
    const double loss = average / weight;
    broke_out = !report.finite || (step > 10 && loss > kBreakOut * least);
    if (report.finite) least = std::min(least, loss), trials.push_back({rate, loss});
  }
  return judge_rates(std::move(trials), broke_out);
}

RateAnswer judge_rates(std::vector<RateTrial> trials, bool broke_out) {
  RateAnswer answer{.trials = std::move(trials), .broke_out = broke_out};
  const std::vector<RateTrial>& t = answer.trials;
  if (t.size() < 5) return answer;
  const auto lowest = std::ranges::min_element(t, {}, &RateTrial::loss);
  if (broke_out || t.back().loss > lowest->loss + 0.1 * std::abs(lowest->loss)) answer.highest = lowest->rate;
  double first = 0;
  for (size_t i = 0; i < 5; ++i) first += t[i].loss / 5;
  if (first - lowest->loss < kNoise * std::abs(first)) return answer;
  // The steepest fall over five trials before the lowest loss, by log rate.
  double steepest = 0;
  for (auto i = t.begin(); i + 4 <= lowest; ++i) {
    const double slope = ((i + 4)->loss - i->loss) / std::log((i + 4)->rate / i->rate);
    if (slope < steepest) steepest = slope, answer.suggestion = (i + 2)->rate;
  }
  return answer;
}

std::string rate_chart(const RateAnswer& answer) {
  constexpr int kRows = 12, kColumns = 64;
  const std::vector<RateTrial>& t = answer.trials;
  if (t.empty()) return "no step had a finite loss: begin with a lower rate\n";
  const auto [low, high] = std::ranges::minmax(t, {}, &RateTrial::loss);
  const double range = std::max(high.loss - low.loss, 1e-12), first = std::log(t.front().rate),
               width = std::max(std::log(t.back().rate) - first, 1e-12);
  std::vector<std::string> rows(kRows, std::string(kColumns, ' '));
  for (const RateTrial& trial : t) {
    const int column = static_cast<int>((std::log(trial.rate) - first) / width * (kColumns - 1));
    const int row = static_cast<int>((high.loss - trial.loss) / range * (kRows - 1));
    rows[row][column] = '*';
  }
  std::string text;
  for (int row = 0; row < kRows; ++row) {
    const double loss = high.loss - range * row / (kRows - 1);
    text += fmt::format("{:>9.4g} |{}\n", loss, rows[row]);
  }
  const std::string from = fmt::format("{:.1e}", t.front().rate), to = fmt::format("{:.1e}", t.back().rate);
  text += fmt::format(
      "{:>9} +{:-<{}}\n{:>11}{:<{}}{}\n", "loss", "", kColumns, "", from, kColumns - static_cast<int>(to.size()), to);
  if (answer.suggestion == 0) return text + "the loss did not fall: try other rates, or `linnet check`\n";
  text += fmt::format("the loss fell fastest at a learning rate of {:.1e}", answer.suggestion);
  text += answer.highest > 0 ? fmt::format(" and rose above {:.1e}\n", answer.highest) : "; no rate was too high\n";
  return text + fmt::format("try --lr {:.1e}\n", answer.suggestion);
}
}  // namespace linnet
