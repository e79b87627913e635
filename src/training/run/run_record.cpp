#include "training/run/run_record.h"
#include <fmt/chrono.h>
#include <sys/utsname.h>
#include <ctime>
#include <fstream>
#include "base/json.h"
#include "base/thread_pool.h"
#include "config/config_keys.h"
#include "training/run/run_folder.h"

namespace linnet {
namespace {
std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name"))
      if (const size_t colon = line.find(": "); colon != line.npos) return line.substr(colon + 2);
  return "";
}

std::string last_profile(const std::string& folder) {
  std::string newest;
  std::filesystem::file_time_type time{};
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error))
    if (entry.path().string().ends_with(".summary.json") && (newest.empty() || entry.last_write_time(error) > time))
      newest = entry.path().string(), time = entry.last_write_time(error);
  return newest.empty() ? "" : read_file(newest);
}
}  // namespace

Json memory_json(const MemoryForecast& forecast) {
  return mapped(forecast.items, [](const MemoryItem& item) {
    return Json{{"name", item.name}, {"bytes", item.bytes}};
  });
}

std::string memory_record(const Trainer& trainer, const MemoryForecast& forecast) {
  const Json record{{"parameters", trainer.state().layout().parameter_count()}, {"items", memory_json(forecast)},
      {"picture", Json::parse(memory_picture(trainer, trainer.arena()), JsonLimits::tables())}};
  return record.dump() + "\n";
}

void write_memory_record(const std::string& folder, TrainingTask& task) {
  write_file_atomically(folder + "/memory.json", memory_record(task.trainer(), task.forecast()));
}

void write_system_record(const std::string& folder, const std::string& program, const std::string& where) {
  utsname system{};
  uname(&system);
  const Json record{{"program", program}, {"runs on", where}, {"processor", processor_name()},
      {"processors usable", available_threads()},
      {"system", std::string(system.sysname) + " " + system.release + ", " + system.machine},
      {"last started", fmt::format("{:%Y-%m-%d %H:%M UTC}", fmt::gmtime(std::time(nullptr)))}};
  write_file_atomically(folder + "/system.json", record.dump(1) + "\n");
}

std::vector<std::pair<std::string, std::string>> report_config(const Config& config) {
  return mapped(config_keys(), [&](const ConfigKey& key) {
    return std::pair(std::string(key.section) + "." + key.name, value_text(field_value(key, config)));
  });
}

ReportRun read_report_run(const std::string& folder) {
  const RunFolder run(folder);
  std::filesystem::path path = std::filesystem::path(folder).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();  // "runs/mine/"
  return {.name = path.filename().string(),
      .config = report_config(run.load_config()),
      .metrics = text_if_there(run.metrics_path()),
      .samples = text_if_there(folder + "/samples.jsonl"),
      .classes = text_if_there(run.classes_path()),
      .memory = text_if_there(folder + "/memory.json"),
      .profile = last_profile(folder + "/profile"),
      .system = text_if_there(folder + "/system.json")};
}

std::vector<ReportRun> read_report_runs(const std::vector<std::string>& folders) {
  std::vector<ReportRun> runs;
  std::multiset<std::string> names;
  for (const std::string& folder : folders) names.insert(runs.emplace_back(read_report_run(folder)).name);
  for (size_t i = 0; i < runs.size(); ++i)
    if (names.count(runs[i].name) > 1) runs[i].name = folders[i];
  return runs;
}
}  // namespace linnet
