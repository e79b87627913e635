// What the configuration knows of the values of data.task: one row for each. What the program does with them is
// tasks/task_table.h.
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "config/config.h"

namespace linnet {

enum class TaskKind { kTranslation, kLanguage, kMaskedLanguage, kTexts, kImages };

// Where the examples come from: files that the user names, or the program itself.
enum class ExampleOrigin { kFiles, kDates, kRandom };

struct TaskRow {
  std::string_view name;  // the value of data.task
  TaskKind kind;
  ExampleOrigin origin;
  std::string DataConfig::*data;                    // the one file or folder that --data names
  std::string_view data_task;                       // the task with data of the user's: this one, or "text"
  std::string_view owner;                           // whose keys it has (config_table.cpp): itself, or "texts"
  const char* description;                          // for people: "translation"
  const char* items;                                // what a speed counts: "tokens"
  std::span<const std::string_view> architectures;  // that go with it; the first is what a message suggests
  std::span<const std::string_view> metrics;        // beside "loss", which every task has
  std::span<const std::string_view> heads = {};     // parameters that are trained beside adapters
};

std::span<const TaskRow> task_rows();
// The row of the configuration's task, which validate() or the parser found to exist.
const TaskRow& task_row(const Config& config);
inline TaskKind task_kind(const Config& config) { return task_row(config).kind; }

}  // namespace linnet
