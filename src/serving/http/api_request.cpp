#include "serving/http/api_request.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "config/hints.h"
#include "serving/http/api_error.h"
#include "data/text/unicode/utf8.h"

namespace linnet {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kDeepest = 100;          // nesting of a body
constexpr int64_t kMostSamples = 128;  // of a prompt
constexpr int64_t kMostAlternatives = 20;
constexpr size_t kMostTexts = 2048;  // of a request
constexpr size_t kMostStops = 16;

Json parse_body(std::string_view body) {
  if (const size_t at = invalid_utf8_at(body); at != std::string_view::npos)
    throw ApiError(400, "byte " + std::to_string(at + 1) + " of the body is not valid UTF-8");
  bool too_deep = false;
  Json json = Json::parse(
      body, [&](int depth, Json::parse_event_t, Json&) { return !(too_deep = too_deep || depth > kDeepest); }, false);
  if (too_deep) throw ApiError(400, "the body nests deeper than " + std::to_string(kDeepest) + " levels");
  if (json.is_discarded()) throw ApiError(400, "the body is not JSON");
  if (!json.is_object()) throw ApiError(400, "the body is not a JSON object");
  return json;
}

// Reads keys and remembers which there are; a key that is null counts as absent.
class BodyReader {
 public:
  explicit BodyReader(const Json& json) : json_(json) {}

  const Json* find(const std::string& key) {
    known_.push_back(key);
    const auto found = json_.find(key);
    return found == json_.end() || found->is_null() ? nullptr : &*found;
  }
  void ignore(std::initializer_list<const char*> keys) { known_.insert(known_.end(), keys.begin(), keys.end()); }

  [[noreturn]] static void fail(const std::string& key, const std::string& what) {
    throw ApiError(400, "\"" + key + "\" " + what, key);
  }

  std::string text(const std::string& key) {
    const Json* value = find(key);
    if (!value) return "";
    if (!value->is_string()) fail(key, "is not a text");
    return value->get<std::string>();
  }
  bool flag(const std::string& key, bool otherwise) {
    const Json* value = find(key);
    if (!value) return otherwise;
    if (!value->is_boolean()) fail(key, "is neither true nor false");
    return value->get<bool>();
  }
  std::optional<int64_t> integer(const std::string& key, int64_t least, int64_t most) {
    const Json* value = find(key);
    if (!value) return {};
    // A number such as 5.0 is accepted, as other servers do.
    const bool whole = value->is_number_float() && std::abs(value->get<double>()) < 1e15 &&
                       std::floor(value->get<double>()) == value->get<double>();
    const bool large = value->is_number_unsigned() && value->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX);
    if (!(value->is_number_integer() || whole) || large || value->get<int64_t>() < least ||
        value->get<int64_t>() > most)
      fail(key, "is not a whole number from " + std::to_string(least) + " to " + std::to_string(most));
    return value->get<int64_t>();
  }
  std::optional<double> number(const std::string& key, bool (*fits)(double), const std::string& range) {
    const Json* value = find(key);
    if (!value) return {};
    if (!value->is_number() || !std::isfinite(value->get<double>()) || !fits(value->get<double>()))
      fail(key, "is not a number that is " + range);
    return value->get<double>();
  }
  // Settings that other servers have and that change the answer: only their neutral value is taken.
  void refuse_number(const std::string& key) {
    const Json* value = find(key);
    if (value && !(value->is_number() && value->get<double>() == 0)) fail(key, "is not supported");
  }
  void refuse_list(const std::string& key) {
    const Json* value = find(key);
    if (value && !value->empty()) fail(key, "is not supported");
  }

  void check_names() const {
    for (const auto& [key, value] : json_.items())
      if (std::ranges::find(known_, key) == known_.end())
        throw ApiError(400, "there is no setting \"" + key + "\" (did you mean \"" + nearest(key, known_) + "\"?)",
                       key);
  }

 private:
  const Json& json_;
  std::vector<std::string> known_;
};

bool zero_or_more(double x) { return x >= 0; }
bool is_probability(double x) { return x > 0 && x <= 1; }
bool above_zero(double x) { return x > 0; }
bool any(double) { return true; }

std::vector<std::string> read_stops(BodyReader& reader) {
  std::vector<std::string> stops;
  const Json* stop = reader.find("stop");
  if (!stop) return stops;
  if (!stop->is_string() && !stop->is_array()) reader.fail("stop", "is neither a text nor a list of texts");
  if (stop->is_string()) stops.push_back(stop->get<std::string>());
  if (stop->is_array())
    for (const Json& one : *stop) {
      if (!one.is_string()) reader.fail("stop", "is neither a text nor a list of texts");
      stops.push_back(one.get<std::string>());
    }
  if (stops.size() > kMostStops) reader.fail("stop", "has more than " + std::to_string(kMostStops) + " texts");
  if (std::ranges::count(stops, "") > 0) reader.fail("stop", "holds an empty text");
  return stops;
}

