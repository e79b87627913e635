// What was trained: `linnet runs` lists run folders, `linnet average` makes one of a run's kept checkpoints.
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <memory>

#include "app/cli/commands.h"
#include "base/error.h"
#include "base/json.h"
#include "training/run/kept_checkpoints.h"
#include "training/run/run_folder.h"

namespace linnet {
namespace {

struct Row {
  std::string name, step = "-", loss = "-", valid = "-", metric = "-", when = "-";
  time_t changed = 0;
};

std::string shortened(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4f", value);
  return text;
}

// The last training loss, and the best evaluation by the metric or, where there is none, the loss.
void read_metrics(const std::string& path, Row& row) {
  const std::string text = file_exists(path) ? read_file(path) : "";
  double best = 0, best_loss = 0;
  for (size_t start = 0, end; (end = text.find('\n', start)) != text.npos; start = end + 1) {
    const Json line = Json::parse_or_null(std::string_view(text).substr(start, end - start), JsonLimits::settings());
    if (!line.is_object() || !line.contains("step") || !line.contains("loss") || !line["loss"].is_number()) continue;
    row.step = std::to_string(line.value("step", int64_t{0}));
    const double loss = line["loss"].get<double>();
    if (line.value("split", "train") == "train") {
      row.loss = shortened(loss);
      continue;
    }
    if (row.valid == "-" || loss < best_loss) best_loss = loss, row.valid = shortened(loss);
    for (const char* name : {"bleu", "exact_match", "accuracy", "f1", "masked_accuracy"})
      if (line.contains(name) && line[name].is_number() && (row.metric == "-" || line[name].get<double>() > best))
        best = line[name].get<double>(), row.metric = std::string(name) + " " + shortened(best);
  }
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

int list_runs(const std::string& folder) {
  std::vector<Row> rows;
  if (!file_exists(folder)) fail_user("there is no folder '" + folder + "'");
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (RunFolder(entry.path()).has_config()) rows.push_back(row_of(entry.path()));
  if (RunFolder(folder).has_config()) rows.push_back(row_of(folder));
  if (rows.empty()) fail_user("'" + folder + "' holds no run folders");
  std::ranges::sort(rows, {}, &Row::changed);
  size_t width = 3;
  for (const Row& row : rows) width = std::max(width, row.name.size());
  const auto print = [&](const Row& r) {
    std::printf("%-*s  %9s  %10s  %10s  %-22s  %s\n", static_cast<int>(width), r.name.c_str(), r.step.c_str(),
                r.loss.c_str(), r.valid.c_str(), r.metric.c_str(), r.when.c_str());
  };
  print({"run", "step", "loss", "valid loss", "best", "last written"});
  for (const Row& row : rows) print(row);
  return 0;
}

struct AverageArguments {
  std::string run, out;
  int64_t last = 5;
};

}  // namespace

void add_runs_command(Command& linnet) {
  auto folder = std::make_shared<std::string>("runs");
  linnet.subcommand("runs", "list the runs in a folder: step, loss, best metric, when")
      .take("DIR", *folder, "the folder that holds run folders", {.show_default = true})
      .does([folder] { return list_runs(*folder); });
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
