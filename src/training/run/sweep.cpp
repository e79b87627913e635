#include "training/run/sweep.h"
#include <fmt/format.h>
#include "base/fail.h"
#include "base/json.h"
#include "base/log.h"
#include "base/numbers.h"
#include "base/process.h"
#include "base/text.h"
#include "config/config_keys.h"
#include "training/run/run_folder.h"
#include "training/run/run_record.h"
#include "training/trainer/step_queue.h"

namespace linnet {
namespace {
constexpr double kFarApart = 10;  // ratio of the ends from which a range is logarithmic
constexpr int64_t kRuns = 12;     // default
constexpr int64_t kDivisor = 3;   // of runs after a round of kHalving, and of steps before
constexpr int64_t kMostInGrid = 10'000;
constexpr int kDrawsOfAValue = 100;  // attempts before a combination repeats

std::string value_at(const SweepAxis& axis, double location) {
  const double value = axis.is_logarithmic ? axis.low * std::pow(axis.high / axis.low, location)
                                           : axis.low + (axis.high - axis.low) * location;
  if (axis.is_whole) return std::to_string(std::llround(value));
  char digits[32];
  return {digits, std::to_chars(digits, digits + sizeof digits, value, std::chars_format::general, 3).ptr};
}

void read_range(const std::string& setting, const std::string& text, size_t dots, SweepAxis& axis) {
  const size_t colon = text.find(':', dots);
  const auto low = parse_finite(std::string_view(text).substr(0, dots)),
             high = parse_finite(std::string_view(text).substr(dots + 2, std::min(colon, text.size()) - dots - 2)),
             points = colon == text.npos ? 0 : parse_finite(std::string_view(text).substr(colon + 1));
  if (!low || !high || *low >= *high)
    fail_user("--set ", setting, ": a range goes from a number up to a larger one, for example 1e-5..1e-3");
  axis.low = *low, axis.high = *high;
  axis.is_logarithmic = *low > 0 && *high / *low >= kFarApart;
  if (colon == text.npos) return;
  if (!points || *points < 2 || *points > 1000 || *points != std::floor(*points))
    fail_user("--set ", setting, ": behind the colon stands the number of values, 2 to 1000");
  for (int i = 0; i < *points; ++i) axis.values.push_back(value_at(axis, i / (*points - 1)));
}

std::vector<std::vector<std::string>> grid(std::span<const SweepAxis> axes, int64_t runs) {
  int64_t count = 1;
  for (const SweepAxis& axis : axes) {
    if (axis.values.empty())
      fail_user("--search grid: ", axis.key, " is a range; write how many values it stands for, for example ", axis.key,
          "=", shortest(axis.low), "..", shortest(axis.high), ":3");
    count = std::min(count * std::ssize(axis.values), kMostInGrid + 1);
  }
  if (count > kMostInGrid)
    fail_user(
        "the grid has more than ", kMostInGrid, " combinations: list fewer values, or --search random draws some");
  if (runs > 0 && count > runs)
    fail_user(
        "the grid has ", count, " combinations: --runs ", count, " trains them all, --search random draws ", runs);
  std::vector<std::vector<std::string>> all{{}};
  for (const SweepAxis& axis : axes) {
    std::vector<std::vector<std::string>> longer;
    for (const std::vector<std::string>& settings : all)
      for (const std::string& value : axis.values) longer.emplace_back(settings).push_back(axis.key + "=" + value);
    all = std::move(longer);
  }
  return all;
}

std::vector<std::string> draw(std::span<const SweepAxis> axes, uint64_t& state) {
  std::vector<std::string> settings;
  for (const SweepAxis& axis : axes) {
    const double location = static_cast<double>(next_splitmix64(state) >> 11) * 0x1p-53;  // in [0, 1)
    const auto listed = static_cast<size_t>(location * static_cast<double>(axis.values.size()));
    settings.push_back(axis.key + "=" + (axis.values.empty() ? value_at(axis, location) : axis.values[listed]));
  }
  return settings;
}

// The settings of each run, "key=value". `runs` 0: the whole grid, or 12. The first ones do not depend on `runs`. User
// error for a grid of ranges, or of more combinations than `runs` or kMostInGrid.
std::vector<std::vector<std::string>> sweep_settings(
    std::span<const SweepAxis> axes, SweepSearch search, int64_t runs, uint64_t seed) {
  if (search == SweepSearch::kGrid) return grid(axes, runs);
  uint64_t state = mix64(seed);
  std::vector<std::vector<std::string>> all;
  std::set<std::vector<std::string>> taken;
  for (int64_t i = 0; i < (runs > 0 ? runs : kRuns); ++i) {
    std::vector<std::string> settings = draw(axes, state);
    for (int again = 0; again < kDrawsOfAValue && taken.contains(settings); ++again) settings = draw(axes, state);
    if (!taken.insert(settings).second) {
      log_warning("there are only " + std::to_string(all.size()) + " combinations of the values");
      break;
    }
    all.push_back(std::move(settings));
  }
  return all;
}

class SweepRunner {
 public:
  SweepRunner(const SweepRequest& request, MakeTask* make_task)
      : request_(request), make_task_(make_task), path_(request.folder + "/sweep.json") {
    const auto all = sweep_settings(request.axes, request.search, request.runs, request.seed);
    for (const std::vector<std::string>& settings : all) {
      ConfigChoice choice = request.choice;
      choice.settings.insert(choice.settings.end(), settings.begin(), settings.end());
      configs_.push_back(choice.load());
      sweep_.runs.push_back(
          {.name = fmt::format("{:03}", configs_.size()), .settings = settings, .rounds = {}, .error = ""});
    }
    sweep_.metric = configs_.front().train.metric;
    make_directories(request.folder);
    lock_.emplace(request.folder);
    take_up();
  }

