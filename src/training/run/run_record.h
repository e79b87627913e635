// What a training run leaves for `linnet report` beside metrics.jsonl and profiles: memory.json and system.json.
#pragma once
#include "training/report/report_page.h"
#include "training/run/training_run.h"

namespace linnet {
void write_memory_record(const std::string& folder, TrainingTask& task);
// `program`: name, version and commit; `where`: threads, instruction set and precision, or the device.
void write_system_record(const std::string& folder, const std::string& program, const std::string& where);

Json memory_json(const MemoryForecast& forecast);
// {"picture": ..., "items": [{"name": ..., "bytes": ...}], "parameters": n} of planned memory.
std::string memory_record(const Trainer& trainer, const MemoryForecast& forecast);

// Reads a run folder for a report. Error(kUser) if it is none.
ReportRun read_report_run(const std::string& folder);
// Runs of the same name in different folders get the folders' names too.
std::vector<ReportRun> read_report_runs(const std::vector<std::string>& folders);
std::vector<std::pair<std::string, std::string>> report_config(const Config& config);
}  // namespace linnet
