#include "training/report/report_page.h"

#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "training/report/page_parts.h"

namespace linnet {
namespace {

constexpr size_t kMostBytes = 1'900'000;  // of a page
constexpr size_t kMostPoints = 1500;      // of a curve
constexpr size_t kMostRows = 400;         // of a profile
constexpr size_t kMostClasses = 25;       // of a confusion matrix
constexpr size_t kMostSamples = 60;       // evaluations whose samples are shown

std::vector<Json> parsed_lines(const std::string& text) {
  std::vector<Json> lines;
  for (size_t start = 0; start < text.size();) {
    const size_t end = std::min(text.find('\n', start), text.size());
    Json line = Json::parse_or_null(std::string_view(text).substr(start, end - start), JsonLimits::settings());
    if (line.is_object() && line.contains("step") && line["step"].is_integer()) lines.push_back(std::move(line));
    start = end + 1;
  }
  return lines;
}

// Six digits are more than a picture shows.
Json rounded(const Json& value) {
  if (!value.is_float()) return value.is_number() ? value : Json(nullptr);
  const double x = value.get<double>();
  if (x == 0 || !std::isfinite(x)) return x == 0 ? Json(0) : Json(nullptr);
  const double scale = std::pow(10.0, 5 - std::floor(std::log10(std::abs(x))));
  return std::isfinite(scale) && scale > 0 ? std::round(x * scale) / scale : x;
}

double loss_of(const Json& line) {
  return line.contains("loss") && line["loss"].is_number() ? line["loss"].get<double>() : 0;
}

// Of each stretch of steps the lines with the least and the largest loss: spikes stay visible.
std::vector<Json> thinned(std::vector<Json> lines) {
  if (lines.size() <= kMostPoints) return lines;
  std::vector<Json> kept;
  const size_t stretches = kMostPoints / 2;
  for (size_t i = 0; i < stretches; ++i) {
    const auto begin = lines.begin() + static_cast<std::ptrdiff_t>(i * lines.size() / stretches);
    const auto end = lines.begin() + static_cast<std::ptrdiff_t>((i + 1) * lines.size() / stretches);
    auto [low, high] =
        std::minmax_element(begin, end, [](const Json& a, const Json& b) { return loss_of(a) < loss_of(b); });
    if (high < low) std::swap(low, high);
    kept.push_back(*low);
    if (low != high) kept.push_back(*high);
  }
  return kept;
}

// {"step": [...], "loss": [...], ...}: a column for every number that any line has.
Json columns(const std::vector<Json>& lines) {
  Json table{{"step", Json::array()}};
  for (const Json& line : lines)
    for (const auto& [name, value] : line.items())
      if (value.is_number() && !table.contains(name)) table[name] = Json::array();
  for (const Json& line : lines)
    for (auto& [name, column] : table.items())
      column.push_back(line.contains(name) ? rounded(line[name]) : Json(nullptr));
  return table;
}

Json object_or_null(const std::string& text) {
  Json json = Json::parse_or_null(text, JsonLimits::tables());
  return json.is_object() ? json : Json(nullptr);
}

Json profile_of(const std::string& text) {
  Json profile = object_or_null(text);
  if (!profile.is_object() || !profile.contains("rows") || !profile["rows"].is_array()) return nullptr;
  Json& rows = profile["rows"];
  if (rows.size() > kMostRows) rows.resize(kMostRows);
  for (Json& row : rows)
    for (auto& [name, value] : row.items())
      if (value.is_float()) value = rounded(value);
  return profile;
}

Json samples_of(const std::string& text) {
  Json samples = Json::array();
  std::vector<Json> lines = parsed_lines(text);
  const size_t skipped = lines.size() > kMostSamples ? lines.size() - kMostSamples : 0;
  for (size_t i = skipped; i < lines.size(); ++i)
    if (lines[i].contains("samples") && lines[i]["samples"].is_array() && !lines[i]["samples"].empty())
      samples.push_back({{"step", lines[i]["step"]}, {"texts", lines[i]["samples"]}});
  return samples;
}

Json run_data(const ReportRun& run, bool with_pictures) {
  std::vector<Json> train, valid;
  for (Json& line : parsed_lines(run.metrics))
    (line.value("split", "train") == "train" ? train : valid).push_back(std::move(line));
  Json config = Json::object();
  for (const auto& [key, value] : run.config) config[key] = value;
  Json json{{"name", run.name},
            {"config", std::move(config)},
            {"train", columns(thinned(std::move(train)))},
            {"valid", columns(valid)},
            {"samples", samples_of(run.samples)}};
  if (Json classes = object_or_null(run.classes); classes.is_object() && classes.contains("classes")) {
    if (classes["classes"].size() > kMostClasses) classes.erase("confusion");
    json["classes"] = std::move(classes);
  }
  const Json system = object_or_null(run.system);
  json["system"] = system.is_object() ? system : Json::object();
  const Json memory = object_or_null(run.memory);
  if (memory.is_object()) {
    for (const char* name : {"items", "parameters"})
      if (memory.contains(name)) json[name] = memory[name];
    if (with_pictures && memory.contains("picture") && memory["picture"].is_object())
      json["memory"] = memory["picture"];
  }
  if (const Json profile = profile_of(run.profile); with_pictures && profile.is_object()) json["profile"] = profile;
  return json;
}

}  // namespace

std::string report_page(const ReportTitle& title, std::span<const ReportRun> runs) {
  std::string page;
  for (size_t pictures = runs.size() + 1; pictures-- > 0;) {
    Json data{{"subtitle", title.subtitle}, {"runs", Json::array()}};
    for (size_t i = 0; i < runs.size(); ++i) data["runs"].push_back(run_data(runs[i], i < pictures));
    page = filled_page(title.title, title.command, kPageScript, data.dump());
    if (page.size() <= kMostBytes) break;
  }
  return page;
}

}  // namespace linnet
