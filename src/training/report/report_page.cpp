#include "training/report/report_page.h"
#include "base/json.h"
#include "base/text.h"
#include "data/text/unicode/utf8.h"

namespace linnet {
// Files of src/training/report/page, embedded by cmake/embed.cmake.
extern const char* const kPageHtml;
extern const char* const kPageStyle;
extern const char* const kPageScript;     // of reports about runs
extern const char* const kInspectScript;  // of inspections

namespace {
constexpr size_t kMostBytes = 1'900'000;  // of a page
constexpr size_t kMostPoints = 1500;      // of a curve
constexpr size_t kMostRows = 400;         // of a profile, and of classes
constexpr size_t kMostClasses = 25;       // of a confusion matrix
constexpr size_t kMostSamples = 60;       // evaluations whose samples are shown

std::vector<Json> parsed_lines(const std::string& text) {
  std::vector<Json> lines;
  for (const std::string_view part : split(text, '\n')) {
    Json line = Json::parse_or_null(part, JsonLimits::settings());
    if (const Json* step = line.find("step"); step && step->is_integer()) lines.push_back(std::move(line));
  }
  return lines;
}

Json rounded(const Json& value) {
  if (!value.is_float()) return value.is_number() ? value : Json(nullptr);
  const double x = value.get<double>();
  if (x == 0 || !std::isfinite(x)) return x == 0 ? Json(0) : Json(nullptr);
  const double scale = std::pow(10.0, 5 - std::floor(std::log10(std::abs(x))));
  return std::isfinite(scale) && scale > 0 ? std::round(x * scale) / scale : x;
}

double loss_of(const Json& line) {
  const Json* loss = line.find("loss");
  return loss && loss->is_number() ? loss->get<double>() : 0;
}

// Keeps the lowest and the highest loss of each stretch of steps, so that spikes stay visible.
std::vector<Json> thinned(std::vector<Json> lines) {
  if (lines.size() <= kMostPoints) return lines;
  std::vector<Json> kept;
  const size_t stretches = kMostPoints / 2;
  for (size_t i = 0; i < stretches; ++i) {
    const auto begin = lines.begin() + (i * lines.size() / stretches);
    const auto end = lines.begin() + ((i + 1) * lines.size() / stretches);
    auto [low, high] = std::ranges::minmax_element(begin, end, {}, loss_of);
    if (high < low) std::swap(low, high);
    kept.push_back(*low);
    if (low != high) kept.push_back(*high);
  }
  return kept;
}

// {"step": [...], "loss": [...], ...}: a column for every number in any line.
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

// Without members if the text is damaged.
Json object_of(const std::string& text) {
  Json json = Json::parse_or_null(text, JsonLimits::tables());
  return json.is_object() ? json : Json::object();
}

Json profile_of(const std::string& text) {
  Json profile = object_of(text);
  if (!profile.contains("rows") || !profile["rows"].is_array()) return nullptr;
  Json& rows = profile["rows"];
  if (!std::ranges::all_of(rows, &Json::is_object)) return nullptr;
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

// The classes' scores, as far as a page has room for them.
Json classes_of(const std::string& text) {
  // Earlier versions wrote a square of any size, as the last member.
  const size_t end = text.size() > kMostBytes ? text.find(",\"confusion\":[[") : text.npos;
  Json classes = object_of(end == text.npos ? text : text.substr(0, end) + "}"), shown = Json::object();
  const Json* all = classes.find("classes");
  if (!all || !all->is_object() || all->size() <= kMostClasses) return classes;
  const size_t count = all->size();
  for (const auto& [name, scores] : all->items())
    if (shown.size() < kMostRows) shown[name] = scores;
  classes["classes"] = std::move(shown), classes["left_out"] = count - std::min(count, kMostRows);
  classes.erase("confusion"), classes.erase("confusion_pairs");
  return classes;
}

Json run_data(const ReportRun& run, bool with_pictures) {
  std::vector<Json> train, valid;
  for (Json& line : parsed_lines(run.metrics)) {
    const Json* split = line.find("split");
    if (!split || *split == "train") train.push_back(std::move(line));
    else if (split->is_string()) valid.push_back(std::move(line));
  }
  Json config = Json::object();
  for (const auto& [key, value] : run.config) config[key] = value;
  Json json{{"name", run.name}, {"config", std::move(config)}, {"train", columns(thinned(std::move(train)))},
      {"valid", columns(valid)}, {"samples", samples_of(run.samples)}};
  if (Json classes = classes_of(run.classes); classes.contains("classes")) json["classes"] = std::move(classes);
  json["system"] = object_of(run.system);
  const Json memory = object_of(run.memory);
  for (const char* name : {"items", "parameters"})
    if (memory.contains(name)) json[name] = memory[name];
  if (with_pictures && memory.contains("picture") && memory["picture"].is_object()) json["memory"] = memory["picture"];
  if (const Json profile = profile_of(run.profile); with_pictures && profile.is_object()) json["profile"] = profile;
  return json;
}

std::string filled(const std::map<std::string, std::string>& values) {
  const std::string_view page = kPageHtml;
  std::string result;
  for (size_t at = 0; at < page.size();) {
    const size_t open = std::min(page.find("{{", at), page.size());
    result += page.substr(at, open - at);
    if (open == page.size()) break;
    const size_t close = page.find("}}", open);
    result += values.at(std::string(page.substr(open + 2, close - open - 2)));
    at = close + 2;
  }
  return result;
}

std::string filled_page(const std::string& title, const std::string& command, const char* script, std::string json) {
  replace_all(json, "<", "\\u003c");  // nothing in it may end the script element
  return filled({{"title", html_escaped(title)}, {"command", html_escaped(command)}, {"style", kPageStyle},
      {"script", script}, {"data", json}});
}

std::string name_of(const TensorType& type, size_t bytes) {
  return bytes < type.bytes() ? "part of " + type.text() : type.text();
}

size_t length_of(const Inspection& inspection, size_t sequence) { return inspection.sequences[sequence].tokens.size(); }

// Weights as [heads][queries][keys].
Json nested(const Inspection& inspection, const InspectedAttention& map) {
  const size_t queries = length_of(inspection, map.queries), keys = length_of(inspection, map.keys);
  Json heads = Json::array();
  auto next = map.weights.begin();
  for (size_t head = 0; head < map.heads; ++head) {
    Json rows = Json::array();
    for (size_t query = 0; query < queries; ++query, next += static_cast<std::ptrdiff_t>(keys))
      rows.push_back(std::vector<float>(next, next + static_cast<std::ptrdiff_t>(keys)));
    heads.push_back(std::move(rows));
  }
  return heads;
}

// 16 bits a weight, little-endian, in base64: a page of GPT-2 with 64 tokens has 1.6 MB of them.
std::string packed(const InspectedAttention& map) {
  std::string bytes;
  for (const float weight : map.weights) {
    const auto rounded = static_cast<unsigned>(std::lround(65535.0 * static_cast<double>(weight)));
    bytes += static_cast<char>(rounded & 0xff);
    bytes += static_cast<char>(rounded >> 8);
  }
  return encode_base64(bytes);
}

Json described(const Inspection& inspection, bool is_page) {
  const auto shown = [](const InspectedSequence& sequence) {
    return Json{{"name", sequence.name}, {"tokens", sequence.tokens}};
  };
  Json json{{"model", inspection.model}, {"kind", inspection.kind}, {"sequences", mapped(inspection.sequences, shown)},
      {"answers", Json::array()}};
  for (const InspectedAnswer& answer : inspection.answers) {
    Json likeliest = Json::array(), shares = Json::object();
    for (const auto& [text, probability] : answer.likeliest)
      likeliest.push_back({{"answer", text}, {"probability", probability}});
    for (size_t i = 0; i < answer.shares.size(); ++i) shares[inspection.sequences[i].name] = answer.shares[i];
    json["answers"].push_back({{"answer", answer.text}, {"probability", std::exp(answer.log_probability)},
        {"log_probability", answer.log_probability}, {"baseline_log_probability", answer.baseline},
        {"attributions", std::move(shares)}, {"likeliest", std::move(likeliest)}});
  }
  json["attention"] = Json::array();
  for (const InspectedAttention& map : inspection.attention)
    json["attention"].push_back({{"module", map.module}, {"queries", inspection.sequences[map.queries].name},
        {"keys", inspection.sequences[map.keys].name}, {"heads", map.heads},
        {"weights", is_page ? Json(packed(map)) : nested(inspection, map)}});
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

std::string memory_picture(const Trainer& trainer, RegionId arena) {
  const NamedPlans plans = trainer.plans().by_name();
  const bool trains = trainer.options().training;
  const Plan* largest = nullptr;
  std::string largest_name;
  for (const auto& [name, plan] : plans)
    if ((!trains || !name.starts_with("evaluate")) && (!largest || plan->arena_bytes > largest->arena_bytes))
      largest = plan, largest_name = name;
  if (!largest) return "null";
  const PlanProfile profile = describe_plan(largest_name, *largest, arena);
  Json nodes = Json::array(), tenants = Json::array();
  for (const NodeProfile& node : profile.nodes)
    nodes.push_back({node.label, enum_name(node.phase), node.module, node.source});
  for (const ArenaTenant& tenant : profile.tenants)
    if (tenant.bytes > 0)
      tenants.push_back({name_of(largest->graph.value(tenant.value).type, tenant.bytes), tenant.offset, tenant.bytes,
          tenant.first, tenant.last});
  return Json{{"name", trains ? "a training step" : "an evaluation"}, {"plan", profile.name},
      {"arena_bytes", profile.arena_bytes}, {"nodes", std::move(nodes)}, {"live", profile.live},
      {"tenants", std::move(tenants)}}
      .dump();
}

std::string inspection_json(const Inspection& inspection) { return described(inspection, false).dump(); }

std::string inspection_page(const Inspection& inspection) {
  return filled_page("Inside " + inspection.model, "inspect", kInspectScript, described(inspection, true).dump());
}
}  // namespace linnet