// What completions and conversations share.
void read_settings(BodyReader& reader, TextCall& call, TextGenerationOptions& options) {
  call.model = reader.text("model");
  call.samples = reader.integer("n", 1, kMostSamples).value_or(1);
  call.stream = reader.flag("stream", false);
  if (const Json* how = reader.find("stream_options")) {
    if (!how->is_object()) reader.fail("stream_options", "is not an object");
    BodyReader inner(*how);
    call.include_usage = inner.flag("include_usage", false);
    inner.ignore({"include_obfuscation"});
    inner.check_names();
  }
  options.max_tokens = reader.integer("max_tokens", 1, 1'000'000'000);
  options.temperature = reader.number("temperature", zero_or_more, "0 or more");
  options.top_p = reader.number("top_p", is_probability, "above 0 and at most 1");
  options.top_k = reader.integer("top_k", 0, INT32_MAX);
  options.repetition_penalty = reader.number("repetition_penalty", above_zero, "above 0");
  options.beams = reader.integer("beam", 1, 1024);
  options.length_penalty = reader.number("length_penalty", any, "a number");
  options.ignore_end = reader.flag("ignore_end", false);
  if (const auto seed = reader.integer("seed", INT64_MIN, INT64_MAX)) {
    call.seed_given = true;
    options.seed = static_cast<uint64_t>(*seed);
  }
  options.stop = read_stops(reader);
  options.adapter = reader.text("adapter");
  for (const char* key : {"presence_penalty", "frequency_penalty"}) reader.refuse_number(key);
  for (const char* key : {"logit_bias"}) reader.refuse_list(key);
  reader.ignore({"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"});
  if (options.beams.value_or(1) > 1 && call.samples > 1)
    reader.fail("n", "is for sampling; a search of \"beam\" finds one text");
}

// Messages of the generation's own checks speak of the command line's options.
TextRequest request_of(const TextGenerationOptions& options, const std::string& where) {
  TextRequest request;
  request.options = options, request.where = where;
  return request;
}

bool is_token_list(const Json& value) {
  return value.is_array() && !value.empty() && std::ranges::all_of(value, [](const Json& token) {
           return token.is_number_integer() && token.get<double>() >= 0 && token.get<double>() <= INT32_MAX;
         });
}

// A text, texts, token ids, or lists of them. Calls one of the two for each.
template <class TakeText, class TakeTokens>
bool read_inputs(const std::string& key, const Json& value, const TakeText& text, const TakeTokens& tokens) {
  const auto one = [&](const Json& item) {
    if (item.is_string()) return text(item.get<std::string>());
    if (is_token_list(item)) return tokens(item.get<std::vector<int32_t>>());
    BodyReader::fail(key, "is neither a text, nor token ids, nor a list of these");
  };
  if (!value.is_array() || is_token_list(value)) {
    one(value);
    return false;
  }
  if (value.empty()) BodyReader::fail(key, "is an empty list");
  if (value.size() > kMostTexts)
    BodyReader::fail(key, "has " + std::to_string(value.size()) + " texts, more than " + std::to_string(kMostTexts));
  for (const Json& item : value) one(item);
  return true;
}

// The text of a message: a text, or a list of parts that are texts.
std::string content_text(const Json& content) {
  if (content.is_string()) return content.get<std::string>();
  if (content.is_null()) return "";
  std::string text;
  if (!content.is_array()) BodyReader::fail("messages", "has a \"content\" that is no text");
  for (const Json& part : content) {
    if (!part.is_object() || part.value("type", Json()) != "text" || !part.contains("text") ||
        !part["text"].is_string())
      BodyReader::fail("messages", "has a \"content\" that is no text; images and sound are not supported");
    text += part["text"].get<std::string>();
  }
  return text;
}

std::string read_messages(const Json* messages) {
  if (!messages || !messages->is_array() || messages->empty())
    BodyReader::fail("messages", "is not a list of messages");
  Json read = Json::array();
  for (const Json& message : *messages) {
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string())
      BodyReader::fail("messages", "has a message that is not an object with a \"role\" and a \"content\"");
    Json one = message;
    one["content"] = content_text(message.value("content", Json()));
    read.push_back(std::move(one));
  }
  return read.dump();
}

// "text" is all that is written.
void check_response_format(BodyReader& reader) {
  const Json* format = reader.find("response_format");
  if (format && !(format->is_object() && format->value("type", Json()) == "text"))
    reader.fail("response_format", "is not supported, other than {\"type\": \"text\"}");
}

}  // namespace