  Sweep run() {
    std::vector<size_t> left = numbers_below<size_t>(sweep_.runs.size());
    size_t rounds = 1;
    if (request_.search == SweepSearch::kHalving)
      for (size_t runs = left.size(); runs >= kDivisor; runs /= kDivisor) ++rounds;
    for (size_t round = 0; round < rounds && !sweep_.stopped; ++round) {
      const double share = std::pow(kDivisor, -static_cast<double>(rounds - 1 - round));
      for (const size_t i : left)
        if (!sweep_.stopped && sweep_.runs[i].rounds.size() == round) train(i, round, share);
      rank(left);
      std::erase_if(left, [&](size_t i) { return sweep_.runs[i].rounds.size() <= round; });
      if (round + 1 < rounds) left.resize(std::min(left.size(), std::max<size_t>(1, left.size() / kDivisor)));
    }
    std::ranges::stable_sort(sweep_.runs, is_better);
    save_page();
    return sweep_;
  }

 private:
  std::string folder_of(const SweepRun& run) const { return request_.folder + "/" + run.name; }

  static bool is_better(const SweepRun& a, const SweepRun& b) {
    if (a.rounds.size() != b.rounds.size()) return a.rounds.size() > b.rounds.size();
    if (a.rounds.empty()) return false;
    const SweepResult &x = a.rounds.back(), &y = b.rounds.back();
    return x.metric != y.metric ? x.metric > y.metric : x.loss < y.loss;
  }
  void rank(std::vector<size_t>& runs) const {
    std::ranges::sort(runs);
    std::ranges::stable_sort(runs, [&](size_t a, size_t b) { return is_better(sweep_.runs[a], sweep_.runs[b]); });
  }

  // A finished run counts only if its whole configuration is unchanged.
  static void check_unchanged(const RunFolder& folder, const Config& config) {
    if (!folder.has_config()) return;
    for (const std::string& key : changed_keys(folder.load_config(), with_absolute_paths(config)))
      if (!may_change_on_resume(key) && key != "data_shards" && key != "micro_batches")
        fail_user("run '", folder.path(), "' of this sweep has another ", key, "; --out FOLDER names another folder");
  }

