#include "tasks/generation/text_request.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "config/hints.h"
#include "data/text/unicode/utf8.h"

namespace linnet {
namespace {

using Json = nlohmann::ordered_json;

class RequestReader {
 public:
  RequestReader(const Json& json, TextRequest& request) : json_(json), request_(request) {}

  void read() {
    TextGenerationOptions& options = request_.options;
    if (const Json* prompt = find("prompt")) request_.prompt = text(*prompt, "prompt");
    if (const Json* messages = find("messages")) read_messages(*messages);
    if (const Json* tokens = find("tokens")) read_tokens(*tokens);
    if (json_.contains("prompt") + json_.contains("messages") + json_.contains("tokens") != 1)
      fail("needs one of \"prompt\", \"messages\" and \"tokens\"");
    if (const Json* id = find("id")) request_.id = id->dump(-1, ' ', false, Json::error_handler_t::replace);
    read_integer("max_tokens", 1, 1'000'000'000, options.max_tokens);
    read_integer("beam", 1, 1024, options.beams);
    read_integer("top_k", 0, INT32_MAX, options.top_k);
    read_number(
        "temperature", [](double x) { return x >= 0; }, "0 or more", options.temperature);
    read_number(
        "top_p", [](double x) { return x > 0 && x <= 1; }, "above 0 and at most 1", options.top_p);
    read_number(
        "repetition_penalty", [](double x) { return x > 0; }, "above 0", options.repetition_penalty);
    read_number(
        "length_penalty", [](double) { return true; }, "a number", options.length_penalty);
    std::optional<int64_t> seed;
    read_integer("seed", 0, INT64_MAX, seed);
    if (seed) options.seed = static_cast<uint64_t>(*seed);
    if (const Json* ignore = find("ignore_end")) {
      if (!ignore->is_boolean()) fail("\"ignore_end\" is neither true nor false");
      options.ignore_end = ignore->get<bool>();
    }
    if (const Json* stop = find("stop")) read_stop(*stop);
    if (const Json* adapter = find("adapter"))
      options.adapter = adapter->is_null() ? kNoAdapter : text(*adapter, "adapter");
    check_names();
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { fail_user(request_.where + ": " + what); }

  const Json* find(const std::string& key) {
    known_.push_back(key);
    const auto found = json_.find(key);
    return found == json_.end() ? nullptr : &*found;
  }

  std::string text(const Json& value, const std::string& key) const {
    if (!value.is_string()) fail("\"" + key + "\" is not a text");
    return value.get<std::string>();
  }

  void read_integer(const std::string& key, int64_t least, int64_t most, std::optional<int64_t>& out) {
    const Json* value = find(key);
    if (!value) return;
    const bool large = value->is_number_unsigned() && value->get<uint64_t>() > INT64_MAX;
    if (!value->is_number_integer() || large || value->get<int64_t>() < least || value->get<int64_t>() > most)
      fail("\"" + key + "\" is not a whole number from " + std::to_string(least) + " to " + std::to_string(most));
    out = value->get<int64_t>();
  }

  void read_number(const std::string& key, bool (*fits)(double), const std::string& range, std::optional<double>& out) {
    const Json* value = find(key);
    if (!value) return;
    if (!value->is_number() || !std::isfinite(value->get<double>()) || !fits(value->get<double>()))
      fail("\"" + key + "\" is not a number that is " + range);
    out = value->get<double>();
  }

  void read_messages(const Json& messages) {
    if (!messages.is_array() || messages.empty()) fail("\"messages\" is not a list of messages");
    for (const Json& message : messages)
      if (!message.is_object() || !message.contains("role") || !message["role"].is_string())
        fail("a message is an object with a \"role\" and a \"content\"");
    request_.messages = messages.dump(-1, ' ', false, Json::error_handler_t::replace);
  }

  void read_tokens(const Json& tokens) {
    if (!tokens.is_array() || tokens.empty()) fail("\"tokens\" is not a list of token ids");
    request_.has_tokens = true;
    for (const Json& token : tokens) {
      if (!token.is_number_integer() || token.get<double>() < 0 || token.get<double>() > INT32_MAX)
        fail("\"tokens\" is not a list of token ids");
      request_.tokens.push_back(token.get<int32_t>());
    }
  }

  void read_stop(const Json& stop) {
    request_.options.stop.clear();
    if (stop.is_string()) request_.options.stop.push_back(stop.get<std::string>());
    if (!stop.is_string() && !stop.is_array()) fail("\"stop\" is neither a text nor a list of texts");
    if (stop.is_array())
      for (const Json& one : stop) request_.options.stop.push_back(text(one, "stop"));
    for (const std::string& one : request_.options.stop)
      if (one.empty()) fail("\"stop\" holds an empty text");
  }

  void check_names() const {
    for (const auto& [key, value] : json_.items())
      if (std::ranges::find(known_, key) == known_.end())
        fail("there is no setting \"" + key + "\" (did you mean \"" + nearest(key, known_) + "\"?)");
  }

  const Json& json_;
  TextRequest& request_;
  std::vector<std::string> known_;
};

// Calls `use` with each line and its number; a line may end in "\r\n". User error where a line is not valid UTF-8.
template <class Use>
void for_each_line(std::string_view lines, const std::string& name, const Use& use) {
  if (lines.starts_with("\xEF\xBB\xBF")) lines.remove_prefix(3);  // a byte order mark
  for (int64_t number = 1; !lines.empty(); ++number) {
    const size_t end = lines.find('\n');
    std::string_view line = lines.substr(0, end);
    lines.remove_prefix(end == std::string_view::npos ? lines.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    const std::string where = name + ", line " + std::to_string(number);
    if (const size_t at = invalid_utf8_at(line); at != std::string_view::npos)
      fail_user(where + ": byte " + std::to_string(at + 1) + " is not valid UTF-8");
    use(line, where);
  }
}

const char* name_of(TextEnd end) {
  switch (end) {
    case TextEnd::kEndToken:
      return "end_token";
    case TextEnd::kStopText:
      return "stop";
    case TextEnd::kLength:
      return "length";
    case TextEnd::kInterrupted:
      break;
  }
  return "interrupted";
}

}  // namespace

TextRequest parse_text_request(std::string_view line, const TextGenerationOptions& defaults, const std::string& where) {
  constexpr int kDeepest = 100;
  TextRequest request;
  request.options = defaults, request.where = where;
  bool too_deep = false;
  const Json json = Json::parse(
      line, [&](int depth, Json::parse_event_t, Json&) { return !(too_deep = too_deep || depth > kDeepest); }, false);
  if (too_deep) fail_user(where + ": it nests deeper than " + std::to_string(kDeepest) + " levels");
  if (json.is_discarded()) fail_user(where + ": not JSON");
  if (!json.is_object()) fail_user(where + ": not a JSON object");
  RequestReader(json, request).read();
  return request;
}

std::vector<TextRequest> parse_text_requests(std::string_view lines, const TextGenerationOptions& defaults,
                                             const std::string& name) {
  std::vector<TextRequest> requests;
  for_each_line(lines, name, [&](std::string_view line, const std::string& where) {
    if (line.find_first_not_of(" \t") != line.npos) requests.push_back(parse_text_request(line, defaults, where));
  });
  if (requests.empty()) fail_user(name + " holds no request");
  return requests;
}

std::vector<TextRequest> split_prompts(std::string_view lines, const TextGenerationOptions& defaults,
                                       const std::string& name) {
  std::vector<TextRequest> requests;
  for_each_line(lines, name, [&](std::string_view line, const std::string& where) {
    TextRequest request;
    request.prompt = line, request.options = defaults, request.where = where;
    requests.push_back(std::move(request));
  });
  if (requests.empty()) fail_user(name + " holds no prompt");
  return requests;
}

std::string format_written_text(const WrittenText& written, const TextRequest& request, int64_t index, int64_t sample,
                                const std::vector<int32_t>& prompt, bool echo) {
  Json json;
  json["request"] = index;
  if (!request.id.empty()) json["id"] = Json::parse(request.id);
  json["sample"] = sample;
  if (echo && !request.messages.empty()) json["messages"] = Json::parse(request.messages);
  if (echo && request.messages.empty() && !request.has_tokens) json["prompt"] = request.prompt;
  json["prompt_tokens"] = prompt;
  json["text"] = written.text;
  json["tokens"] = written.tokens;
  if (!written.log_probabilities.empty()) json["log_probabilities"] = written.log_probabilities;
  json["log_probability"] = written.log_probability;
  json["end"] = name_of(written.end);
  if (written.end_token >= 0) json["end_token"] = written.end_token;
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace linnet
