#include "training/report/inspection.h"

#include <cmath>

#include "base/json.h"
#include "data/text/base64.h"
#include "training/report/page_parts.h"

namespace linnet {
namespace {

std::string text_of(const Json& json) { return json.dump(); }

size_t length_of(const Inspection& inspection, size_t sequence) { return inspection.sequences[sequence].tokens.size(); }

// [heads][queries][keys]
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

// Two bytes a weight, the lower one first, in base64: a page of GPT-2 and 64 tokens has 1.6 MB of them.
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
  Json json{{"model", inspection.model}, {"kind", inspection.kind}, {"sequences", Json::array()}};
  for (const InspectedSequence& sequence : inspection.sequences)
    json["sequences"].push_back({{"name", sequence.name}, {"tokens", sequence.tokens}});
  json["answers"] = Json::array();
  for (const InspectedAnswer& answer : inspection.answers) {
    Json likeliest = Json::array(), shares = Json::object();
    for (const auto& [text, probability] : answer.likeliest)
      likeliest.push_back({{"answer", text}, {"probability", probability}});
    for (size_t i = 0; i < answer.shares.size(); ++i) shares[inspection.sequences[i].name] = answer.shares[i];
    json["answers"].push_back({{"answer", answer.text},
                               {"probability", std::exp(answer.log_probability)},
                               {"log_probability", answer.log_probability},
                               {"baseline_log_probability", answer.baseline},
                               {"attributions", std::move(shares)},
                               {"likeliest", std::move(likeliest)}});
  }
  json["attention"] = Json::array();
  for (const InspectedAttention& map : inspection.attention)
    json["attention"].push_back({{"module", map.module},
                                 {"queries", inspection.sequences[map.queries].name},
                                 {"keys", inspection.sequences[map.keys].name},
                                 {"heads", map.heads},
                                 {"weights", is_page ? Json(packed(map)) : nested(inspection, map)}});
  return json;
}

}  // namespace

std::string inspection_json(const Inspection& inspection) { return text_of(described(inspection, false)); }

std::string inspection_page(const Inspection& inspection) {
  return filled_page("Inside " + inspection.model, "inspect", kInspectScript, text_of(described(inspection, true)));
}

}  // namespace linnet
