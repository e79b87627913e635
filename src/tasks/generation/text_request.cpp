#include "tasks/generation/text_request.h"
#include <algorithm>
#include <cmath>
#include "base/fail.h"
#include "base/json.h"
#include "base/json_reader.h"
#include "base/numbers.h"
#include "config/hints.h"
#include "data/text/unicode/utf8.h"
#include "generation/text_grammar.h"

namespace linnet {
namespace {
void read_messages(const JsonObject& json, TextRequest& request) {
  const Json& messages = json.at("messages");
  if (!messages.is_array() || messages.empty()) json.fail("messages", "is not a list of messages");
  for (const Json& message : messages)
    if (const Json* role = message.find("role"); !role || !role->is_string())
      json.fail("a message is an object with a \"role\" and a \"content\"");
  request.messages = messages.dump();
}

// OpenAI's {"type": "text"}, {"type": "json_object"} or {"type": "json_schema", "json_schema": {"schema": ...}}.
void read_format(const JsonObject& json, TextGenerationOptions& options) {
  constexpr const char* kKey = "response_format";
  if (!json.has(kKey)) return;
  try {
    const JsonObject format = json.object(kKey);
    const std::string type = format.text("type");
    if (type == "json_object") {
      options.grammar = std::make_shared<const TextGrammar>(json_object_grammar());
    } else if (type == "json_schema") {
      const JsonObject inner = format.object("json_schema");
      options.grammar = std::make_shared<const TextGrammar>(json_schema_grammar(inner.at("schema")));
      inner.ignore({"name", "description", "strict"});
      inner.check_names(nearest);
    } else if (type != "text") {
      fail_user("there is \"text\", \"json_object\" and \"json_schema\", and no type \"", type, "\"");
    }
    format.check_names(nearest);
  } catch (const Error& error) {
    json.fail(kKey, std::string("is wrong: ") + error.what());
  }
}

// {"TOKEN": added to its logit}
void read_biases(const JsonObject& json, TextGenerationOptions& options) {
  constexpr const char* kKey = "logit_bias";
  if (!json.has(kKey)) return;
  const Json& biases = json.at(kKey);
  if (!biases.is_object()) json.fail(kKey, "is not an object");
  options.logit_bias.clear();
  for (const auto& [name, bias] : biases.items()) {
    const auto token = parse_number<int32_t>(name);
    if (!token || *token < 0) json.fail(kKey, "names tokens by their ids, and \"" + name + "\" is none");
    if (!bias.is_number() || !(std::abs(bias.get<double>()) <= 100))
      json.fail(kKey, "has a number that is not from -100 to 100");
    options.logit_bias.emplace_back(*token, bias.get<double>());
  }
}

void read_tokens(const JsonObject& json, TextRequest& request) {
  const Json& tokens = json.at("tokens");
  if (!is_token_list(tokens)) json.fail("tokens", "is not a list of token ids");
  request.has_tokens = true;
  request.tokens = tokens.get<std::vector<int32_t>>();
}

void read_request(const JsonObject& json, TextRequest& request) {
  if (json.has("prompt") + json.has("messages") + json.has("tokens") != 1)
    json.fail("needs one of \"prompt\", \"messages\" and \"tokens\"");
  request.prompt = json.text("prompt", "");
  if (json.has("messages")) read_messages(json, request);
  read_tools(json, request);
  if (json.has("tokens")) read_tokens(json, request);
  if (const Json* id = json.find("id")) request.id = id->dump();
  read_text_options(json, request.options);
  if (const auto seed = json.integer("seed", 0, INT64_MAX)) request.options.seed = static_cast<uint64_t>(*seed);
  if (const Json* adapter = json.find("adapter"))
    request.options.adapter = adapter->is_null() ? kNoAdapter : json.text("adapter");
  json.check_names(nearest);
}

// Calls use(line, number); a line may end in "\r\n". User error for invalid UTF-8.
template <class Use> void for_each_line(std::string_view lines, const std::string& name, const Use& use) {
  if (lines.starts_with("\xEF\xBB\xBF")) lines.remove_prefix(3);  // a byte order mark
  for (int64_t number = 1; !lines.empty(); ++number) {
    const size_t end = lines.find('\n');
    std::string_view line = lines.substr(0, end);
    lines.remove_prefix(end == std::string_view::npos ? lines.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    const std::string where = name + ", line " + std::to_string(number);
    if (const size_t at = invalid_utf8_at(line); at != std::string_view::npos)
      fail_user(where, ": byte ", at + 1, " is not valid UTF-8");
    use(line, where);
  }
}

const char* name_of(TextEnd end) {
  switch (end) {
    case TextEnd::kEndToken: return "end_token";
    case TextEnd::kStopText: return "stop";
    case TextEnd::kLength: return "length";
    case TextEnd::kInterrupted: break;
  }
  return "interrupted";
}
}  // namespace

bool is_token_list(const Json& value) {
  return value.is_array() && !value.empty() &&
         std::ranges::all_of(value, [](const Json& token) { return token.is_integer(0, INT32_MAX); });
}

void read_text_options(const JsonObject& json, TextGenerationOptions& options) {
  const auto integer = [&](const char* key, int64_t least, int64_t most, std::optional<int64_t>& out) {
    if (const auto value = json.integer(key, least, most)) out = value;
  };
  const auto number = [&](const char* key, bool (*fits)(double), const char* range, std::optional<double>& out) {
    if (const auto value = json.number(key, fits, range)) out = value;
  };
  constexpr auto above_zero = [](double x) { return x > 0; };
  integer("max_tokens", 1, 1'000'000'000, options.max_tokens);
  integer("beam", 1, 1024, options.beams);
  integer("top_k", 0, INT32_MAX, options.top_k);
  number(
      "temperature", [](double x) { return x >= 0; }, "0 or more", options.temperature);
  number(
      "top_p", [](double x) { return x > 0 && x <= 1; }, "above 0 and at most 1", options.top_p);
  number(
      "min_p", [](double x) { return x >= 0 && x <= 1; }, "0 or more and at most 1", options.min_p);
  number("repetition_penalty", above_zero, "above 0", options.repetition_penalty);
  constexpr auto within_two = [](double x) { return x >= -2 && x <= 2; };
  number("frequency_penalty", within_two, "from -2 to 2", options.frequency_penalty);
  number("presence_penalty", within_two, "from -2 to 2", options.presence_penalty);
  read_biases(json, options);
  read_format(json, options);
  number(
      "length_penalty", [](double) { return true; }, "a number", options.length_penalty);
  options.languages.source = json.text("source_language", options.languages.source);
  options.languages.target = json.text("target_language", options.languages.target);
  options.ignore_end = json.flag("ignore_end", options.ignore_end);
  if (!json.has("stop")) return;
  options.stop = json.texts("stop");
  if (std::ranges::count(options.stop, "") > 0) json.fail("stop", "holds an empty text");
}

void read_tools(const JsonObject& json, TextRequest& request) {
  if (!json.has("tools")) return;
  for (const JsonObject& tool : json.objects("tools"))
    if (tool.text("type", "function") != "function" || tool.object("function").text("name").empty())
      json.fail("tools", "has one that is not {\"type\": \"function\", \"function\": {\"name\": ...}}");
  if (!json.at("tools").empty()) request.tools = json.at("tools").dump();
}

TextRequest parse_text_request(std::string_view line, const TextGenerationOptions& defaults, const std::string& where) {
  TextRequest request;
  request.options = defaults, request.where = where;
  const Json json = Json::parse(line, where + ":", JsonLimits::request());
  if (!json.is_object()) fail_user(where, ": not a JSON object");
  read_request(JsonObject(json, where + ":"), request);
  return request;
}

std::vector<TextRequest> parse_text_requests(
    std::string_view lines, const TextGenerationOptions& defaults, const std::string& name) {
  std::vector<TextRequest> requests;
  for_each_line(lines, name, [&](std::string_view line, const std::string& where) {
    if (line.find_first_not_of(" \t") != line.npos) requests.push_back(parse_text_request(line, defaults, where));
  });
  if (requests.empty()) fail_user(name, " holds no request");
  return requests;
}

std::vector<TextRequest> split_prompts(
    std::string_view lines, const TextGenerationOptions& defaults, const std::string& name) {
  std::vector<TextRequest> requests;
  for_each_line(lines, name, [&](std::string_view line, const std::string& where) {
    TextRequest request;
    request.prompt = line, request.options = defaults, request.where = where;
    requests.push_back(std::move(request));
  });
  if (requests.empty()) fail_user(name, " holds no prompt");
  return requests;
}

std::string format_written_text(const WrittenText& written, const TextRequest& request, int64_t index, int64_t sample,
    const std::vector<int32_t>& prompt, bool echo) {
  Json json;
  json["request"] = index;
  if (!request.id.empty()) json["id"] = Json::parse(request.id, JsonLimits::request());
  json["sample"] = sample;
  if (echo && !request.messages.empty()) json["messages"] = Json::parse(request.messages, JsonLimits::request());
  if (echo && request.messages.empty() && !request.has_tokens) json["prompt"] = request.prompt;
  json["prompt_tokens"] = prompt;
  json["text"] = written.text;
  json["tokens"] = written.tokens;
  if (!written.log_probabilities.empty()) json["log_probabilities"] = written.log_probabilities;
  json["log_probability"] = written.log_probability;
  json["end"] = name_of(written.end);
  if (written.end_token >= 0) json["end_token"] = written.end_token;
  return json.dump();
}

std::string ask(const std::string& question, const std::string& system) {
  Json messages = Json::array();
  if (!system.empty()) messages.push_back({{"role", "system"}, {"content", system}});
  messages.push_back({{"role", "user"}, {"content", question}});
  return messages.dump();
}
}  // namespace linnet
