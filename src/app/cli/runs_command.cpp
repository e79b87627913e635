// What was trained: `linnet runs` lists run folders, `linnet average` makes one of a run's kept checkpoints.
#include <sys/stat.h>
#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include "app/cli/commands.h"
#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "training/run/run_checkpoints.h"
#include "training/run/run_folder.h"

namespace linnet {
namespace {

struct Row {
  std::string name, step = "-", loss = "-", valid = "-", best_text = "-", rate_text = "-", when = "-";
  std::map<std::string, double> best;  // of the evaluations, by metric; and "rate"
  std::string shown;                   // the metric of best_text
  time_t changed = 0;
};

std::string formatted(const char* format, double value) {
  char text[32];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

// Whether a smaller value is a better one.
bool is_loss(const std::string& metric) { return metric == "loss"; }

// What a line of an evaluation has beside its metrics.
bool is_metric(const std::string& key) {
  constexpr std::array<std::string_view, 5> kOthers{"step", "learning_rate", "grad_norm", "seconds", "memory_mb"};
  return std::ranges::find(kOthers, key) == kOthers.end() && !key.ends_with("_per_second");
}

// The last training loss and the rate of the last lines; the best value of each metric; and the loss of the evaluation
// whose shown metric is the best.
void read_metrics(const std::string& path, Row& row) {
  constexpr double kKeep = 0.95;  // of the running average of rates
  const std::string text = file_exists(path) ? read_file(path) : "";
  for (size_t start = 0, end; (end = text.find('\n', start)) != text.npos; start = end + 1) {
    const Json line = Json::parse_or_null(std::string_view(text).substr(start, end - start), JsonLimits::settings());
    if (!line.is_object() || !line.contains("step") || !line.contains("loss") || !line["loss"].is_number()) continue;
    row.step = std::to_string(line.value("step", int64_t{0}));
    const bool trains = line.value("split", "train") == "train";
    if (trains) row.loss = formatted("%.4f", line["loss"].get<double>());
    for (const auto& [key, value] : line.items()) {
      if (!value.is_number()) continue;
      const auto number = value.get<double>();
      if (trains && key.ends_with("_per_second")) {
        const auto [rate, fresh] = row.best.emplace("rate", number);
        if (!fresh) rate->second = kKeep * rate->second + (1 - kKeep) * number;
        row.rate_text = formatted("%.4g", rate->second) + " " + key.substr(0, key.find('_')) + "/s";
      }
      if (trains || !is_metric(key)) continue;
      if (row.shown.empty() && !is_loss(key)) row.shown = key;  // what chooses the best weights comes first
      const auto [best, fresh] = row.best.emplace(key, number);
      const bool better = fresh || (is_loss(key) ? number < best->second : number > best->second);
      if (better) best->second = number;
      if (better && key == (row.shown.empty() ? "loss" : row.shown))
        row.valid = formatted("%.4f", line["loss"].get<double>());
    }
  }
  if (!row.shown.empty()) row.best_text = row.shown + " " + formatted("%.4f", row.best[row.shown]);
}

// The best first; runs that do not have the metric last.
void sort_by(const std::string& metric, const std::string& folder, std::vector<Row>& rows) {
  std::set<std::string> known{"date"};
  for (const Row& row : rows)
    for (const auto& [name, value] : row.best) known.insert(name);
  if (!known.contains(metric))
    fail_user("--sort " + metric + ": no run in '" + folder + "' has it; there are " + joined(known));
  std::ranges::stable_sort(rows, {}, [&](const Row& row) {
    if (metric == "date") return static_cast<double>(row.changed);
    const auto found = row.best.find(metric);
    if (found == row.best.end()) return std::numeric_limits<double>::infinity();
    return is_loss(metric) ? found->second : -found->second;
  });
}

Row row_of(const std::string& folder) {
  Row row{.name = folder};
  const RunFolder run(folder);
  read_metrics(run.metrics_path(), row);
  struct stat status {};
  for (const std::string& path : {run.metrics_path(), run.config_path()})
    if (::stat(path.c_str(), &status) == 0) {
      char text[32];
      std::tm local{};
      ::localtime_r(&status.st_mtime, &local);
      row.when = std::string(text, std::strftime(text, sizeof text, "%Y-%m-%d %H:%M", &local));
      row.changed = status.st_mtime;
      break;
    }
  return row;
}

struct ListArguments {
  std::string folder = "runs", sort = "date";
};

int list_runs(const ListArguments& arguments) {
  const std::string& folder = arguments.folder;
  std::vector<Row> rows;
  if (!file_exists(folder)) fail_user("there is no folder '" + folder + "'");
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (RunFolder(entry.path()).has_config()) rows.push_back(row_of(entry.path()));
  if (RunFolder(folder).has_config()) rows.push_back(row_of(folder));
  if (rows.empty()) fail_user("'" + folder + "' holds no run folders");
  sort_by(arguments.sort, folder, rows);
  size_t width = 3;
  for (const Row& row : rows) width = std::max(width, row.name.size());
  const auto print = [&](const Row& r) {
    std::printf("%-*s  %9s  %10s  %10s  %-22s  %16s  %s\n", static_cast<int>(width), r.name.c_str(), r.step.c_str(),
                r.loss.c_str(), r.valid.c_str(), r.best_text.c_str(), r.rate_text.c_str(), r.when.c_str());
  };
  print({"run", "step", "loss", "valid loss", "best", "rate", "last written"});
  for (const Row& row : rows) print(row);
  return 0;
}

struct AverageArguments {
  std::string run, out;
  int64_t last = 5;
};

}  // namespace

void add_runs_command(Command& linnet) {
  auto arguments = std::make_shared<ListArguments>();
  linnet.subcommand("runs", "list the runs in a folder: step, loss, best metric, rate, when")
      .take("DIR", arguments->folder, "the folder that holds run folders", {.show_default = true})
      .take("--sort", arguments->sort, "date, rate, or a metric such as loss or accuracy, the best first",
            {.type = "METRIC", .show_default = true})
      .does([arguments] { return list_runs(*arguments); });
}

void add_average_command(Command& linnet) {
  auto arguments = std::make_shared<AverageArguments>();
  linnet.subcommand("average", "average the weights of a run's last checkpoints (see keep_checkpoints)")
      .take("run", arguments->run, "the run folder", {.required = true})
      .take("--last", arguments->last, "how many checkpoints", {.least = 1, .most = 1e6, .show_default = true})
      .take("--out", arguments->out, "the run folder to write", {.required = true, .type = "DIR"})
      .does([arguments] {
        average_checkpoints(arguments->run, arguments->last, arguments->out);
        return 0;
      });
}

}  // namespace linnet