TextCall parse_completion_call(std::string_view body) {
  const Json json = parse_body(body);
  BodyReader reader(json);
  TextCall call;
  TextGenerationOptions options;
  read_settings(reader, call, options);
  if (const auto count = reader.integer("logprobs", 0, kMostAlternatives)) call.alternatives = *count;
  call.echo = reader.flag("echo", false);
  if (const auto best = reader.integer("best_of", 1, kMostSamples); best && *best != call.samples)
    reader.fail("best_of", "is not supported");
  if (!reader.text("suffix").empty()) reader.fail("suffix", "is not supported");
  const Json* prompt = reader.find("prompt");
  if (!prompt) reader.fail("prompt", "is missing");
  read_inputs(
      "prompt", *prompt,
      [&](std::string text) {
        call.requests.push_back(request_of(options, "the prompt"));
        call.requests.back().prompt = std::move(text);
      },
      [&](std::vector<int32_t> tokens) {
        call.requests.push_back(request_of(options, "the prompt"));
        call.requests.back().tokens = std::move(tokens), call.requests.back().has_tokens = true;
      });
  if (call.echo && std::ranges::any_of(call.requests, &TextRequest::has_tokens))
    reader.fail("echo", "is for prompts that are texts");
  reader.check_names();
  return call;
}

TextCall parse_chat_call(std::string_view body) {
  const Json json = parse_body(body);
  BodyReader reader(json);
  TextCall call;
  call.is_chat = true;
  TextGenerationOptions options;
  read_settings(reader, call, options);
  if (const auto limit = reader.integer("max_completion_tokens", 1, 1'000'000'000)) options.max_tokens = limit;
  const bool log_probabilities = reader.flag("logprobs", false);
  const auto alternatives = reader.integer("top_logprobs", 0, kMostAlternatives);
  if (alternatives && !log_probabilities) reader.fail("top_logprobs", "needs \"logprobs\": true");
  if (log_probabilities) call.alternatives = alternatives.value_or(0);
  check_response_format(reader);
  for (const char* key : {"tools", "functions"}) reader.refuse_list(key);
  reader.ignore({"tool_choice", "parallel_tool_calls", "function_call"});
  call.requests.push_back(request_of(options, "the conversation"));
  call.requests[0].messages = read_messages(reader.find("messages"));
  reader.check_names();
  return call;
}

InputCall parse_embedding_call(std::string_view body) {
  const Json json = parse_body(body);
  BodyReader reader(json);
  InputCall call;
  call.model = reader.text("model");
  const std::string format = reader.text("encoding_format");
  if (!format.empty() && format != "float" && format != "base64")
    reader.fail("encoding_format", "is neither \"float\" nor \"base64\"");
  call.base64 = format == "base64";
  call.dimensions = reader.integer("dimensions", 1, 1'000'000);
  const Json* input = reader.find("input");
  if (!input) reader.fail("input", "is missing");
  call.is_list = read_inputs(
      "input", *input, [&](std::string text) { call.texts.push_back(std::move(text)); },
      [&](std::vector<int32_t> tokens) { call.tokens.push_back(std::move(tokens)); });
  if (!call.texts.empty() && !call.tokens.empty()) reader.fail("input", "mixes texts and token ids");
  reader.ignore({"user"});
  reader.check_names();
  return call;
}

InputCall parse_inputs_call(std::string_view body, std::string_view path) {
  const Json json = parse_body(body);
  BodyReader reader(json);
  InputCall call;
  call.model = reader.text("model");
  const Json* inputs = reader.find("inputs");
  if (!inputs) reader.fail("inputs", "is missing");
  const auto no_tokens = [&](std::vector<int32_t>) { reader.fail("inputs", "is neither a text nor a list of texts"); };
  call.is_list = read_inputs(
      "inputs", *inputs, [&](std::string text) { call.texts.push_back(std::move(text)); }, no_tokens);
  // Hugging Face's clients put settings into "parameters"; in the body itself they do as well.
  const Json none = Json::object();
  const Json* inner = reader.find("parameters");
  if (inner && !inner->is_object()) reader.fail("parameters", "is not an object");
  BodyReader parameters(inner ? *inner : none);
  for (BodyReader* settings : {&reader, &parameters}) {
    if (path == "/embed") {
      if (!settings->flag("normalize", true)) settings->fail("normalize", "false is not supported");
      call.normalize = call.normalize || settings->flag("normalize", false);
      if (!settings->flag("truncate", true)) settings->fail("truncate", "is not supported; long texts are cut");
      settings->ignore({"prompt_name", "truncation_direction"});
    } else if (path == "/classify") {
      if (const auto top = settings->integer("top_k", 1, 1'000'000)) call.top = top;
      if (const std::string function = settings->text("function_to_apply"); !function.empty() && function != "softmax")
        settings->fail("function_to_apply", "is not supported, other than \"softmax\"");
    } else {
      for (const char* key : {"max_tokens", "max_new_tokens"})
        if (const auto limit = settings->integer(key, 1, 1'000'000'000)) call.options.max_tokens = limit;
      for (const char* key : {"beam", "num_beams"})
        if (const auto beams = settings->integer(key, 1, 1024)) call.options.beams = beams;
      if (const auto penalty = settings->number("length_penalty", any, "a number"))
        call.options.length_penalty = penalty;
      settings->ignore({"src_lang", "tgt_lang", "clean_up_tokenization_spaces", "truncation"});
    }
  }
  parameters.check_names();
  reader.ignore({"options"});
  reader.check_names();
  return call;
}

}  // namespace linnet
