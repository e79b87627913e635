// `linnet info`, `presets`, `inspect`, `report`, `runs` (lists run folders), `average` (of a run's kept checkpoints).
#include <fmt/chrono.h>
#include <sys/stat.h>
#include <algorithm>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <limits>
#include "app/cli/commands.h"
#include "app/cli/streams-inl.h"
#include "base/log.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "engine/exec/backend.h"
#include "engine/kernels/processor.h"
#include "models/families/pretrained.h"
#include "onnx/network.h"
#include "tasks/task_table.h"
#include "training/run/memory_report.h"
#include "training/run/run_checkpoints.h"
#include "training/run/run_folder.h"
#include "training/run/run_record.h"
#include "training/trainer/trainer.h"

namespace linnet {
namespace {
struct InfoArguments {
  std::string folder, device;
};

void describe_device(const std::string& name) {
  const Device& opened = *open_backend(name).device;
  if (opened.is_host()) return print("cpu: {} kernels\n", current_isa());
  const DeviceInfo& device = opened.info();
  print("{} ({}), {:.1f} of {:.1f} GB free\n", device.name, device.detail, static_cast<double>(device.free_bytes) / 1e9,
      static_cast<double>(device.memory_bytes) / 1e9);
}

void describe_program() {
  print("{}\n", build_version());
  print("instruction sets  {} (best first; --isa chooses)\n", joined(available_isas(), " "));
  const bool bf16 = cpu_precision(Precision::kBf16) == Precision::kBf16;
  print("precision         {}\n", bf16 ? "fp32, bf16" : "fp32 (bf16 is computed in fp32: no instructions for it)");
  print("threads           {}\n", available_threads());
  const auto memory = static_cast<double>(available_memory());  // in all, 2^64 if it is not known
  print("memory            {}\n", memory < 0x1p64 ? fmt::format("{:.1f} GB available", memory / 1e9) : "unknown");
  print("libraries         {}\n", LINNET_LIBRARIES);
}

int info(const InfoArguments& arguments) {
  const std::string& folder = arguments.folder;
  if (!arguments.device.empty()) describe_device(arguments.device);
  else if (folder.empty()) describe_program();
  else if (!RunFolder(folder).has_config() && !is_pretrained_folder(folder) && is_onnx_path(folder))
    print_network(folder, *load_onnx(folder));
  else print_text(RunFolder(folder).has_config() ? describe_run(folder) : describe_pretrained(folder));
  return 0;
}

int print_presets(std::string& name) {
  if (name.empty()) {
    for (const Preset& preset : presets()) print("{:<12} {}\n", preset.name, preset.description);
    return 0;
  }
  if (!is_preset(name)) fail_user("there is no preset '", name, "'; `linnet presets` lists them");
  print_text(to_toml(load_config(name), true));
  return 0;
}

struct InspectArguments {
  std::string model, out;
  std::optional<std::string> text, answer;
  int64_t steps = 32;
  int threads = 0;
  bool json = false;
};

// A token on one line with visible blanks, as in the page.
std::string visible(std::string token) {
  if (token.empty()) return "∅";
  for (const auto& [blank, mark] : {std::pair{"\n", "↵"}, {"\t", "⇥"}}) replace_all(token, blank, mark);
  return token.starts_with(' ') ? "␣" + token.substr(1) : token;
}

// " France +2.31": the tokens with the largest absolute shares.
std::string largest_shares(const Inspection& inspection, const InspectedAnswer& answer) {
  constexpr size_t kMost = 4;
  std::vector<std::pair<double, std::string>> all;
  for (size_t i = 0; i < answer.shares.size(); ++i)
    for (size_t t = 0; t < answer.shares[i].size(); ++t)
      all.emplace_back(answer.shares[i][t], inspection.sequences[i].tokens[t]);
  std::ranges::stable_sort(all, [](const auto& a, const auto& b) { return std::abs(a.first) > std::abs(b.first); });
  all.resize(std::min(all.size(), kMost));
  return joined(
      all, ", ", [](const auto& each) { return fmt::format("{} {:+.2f}", visible(each.second), each.first); });
}

int inspect(const InspectArguments& arguments) {
  InspectOptions options{
      .text = "", .answer = arguments.answer, .steps = arguments.steps, .threads = arguments.threads};
  options.text = arguments.text ? *arguments.text : read_standard_input("; give the text as an argument");
  while (!arguments.text && (options.text.ends_with('\n') || options.text.ends_with('\r'))) options.text.pop_back();
  const Inspection inspection = inspect_model(arguments.model, options);
  const std::string page = !arguments.out.empty() || arguments.json ? arguments.out : "inspect.html";
  if (!page.empty() && file_exists(page)) log_info("replaces " + page);
  if (!page.empty()) write_file_atomically(page, inspection_page(inspection));
  for (const InspectedAnswer& answer : inspection.answers)
    if (!arguments.json)
      print("{}\t{:.6f}\t{}\n", visible(answer.text), std::exp(answer.log_probability),
          largest_shares(inspection, answer));
  print("{}\n", arguments.json ? inspection_json(inspection) : page);
  return 0;
}

struct ReportArguments {
  std::vector<std::string> runs;
  std::string out, title;
  bool overwrite = false;
};

int report(const ReportArguments& arguments) {
  // An existing page at the default path may be about other runs.
  const std::string page = arguments.out.empty() ? "report.html" : arguments.out;
  if (arguments.out.empty() && file_exists(page) && !arguments.overwrite)
    fail_user(page, " exists; -o FILE names the page, --overwrite replaces it");
  const std::vector<ReportRun> runs = read_report_runs(arguments.runs);
  ReportTitle title{.title = arguments.title, .subtitle = "", .command = "report"};
  if (title.title.empty()) title.title = runs.size() == 1 ? runs[0].name : std::to_string(runs.size()) + " runs";
  title.subtitle = runs.size() == 1 ? "A training run" : joined(runs, ", ", &ReportRun::name);
  write_file_atomically(page, report_page(title, runs));
  print("{}\n", page);
  return 0;
}

struct Row {
  std::string name, step = "-", loss = "-", valid = "-", best_text = "-", rate_text = "-", when = "-";
  std::map<std::string, double> best;  // by metric, and "rate"
  std::string shown;                   // the metric of best_text
  time_t changed = 0;
};

bool is_loss(const std::string& metric) { return metric == "loss"; }

bool is_metric(const std::string& key) {
  constexpr std::array<std::string_view, 5> kOthers{"step", "learning_rate", "grad_norm", "seconds", "memory_mb"};
  return !contains(kOthers, key) && !key.ends_with("_per_second");
}

// Reads the last loss, the recent rate, the best of each metric, and the loss of the best evaluation by shown metric.
void read_metrics(const std::string& path, Row& row) {
  constexpr double kKeep = 0.95;  // of the running average of rates
  const std::string text = text_if_there(path);
  double valid = 0;  // the loss that row.valid tells
  for (size_t start = 0, end; (end = text.find('\n', start)) != text.npos; start = end + 1) {
    const Json line = Json::parse_or_null(std::string_view(text).substr(start, end - start), JsonLimits::settings());
    if (!line.is_object() || !line.contains("step") || !line.contains("loss") || !line["loss"].is_number()) continue;
    row.step = std::to_string(line.value("step", int64_t{0}));
    const bool trains = line.value("split", "train") == "train";
    if (trains) row.loss = fmt::format("{:.4f}", line["loss"].get<double>());
    for (const auto& [key, value] : line.items()) {
      if (!value.is_number()) continue;
      const auto number = value.get<double>();
      if (trains && key.ends_with("_per_second")) {
        const auto [rate, fresh] = row.best.emplace("rate", number);
        if (!fresh) rate->second = kKeep * rate->second + (1 - kKeep) * number;
        row.rate_text = fmt::format("{:.4g} {}/s", rate->second, key.substr(0, key.find('_')));
      }
      if (trains || !is_metric(key)) continue;
      if (row.shown.empty() && !is_loss(key)) row.shown = key;  // the metric that chooses the best weights is first
      const auto [best, fresh] = row.best.emplace(key, number);
      const bool better = fresh || (is_loss(key) ? number < best->second : number > best->second);
      const auto loss = line["loss"].get<double>();
      const bool ties = number == best->second && loss < valid;  // as TrainingRun breaks ties
      if (better) best->second = number;
      if ((better || ties) && key == (row.shown.empty() ? "loss" : row.shown))
        valid = loss, row.valid = fmt::format("{:.4f}", loss);
    }
  }
  if (!row.shown.empty()) row.best_text = fmt::format("{} {:.4f}", row.shown, row.best[row.shown]);
}

// Best first; runs without the metric last.
void sort_by(const std::string& metric, const std::string& folder, std::vector<Row>& rows) {
  std::set<std::string> known{"date"};
  for (const Row& row : rows)
    for (const auto& [name, value] : row.best) known.insert(name);
  if (!known.contains(metric))
    fail_user("--sort ", metric, ": no run in '", folder, "' has it; there are ", joined(known));
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
      row.when = fmt::format("{:%Y-%m-%d %H:%M}", fmt::localtime(status.st_mtime));
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
  if (!file_exists(folder)) fail_user("there is no folder '", folder, "'");
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (RunFolder(entry.path()).has_config()) rows.push_back(row_of(entry.path()));
  if (RunFolder(folder).has_config()) rows.push_back(row_of(folder));
  if (rows.empty()) fail_user("'", folder, "' holds no run folders");
  sort_by(arguments.sort, folder, rows);
  rows.insert(rows.begin(), {"run", "step", "loss", "valid loss", "best", "rate", "last written"});
  const size_t width = max_of<size_t>(rows, [](const Row& row) { return row.name.size(); });
  for (const Row& row : rows)
    print("{:<{}}  {:>9}  {:>10}  {:>10}  {:<22}  {:>16}  {}\n", row.name, width, row.step, row.loss, row.valid,
        row.best_text, row.rate_text, row.when);
  return 0;
}

struct AverageArguments {
  std::string run, out;
  int64_t last = 5;
};

int average(const AverageArguments& arguments) {
  average_checkpoints(arguments.run, arguments.last, arguments.out);
  return 0;
}
}  // namespace

void add_info_command(Command& linnet) {
  auto [command, arguments] = linnet.subcommand(
      "info", "version, CPU features, threads, memory, libraries; or what a run or model folder holds", info);
  command
      .take("MODEL", arguments.folder, "a run folder, or a model folder (config.json, model.safetensors)",
          {.type = "MODEL"})
      .take_device(arguments.device, "opens a GPU (cuda, cuda:N) and says what it is");
}

void add_presets_command(Command& linnet) {
  auto [command, name] =
      linnet.subcommand("presets", "list the presets, or print one as a commented configuration", print_presets);
  command.take("name", name, "of a preset", {.suggestions = preset_names()});
}

void add_inspect_command(Command& linnet) {
  auto [command, arguments] = linnet.subcommand("inspect",
      "where a model's attention looks in a text, and which tokens its answer comes from: an HTML "
      "page; on the terminal a line of answer, probability and the weightiest tokens",
      inspect);
  command
      .take("model", arguments.model, "a run or model folder of a language model, a classifier, BERT or translation",
          {.required = true, .type = "MODEL"})
      .take("text", arguments.text, "the text (default: standard input)", {.type = "TEXT"})
      .take("--answer", arguments.answer,
          "what to explain instead of the model's own answer: a class, how the text goes on, a translation, or a "
          "word for each [MASK]",
          {.type = "TEXT"})
      .take("-o,--out", arguments.out, "the page to write; -o for short (default inspect.html; with --json none)",
          {.type = "FILE"})
      .take("--steps", arguments.steps, "points at which gradients are taken (default 32); more are more exact",
          {.type = "N", .least = 1, .most = 4096})
      .flag("--json", arguments.json, "one JSON object with all weights instead of the lines")
      .take_threads(arguments.threads);
}

void add_report_command(Command& linnet) {
  auto [command, arguments] = linnet.subcommand(
      "report", "one HTML page about a run, or several side by side: curves, memory, time, samples", report);
  command.take("runs", arguments.runs, "run folders", {.required = true, .type = "RUN"})
      .take("-o,--out", arguments.out, "the page to write; -o for short (default report.html, if there is none)",
          {.type = "FILE"})
      .flag("--overwrite", arguments.overwrite, "also where report.html exists already")
      .take("--title", arguments.title, "its title (default: the run's name)", {.type = "TEXT"});
}

void add_runs_command(Command& linnet) {
  auto [command, arguments] =
      linnet.subcommand("runs", "list the runs in a folder: step, loss, best metric, rate, when", list_runs);
  command.take("DIR", arguments.folder, "the folder that holds run folders", {.show_default = true})
      .take("--sort", arguments.sort, "date, rate, or a metric such as loss or accuracy, the best first",
          {.type = "METRIC", .show_default = true});
}

void add_average_command(Command& linnet) {
  auto [command, arguments] =
      linnet.subcommand("average", "average the weights of a run's last checkpoints (see keep_checkpoints)", average);
  command.take("run", arguments.run, "the run folder", {.required = true})
      .take("--last", arguments.last, "how many checkpoints", {.least = 1, .most = 1e6, .show_default = true})
      .take("--out", arguments.out, "the run folder to write", {.required = true, .type = "DIR"});
}
}  // namespace linnet
