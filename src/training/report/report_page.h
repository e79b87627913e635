// One self-contained HTML page about one run or several: no network, no other files.
#pragma once
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace linnet {

// What is known of a run, as its folder holds it. Everything but the name may be empty.
struct ReportRun {
  std::string name;
  std::vector<std::pair<std::string, std::string>> config;  // "train.seed" and its value as TOML
  std::string metrics;                                      // lines of metrics.jsonl
  std::string samples;                                      // lines of samples.jsonl
  std::string classes;  // JSON: of the best evaluation (data/metrics/class_report.h)
  std::string memory;   // JSON: picture (memory_picture.h), items, parameters
  std::string profile;  // JSON: summary_json() (engine/profile/profile.h)
  std::string system;   // JSON: an object of texts
};

struct ReportTitle {
  std::string title, subtitle;
  std::string command;  // that made it: "report"
};

// Stays below 2 MB: of long runs the curves are thinned, and if that is not enough the later runs' memory and profiles
// are left out. Lines and files that are damaged are left out.
std::string report_page(const ReportTitle& title, std::span<const ReportRun> runs);

}  // namespace linnet
