#include "app/metrics_log.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace linnet {
namespace {

// The length of the prefix of the file that belongs to steps up to `last_step`.
uint64_t good_bytes(const std::string& path, int64_t last_step, bool keep_evaluation) {
  if (!file_exists(path)) return 0;
  const std::string text = read_file(path);
  size_t start = 0;
  while (start < text.size()) {
    const size_t end = text.find('\n', start);
    if (end == std::string::npos) break;
    const auto line = nlohmann::json::parse(text.begin() + static_cast<std::ptrdiff_t>(start), text.begin() + static_cast<std::ptrdiff_t>(end), nullptr, false);
    if (!line.is_object() || !line.contains("step") || !line["step"].is_number_integer()) break;
    const int64_t step = line["step"];
    const bool evaluation = line.value("split", "train") != "train";
    if (step > last_step || (step == last_step && evaluation && !keep_evaluation)) break;
    start = end + 1;
  }
  return start;
}

}  // namespace

MetricsLog::MetricsLog(const std::string& path, int64_t last_step, bool keep_evaluation) : file_(path) {
  const uint64_t good = good_bytes(path, last_step, keep_evaluation);
  if (good != file_.size()) file_.truncate_to(good);
}

void MetricsLog::write(const MetricsLine& line) {
  nlohmann::ordered_json json{{"step", line.step},
                              {"split", line.split},
                              {"loss", line.loss},
                              {"learning_rate", line.learning_rate},
                              {"grad_norm", line.grad_norm},
                              {"tokens_per_second", line.tokens_per_second},
                              {"seconds", line.seconds},
                              {"memory_mb", line.memory_mb}};
  if (!line.metric.empty()) json[line.metric] = line.metric_value;
  file_.write_line(json.dump());
}

}  // namespace linnet
