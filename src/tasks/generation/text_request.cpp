#include "tasks/generation/text_request.h"
#include "base/error.h"
#include "base/fail.h"
#include "base/json.h"
#include "base/log.h"
#include "base/numbers.h"
#include "config/hints.h"
#include "data/text/chat/chat_template.h"
#include "data/text/unicode/utf8.h"

namespace linnet {
namespace {
constexpr int64_t kUsualTopK = 50;  // transformers' default for sampling

template <class T> T first_given(const std::optional<T>& asked, const std::optional<T>& made, T standard) {
  return asked ? *asked : made.value_or(standard);
}

bool samples(const TextGenerationOptions& options) {
  return options.temperature || options.top_k || options.top_p || options.min_p || options.samples > 1;
}

bool changes_logits(const TextGenerationOptions& options) {
  return options.repetition_penalty || options.frequency_penalty || options.presence_penalty ||
         !options.logit_bias.empty() || options.grammar;
}

// The author's number of beams applies if the user neither samples nor compares.
int64_t choose_beams(const TextGenerationOptions& options, const GenerationConfig& author) {
  if (options.beams) return *options.beams;
  const bool own_way = samples(options) || changes_logits(options) || options.no_cache || author.sample.value_or(false);
  return own_way ? 1 : author.beams.value_or(1);
}

SamplingOptions choose_sampling(const TextGenerationOptions& options, const GenerationConfig& author) {
  const bool greedy = author.sample && !*author.sample && !samples(options);
  const int64_t top_k = author.sample.value_or(false) ? kUsualTopK : 0;
  return {.bias = options.logit_bias,
      .repetition_penalty = first_given(options.repetition_penalty, author.repetition_penalty, 1.0),
      .frequency_penalty = options.frequency_penalty.value_or(0),
      .presence_penalty = options.presence_penalty.value_or(0),
      .temperature = greedy ? 0 : first_given(options.temperature, author.temperature, 1.0),
      .top_k = first_given(options.top_k, author.top_k, top_k),
      .top_p = first_given(options.top_p, author.top_p, 1.0),
      .min_p = first_given(options.min_p, author.min_p, 0.0),
      .seed = options.seed};
}

int64_t choose_length(const TextGenerationOptions& options, const GenerationConfig& author, int64_t prompt_tokens) {
  if (options.max_tokens) return *options.max_tokens;
  if (author.max_new_tokens) return *author.max_new_tokens;
  return author.max_length ? std::max<int64_t>(1, *author.max_length - prompt_tokens) : GenerationChoice{}.max_tokens;
}

void check_search(const TextGenerationOptions& options) {
  if (options.samples > 1) fail_user("a search finds one text: give either --beam or --samples");
  if (options.no_cache) fail_user("a search needs the cache: give either --beam or --no-cache");
  if (samples(options) || changes_logits(options))
    fail_user(
        "a search takes the likeliest text as it is: give either --beam or --temperature, --top-k, --top-p, --min-p, "
        "penalties, biases and formats");
}

EarlyStopping early_stopping(const std::string& name) {
  if (name == "true") return EarlyStopping::kFull;
  return name == "never" ? EarlyStopping::kNever : EarlyStopping::kLikely;
}

void warn_of(const std::string& what, const std::string& folder) {
  log_warning("'" + folder + "/generation_config.json': " + what + " is not supported and left out");
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

void read_prompt(const JsonObject& json, TextRequest& request) {
  if (json.has("prompt") + json.has("messages") + json.has("tokens") != 1)
    json.fail("needs one of \"prompt\", \"messages\" and \"tokens\"");
  if (json.has("tools") && !json.has("messages")) json.fail("tools", "belongs to \"messages\"");
  request.prompt = json.text("prompt", "");
  if (json.has("messages")) read_messages(json, request);
  read_tools(json, request);
  if (json.has("tokens")) read_tokens(json, request);
}

// The requests that make(line, where) returns; a line may end in "\r\n". User error for invalid UTF-8, and without any.
template <class Make> std::vector<TextRequest> requests_of(
    std::string_view lines, const std::string& name, const char* what, bool skips_blank, const Make& make) {
  std::vector<TextRequest> requests;
  int64_t number = 0;
  for (const std::string_view line : split_lines(lines)) {
    const std::string where = name + ", line " + std::to_string(++number);
    if (const size_t at = invalid_utf8_at(line); at != std::string_view::npos)
      fail_user(where, ": byte ", at + 1, " is not valid UTF-8");
    if (!skips_blank || line.find_first_not_of(" \t") != line.npos) requests.push_back(make(line, where));
  }
  if (requests.empty()) fail_user(name, " holds no ", what);
  return requests;
}
}  // namespace

GenerationChoice choose_generation(const TextGenerationOptions& options, const GenerationBasis& basis) {
  const GenerationConfig& author = basis.author;
  GenerationChoice choice;
  choice.beams = choose_beams(options, author);
  if (options.beams.value_or(1) > 1) check_search(options);
  choice.max_tokens = choose_length(options, author, basis.prompt_tokens);
  choice.sampling = choose_sampling(options, author);
  choice.length_penalty = first_given(options.length_penalty, author.length_penalty, 1.0);
  choice.early_stopping = early_stopping(author.early_stopping);
  const int64_t least = std::max<int64_t>(0, author.min_length.value_or(0) - basis.prompt_tokens);
  choice.rules = {author.min_new_tokens.value_or(least), author.no_repeat_ngram.value_or(0)};
  if (!options.ignore_end) {
    choice.ends = basis.ends;
    for (const int64_t end : author.ends)
      if (!contains(choice.ends, end)) choice.ends.push_back(static_cast<int32_t>(end));
  }
  if (!basis.warn) return choice;
  for (const std::string& key : author.unsupported) warn_of("\"" + key + "\"", basis.folder);
  if (!author.forbidden.empty()) warn_of("\"bad_words_ids\"", basis.folder);
  if (!options.beams && author.sample.value_or(false) && author.beams.value_or(1) > 1)
    warn_of("\"num_beams\" of a search that samples", basis.folder);
  if (choice.beams > 1 && author.repetition_penalty.value_or(1) != 1)
    warn_of("\"repetition_penalty\" of a search", basis.folder);
  return choice;
}

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
  if (contains(options.stop, "")) json.fail("stop", "holds an empty text");
}

void read_messages(const JsonObject& json, TextRequest& request) {
  const auto fail = [&](const std::string& why) { json.fail("messages", why); };
  request.messages = template_messages(json.has("messages") ? json.at("messages") : Json(), fail).dump();
}

void read_tools(const JsonObject& json, TextRequest& request) {
  if (!json.has("tools")) return;
  for (const JsonObject& tool : json.objects("tools"))
    if (tool.text("type", "function") != "function" || tool.object("function").text("name").empty())
      json.fail("tools", "has one that is not {\"type\": \"function\", \"function\": {\"name\": ...}}");
  if (!json.at("tools").empty()) request.tools = json.at("tools").dump();
}

TextRequest parse_text_request(
    std::string_view line, const TextGenerationOptions& defaults, const std::string& where, const char* text) {
  TextRequest request{.options = defaults, .where = where};
  const Json json = Json::parse(line, where, JsonLimits::request().with_unique_keys());
  if (!json.is_object()) fail_user(where, ": not a JSON object");
  const JsonObject fields(json, where + ":");
  if (text) request.prompt = fields.text(text);
  else read_prompt(fields, request);
  if (const Json* id = fields.find("id")) request.id = id->dump();
  read_text_options(fields, request.options);
  if (const auto seed = fields.integer("seed", 0, INT64_MAX)) request.options.seed = static_cast<uint64_t>(*seed);
  if (const Json* adapter = fields.find("adapter"))
    request.options.adapter = adapter->is_null() ? kNoAdapter : fields.text("adapter");
  fields.check_names(nearest);
  return request;
}

std::vector<TextRequest> parse_text_requests(
    std::string_view lines, const TextGenerationOptions& defaults, const std::string& name) {
  return requests_of(lines, name, "request", true,
      [&](std::string_view line, const std::string& where) { return parse_text_request(line, defaults, where); });
}

std::vector<TextRequest> split_prompts(
    std::string_view lines, const TextGenerationOptions& defaults, const std::string& name) {
  return requests_of(lines, name, "prompt", false, [&](std::string_view line, const std::string& where) {
    return TextRequest{.prompt = std::string(line), .options = defaults, .where = where};
  });
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
  json["end"] = enum_name(written.end);
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
