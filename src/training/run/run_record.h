// What a training run leaves in its folder for `linnet report`, beside metrics.jsonl and profiles:
//
//   memory.json     the planned memory: a picture of the arena (training/report/report_page.h), sizes by kind
//   system.json     what trains it: program, processor, threads, instruction set, device
#pragma once
#include "training/report/report_page.h"
#include "training/run/training_task.h"

namespace linnet {

void write_memory_record(const std::string& folder, TrainingTask& task);
// `program`: name, version and commit; `where`: threads, instruction set and precision, or the device.
void write_system_record(const std::string& folder, const std::string& program, const std::string& where);

// [{"name": ..., "bytes": ...}, ...] of planned memory.
Json memory_json(const MemoryForecast& forecast);
// {"picture": ..., "items": [...], "parameters": n} of it.
std::string memory_record(const Trainer& trainer, const Store& store, const MemoryForecast& forecast);

// Everything that a run folder holds for a report. Error(kUser) when it is no run folder.
ReportRun read_report_run(const std::string& folder);
// Several; those of the same name in different folders are told apart by the folders' names.
std::vector<ReportRun> read_report_runs(const std::vector<std::string>& folders);
// A configuration as a report shows it.
std::vector<std::pair<std::string, std::string>> report_config(const Config& config);

}  // namespace linnet