  // Continues from sweep.json of an earlier process.
  void take_up() try {
    if (!file_exists(path_)) return save();
    const Json saved = Json::parse(read_file(path_), JsonLimits::settings());
    const auto other = [&](const std::string& what) {
      fail_user("'", request_.folder, "' holds a sweep with other ", what, "; --out FOLDER names another folder");
    };
    const Json& runs = saved.at("runs");
    const bool may_grow = request_.search == SweepSearch::kRandom;
    if (runs.size() > sweep_.runs.size() || (!may_grow && runs.size() < sweep_.runs.size())) other("runs");
    for (size_t i = 0; i < runs.size(); ++i) {
      SweepRun& run = sweep_.runs[i];
      if (runs[i].at("settings").get<std::vector<std::string>>() != run.settings) other("values");
      for (const Json& round : runs[i].at("rounds"))
        run.rounds.push_back({round.at("steps").get<int64_t>(), round.at("best_step").get<int64_t>(),
            round.at("metric").get<double>(), round.at("loss").get<double>()});
      check_unchanged(RunFolder(folder_of(run)), configs_[i]);
    }
  } catch (const JsonError& error) {
    fail_user("'", path_, "' ", error.what(), "; --out FOLDER names another folder");
  }

  void save() const {
    Json runs = Json::array();
    for (const SweepRun& run : sweep_.runs) {
      Json rounds = Json::array();
      for (const SweepResult& result : run.rounds)
        rounds.push_back({{"steps", result.steps}, {"best_step", result.best_step}, {"metric", result.metric},
            {"loss", result.loss}});
      Json entry{{"run", run.name}, {"settings", run.settings}, {"rounds", rounds}};
      if (!run.error.empty()) entry["error"] = run.error;
      runs.push_back(entry);
    }
    write_file_atomically(path_, Json{{"metric", sweep_.metric}, {"runs", runs}}.dump(1) + "\n");
  }

  void save_page() const {
    std::vector<ReportRun> runs;
    for (const SweepRun& run : sweep_.runs)
      if (RunFolder(folder_of(run)).has_config()) {
        runs.push_back(read_report_run(folder_of(run)));
        runs.back().name = run.name + " " + joined(run.settings, " ");
      }
    const ReportTitle title{request_.folder, std::to_string(runs.size()) + " runs, the best first", "sweep"};
    if (!runs.empty()) write_file_atomically(request_.folder + "/report.html", report_page(title, runs));
  }

  // Trains up to the first evaluation after this share of the steps.
  void train(size_t index, size_t round, double share) {
    SweepRun& run = sweep_.runs[index];
    log_info("run " + run.name + " of " + std::to_string(sweep_.runs.size()) + ": " + joined(run.settings, " ") +
             (share < 1 ? ", up to 1/" + std::to_string(std::llround(1 / share)) + " of its steps" : ""));
    TrainRequest request{.config = configs_[index], .folder = folder_of(run)};
    request.resume = RunFolder(request.folder).has_config();
    request.program = request_.program;
    int64_t steps = 0;
    bool is_over = false;  // of the round
    // A run killed after saving and before its result was stored trains one step too many.
    request.on_event = [&](const TrainEvent& event) {
      const int64_t every = configs_[index].train.eval_every;
      const auto wanted = static_cast<int64_t>(std::ceil(share * static_cast<double>(event.total_steps)));
      steps = std::min(event.total_steps, round_up(wanted, every));
      if (share < 1 && steps == event.total_steps && index == 0 && event.step == 1)
        log_warning(fmt::format(
            "nothing is stopped early: eval_every = {}, and runs have {} steps; --set eval_every={} ends rounds sooner",
            every, steps, wanted));
      is_over = share < 1 && (event.evaluation ? event.step >= steps : event.step > steps);
      return !is_over;
    };
    try {
      const TrainOutcome outcome = run_training(request, make_task_);
      sweep_.stopped = outcome.stopped && !is_over;
      if (sweep_.stopped) return;
      const Progress& progress = outcome.progress;
      if (!std::isfinite(progress.best_metric) || !std::isfinite(progress.best_loss))
        throw Error(ErrorKind::kNumeric, "its best evaluation is not finite");
      run.rounds.push_back(
          {is_over ? steps : progress.step, progress.best_step, progress.best_metric, progress.best_loss});
      run.error.clear();
    } catch (const Error& error) {
      // An error of the first run is most likely one of all runs.
      const bool is_first = std::ranges::all_of(sweep_.runs, [](const SweepRun& each) { return each.rounds.empty(); });
      if (error.kind() != ErrorKind::kNumeric && (error.kind() != ErrorKind::kUser || (is_first && round == 0))) throw;
      run.error = error.what();
      log_warning("run " + run.name + " failed: " + run.error);
    }
    save();
  }

