#include <algorithm>
#include "base/json.h"
#include "config/hints.h"
#include "data/text/unicode/utf8.h"
#include "serving/http/api.h"
#include "serving/http/http.h"

namespace linnet {
namespace {
constexpr int64_t kMostSamples = 128;  // of a prompt
constexpr int64_t kMostAlternatives = 20;
constexpr size_t kMostTexts = 2048;  // of a request
constexpr size_t kMostStops = 16;

// Returns read(object) of a body, all of whose keys must be read; turns its errors into ApiErrors.
template <class Read> auto read_body(std::string_view body, const Read& read) {
  if (const size_t at = invalid_utf8_at(body); at != std::string_view::npos)
    throw ApiError(400, "byte " + std::to_string(at + 1) + " of the body is not valid UTF-8");
  try {
    const Json json = Json::parse(body, "the body", JsonLimits::request().with_unique_keys());
    if (!json.is_object()) throw ApiError(400, "the body is not a JSON object");
    const JsonObject object(json, "");
    auto call = read(object);
    object.check_names(nearest);
    return call;
  } catch (const JsonError& error) {
    throw ApiError(400, error.what(), error.key);
  }
}

// Settings that completions and conversations share.
void read_settings(const JsonObject& body, TextCall& call, TextGenerationOptions& options) {
  call.model = body.text("model", "");
  call.samples = body.integer("n", 1, kMostSamples).value_or(1);
  call.stream = body.flag("stream", false);
  if (body.has("stream_options")) {
    const JsonObject inner = body.object("stream_options");
    call.include_usage = inner.flag("include_usage", false);
    inner.ignore({"include_obfuscation"});
    inner.check_names(nearest);
  }
  read_text_options(body, options);
  if (const auto seed = body.integer("seed", INT64_MIN, INT64_MAX)) {
    call.seed_given = true;
    options.seed = static_cast<uint64_t>(*seed);
  }
  if (options.stop.size() > kMostStops) body.fail("stop", "has more than " + std::to_string(kMostStops) + " texts");
  options.adapter = body.text("adapter", "");
  body.ignore({"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"});
  if (options.beams.value_or(1) > 1 && call.samples > 1)
    body.fail("n", "is for sampling; a search of \"beam\" finds one text");
}

void check_count(const JsonObject& body, const char* key, const Json& texts) {
  if (texts.size() > kMostTexts)
    body.fail(key, "has " + std::to_string(texts.size()) + " texts, more than " + std::to_string(kMostTexts));
}

// Calls one(item) for a value or each item of a list; a list of token ids is one value. Returns whether it is a list.
template <class One> bool for_inputs(const JsonObject& body, const char* key, const One& one) {
  if (!body.has(key)) body.fail(key, "is missing");
  const Json& value = body.at(key);
  if (!value.is_array() || is_token_list(value)) return one(value), false;
  if (value.empty()) body.fail(key, "is an empty list");
  check_count(body, key, value);
  for (const Json& item : value) one(item);
  return true;
}

// Calls one of the two for each input: a text, texts, token ids, or lists of them.
template <class TakeText, class TakeTokens>
bool read_inputs(const JsonObject& body, const char* key, const TakeText& text, const TakeTokens& tokens) {
  return for_inputs(body, key, [&](const Json& item) {
    if (item.is_string()) return text(item.text());
    if (is_token_list(item)) return tokens(item.get<std::vector<int32_t>>());
    body.fail(key, "is neither a text, nor token ids, nor a list of these");
  });
}

// Only supports "auto" and "none".
void read_tool_choice(const JsonObject& body, TextCall& call) {
  TextRequest& request = call.requests[0];
  read_tools(body, request);
  const Json* choice = body.find("tool_choice");
  const bool none = choice && *choice == "none";
  if (choice && !choice->is_null() && !none && *choice != "auto")
    body.fail("tool_choice", "is supported as \"auto\" and \"none\"");
  if (none) request.tools.clear();
  if (!request.tools.empty())
    for (const Json& tool : body.at("tools")) call.functions.push_back(tool["function"]["name"].text());
  if (!call.functions.empty() && request.options.grammar)
    body.fail("response_format", "is for answers without \"tools\"");
  if (body.has("functions") && !body.at("functions").empty()) body.fail("functions", "is not supported; \"tools\" is");
  body.ignore({"parallel_tool_calls", "function_call"});
}

TextCall read_completion_call(const JsonObject& body) {
  TextCall call;
  TextGenerationOptions options;
  read_settings(body, call, options);
  if (const auto count = body.integer("logprobs", 0, kMostAlternatives)) call.alternatives = *count;
  call.echo = body.flag("echo", false);
  if (const auto best = body.integer("best_of", 1, kMostSamples); best && *best != call.samples)
    body.fail("best_of", "is not supported");
  if (!body.text("suffix", "").empty()) body.fail("suffix", "is not supported");
  read_inputs(
      body, "prompt",
      [&](std::string text) {
        call.requests.push_back({.prompt = std::move(text), .options = options, .where = "the prompt"});
      },
      [&](std::vector<int32_t> tokens) {
        call.requests.push_back(
            {.tokens = std::move(tokens), .has_tokens = true, .options = options, .where = "the prompt"});
      });
  if (call.echo && std::ranges::any_of(call.requests, &TextRequest::has_tokens))
    body.fail("echo", "is for prompts that are texts");
  return call;
}

TextCall read_chat_call(const JsonObject& body) {
  TextCall call;
  call.is_chat = true;
  TextGenerationOptions options;
  read_settings(body, call, options);
  if (const auto limit = body.integer("max_completion_tokens", 1, 1'000'000'000)) options.max_tokens = limit;
  const bool log_probabilities = body.flag("logprobs", false);
  const auto alternatives = body.integer("top_logprobs", 0, kMostAlternatives);
  if (alternatives && !log_probabilities) body.fail("top_logprobs", "needs \"logprobs\": true");
  if (log_probabilities) call.alternatives = alternatives.value_or(0);
  call.requests.push_back({.options = options, .where = "the conversation"});
  read_messages(body, call.requests[0]);
  read_tool_choice(body, call);
  return call;
}

InputCall read_embedding_call(const JsonObject& body) {
  InputCall call;
  call.model = body.text("model", "");
  const std::string format = body.text("encoding_format", "");
  if (!format.empty() && format != "float" && format != "base64")
    body.fail("encoding_format", "is neither \"float\" nor \"base64\"");
  call.base64 = format == "base64";
  call.dimensions = body.integer("dimensions", 1, 1'000'000);
  call.prompt = body.text("prompt_name", "");
  call.is_list = read_inputs(
      body, "input", [&](std::string text) { call.texts.push_back(std::move(text)); },
      [&](std::vector<int32_t> tokens) { call.tokens.push_back(std::move(tokens)); });
  if (!call.texts.empty() && !call.tokens.empty()) body.fail("input", "mixes texts and token ids");
  body.ignore({"user"});
  return call;
}

bool is_pair(const Json& value) {
  return value.is_array() && value.size() == 2 && value[0].is_string() && value[1].is_string();
}
void read_pairs(const JsonObject& body, InputCall& call) {
  const Json& inputs = body.at("inputs");
  check_count(body, "inputs", inputs);
  for (const Json& item : inputs) {
    if (!is_pair(item) && !item.is_string()) body.fail("inputs", "is no list of texts and of pairs of texts");
    call.texts.push_back(item.is_string() ? item.text() : item[0].text());
    call.pairs.push_back(item.is_string() ? std::nullopt : std::optional(item[1].text()));
  }
  call.is_list = true;
}

void read_questions(const JsonObject& body, InputCall& call) {
  call.is_list = for_inputs(body, "inputs", [&](const Json& item) {
    const Json *question = item.find("question"), *context = item.find("context");
    const bool asks = question && context && question->is_string() && context->is_string();
    if (!item.is_string() && !asks)
      body.fail("inputs", "is neither a text, nor a question and its context, nor a list of such");
    call.texts.push_back(asks ? question->text() : item.text());
    call.pairs.push_back(asks ? std::optional(context->text()) : std::nullopt);
  });
}

InputCall read_rerank_call(const JsonObject& body) {
  InputCall call;
  call.model = body.text("model", "");
  const std::string query = body.text("query", "");
  if (!body.has("query")) body.fail("query", "is missing");
  call.is_list = body.has("texts");
  const char* key = call.is_list ? "texts" : "documents";
  if (!body.has(key)) body.fail(key, "is missing");
  const Json& documents = body.at(key);
  if (!documents.is_array() || documents.empty()) body.fail(key, "is no list of texts");
  check_count(body, key, documents);
  for (const Json& document : documents) {
    const Json* text = document.is_object() ? document.find("text") : &document;
    if (!text || !text->is_string()) body.fail(key, "is no list of texts");
    call.texts.push_back(query), call.pairs.emplace_back(text->text());
  }
  for (const char* top : {"top_n", "top_k"})
    if (const auto count = body.integer(top, 1, 1'000'000)) call.top = count;
  call.raw_scores = body.flag("raw_scores", false);
  for (const char* name : {"return_text", "return_documents"})
    call.return_texts = body.flag(name, false) || call.return_texts;
  body.ignore({"truncate", "truncation_direction", "user", "max_chunks_per_doc", "max_tokens_per_doc"});
  return call;
}

InputCall read_inputs_call(const JsonObject& body, std::string_view path) {
  InputCall call;
  call.model = body.text("model", "");
  const auto no_tokens = [&](std::vector<int32_t>) { body.fail("inputs", "is neither a text nor a list of texts"); };
  if (path == "/predict") read_questions(body, call);
  else if (path == "/classify" && body.has("inputs") && std::ranges::any_of(body.at("inputs"), is_pair))
    read_pairs(body, call);
  else
    call.is_list = read_inputs(
        body, "inputs", [&](std::string text) { call.texts.push_back(std::move(text)); }, no_tokens);
  // Hugging Face's clients put settings into "parameters" or into the body itself.
  const Json none = Json::object();
  const JsonObject parameters = body.has("parameters") ? body.object("parameters") : JsonObject(none, "");
  for (const JsonObject* settings : {&body, &parameters}) {
    if (path == "/embed") {
      if (!settings->flag("normalize", true)) settings->fail("normalize", "false is not supported");
      call.normalize = call.normalize || settings->flag("normalize", false);
      if (!settings->flag("truncate", true)) settings->fail("truncate", "is not supported; long texts are cut");
      if (const auto dimensions = settings->integer("dimensions", 1, 1'000'000)) call.dimensions = dimensions;
      call.prompt = settings->text("prompt_name", call.prompt);
      settings->ignore({"truncation_direction"});
    } else if (path == "/predict" || path == "/classify") {
      if (const auto top = settings->integer("top_k", 1, 1'000'000)) call.top = top;
      if (path == "/predict") settings->ignore({"aggregation_strategy"});
      else if (const std::string function = settings->text("function_to_apply", "");
               !function.empty() && function != "softmax")
        settings->fail("function_to_apply", "is not supported, other than \"softmax\"");
    } else {
      for (const char* key : {"max_tokens", "max_new_tokens"})
        if (const auto limit = settings->integer(key, 1, 1'000'000'000)) call.options.max_tokens = limit;
      for (const char* key : {"beam", "num_beams"})
        if (const auto beams = settings->integer(key, 1, 1024)) call.options.beams = beams;
      if (const auto penalty = settings->number(
              "length_penalty", [](double) { return true; }, "a number"))
        call.options.length_penalty = penalty;
      Languages& languages = call.options.languages;
      for (const char* key : {"source_language", "src_lang"}) languages.source = settings->text(key, languages.source);
      for (const char* key : {"target_language", "tgt_lang"}) languages.target = settings->text(key, languages.target);
      languages.may_ignore = settings->has("src_lang") || settings->has("tgt_lang");
      settings->ignore({"clean_up_tokenization_spaces", "truncation"});
    }
  }
  parameters.check_names(nearest);
  body.ignore({"options"});
  return call;
}
}  // namespace

TextCall parse_completion_call(std::string_view body) { return read_body(body, read_completion_call); }
TextCall parse_chat_call(std::string_view body) { return read_body(body, read_chat_call); }
InputCall parse_embedding_call(std::string_view body) { return read_body(body, read_embedding_call); }
InputCall parse_rerank_call(std::string_view body) { return read_body(body, read_rerank_call); }
InputCall parse_inputs_call(std::string_view body, std::string_view path) {
  return read_body(body, [&](const JsonObject& object) { return read_inputs_call(object, path); });
}
}  // namespace linnet