  const SweepRequest& request_;
  MakeTask* const make_task_;
  const std::string path_;
  std::optional<FolderLock> lock_;
  std::vector<Config> configs_;
  Sweep sweep_;
};

constexpr double kKeep = 0.9;      // of the running average of the loss
constexpr double kBreakOut = 2.0;  // times the lowest loss
constexpr double kNoise = 0.02;    // of the first losses: a smaller fall is noise of the batches

double number(const std::string& text, const std::string& shown) {
  const auto value = parse_finite(text);
  if (!value || *value <= 0)
    fail_user("--lr-range ", shown, ": '", text, "' is not a rate above 0; write for example 1e-6:1");
  return *value;
}
}  // namespace

std::optional<SweepAxis> parse_sweep_axis(const std::string& setting) {
  const size_t equals = setting.find('=');
  const std::vector<const ConfigKey*> keys = keys_of_setting(setting);
  if (equals == setting.npos || keys.empty()) return {};  // set_value() reports the error
  const FieldValue value = field_value(*keys.front(), Config{});
  const bool is_number = std::holds_alternative<int64_t>(value) || std::holds_alternative<double>(value);
  if (std::holds_alternative<std::string>(value) && keys.front()->choices.empty()) return {};
  const std::string text = setting.substr(equals + 1);
  SweepAxis axis{.key = setting.substr(0, equals), .values = {}, .is_whole = std::holds_alternative<int64_t>(value)};
  if (const size_t dots = text.find(".."); is_number && dots != text.npos) {
    read_range(setting, text, dots, axis);
    return axis;
  }
  for (const std::string_view value : split(text, ',')) axis.values.emplace_back(value);
  return axis.values.size() < 2 ? std::nullopt : std::optional(axis);
}

Sweep run_sweep(const SweepRequest& request, MakeTask* make_task) { return SweepRunner(request, make_task).run(); }

std::string sweep_table(const Sweep& sweep) {
  std::vector<std::vector<std::string>> rows{{"run"}};
  for (const std::string& setting : sweep.runs.front().settings)
    rows[0].push_back(setting.substr(0, setting.find('=')));
  rows[0].insert(rows[0].end(), {"steps", "best step"});
  if (sweep.metric != "loss") rows[0].push_back(sweep.metric);
  rows[0].push_back("valid loss");
  for (const SweepRun& run : sweep.runs) {
    std::vector<std::string>& row = rows.emplace_back(1, run.name);
    for (const std::string& setting : run.settings) row.push_back(setting.substr(setting.find('=') + 1));
    if (run.rounds.empty()) {
      row.push_back(run.error.empty() ? "not finished" : run.error);
      continue;
    }
    const SweepResult& result = run.rounds.back();
    row.insert(row.end(), {std::to_string(result.steps), std::to_string(result.best_step)});
    if (sweep.metric != "loss") row.push_back(fmt::format("{:.4f}", result.metric));
    row.push_back(fmt::format("{:.4f}", result.loss));
  }
  std::vector<size_t> widths(rows[0].size());
  for (const auto& row : rows)
    for (size_t i = 0; i < row.size(); ++i)
      if (row.size() == rows[0].size()) widths[i] = std::max(widths[i], row[i].size());
  std::string table;
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i)
      table += i + 1 < row.size() ? fmt::format("{:{}}  ", row[i], widths[i]) : row[i];
    table += "\n";
  }
  return table;
}

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
