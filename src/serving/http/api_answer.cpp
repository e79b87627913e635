#include <algorithm>
#include "base/json.h"
#include "base/numbers.h"
#include "base/text.h"
#include "data/text/unicode/utf8.h"
#include "serving/http/api.h"

namespace linnet {
namespace {
const char* finish_reason(const AnswerChoice& choice) {
  return !choice.calls.empty() ? "tool_calls" : choice.end == TextEnd::kLength ? "length" : "stop";
}

Json calls_json(const AnswerHead& head, int64_t choice, const std::vector<ToolCall>& calls) {
  Json json = Json::array();
  for (const ToolCall& call : calls) {
    const size_t i = json.size();
    json.push_back({{"index", i}, {"id", "call_" + head.id + "_" + std::to_string(choice) + "_" + std::to_string(i)},
        {"type", "function"}, {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
  }
  return json;
}

Json head_json(const AnswerHead& head, const char* chat_object, const char* text_object) {
  return {{"id", head.id}, {"object", head.is_chat ? chat_object : text_object}, {"created", head.created},
      {"model", head.model}};
}

Json event_head(const AnswerHead& head) { return head_json(head, "chat.completion.chunk", "text_completion"); }

Json usage_json(const TokenUsage& usage) {
  return {{"prompt_tokens", usage.prompt}, {"completion_tokens", usage.written},
      {"total_tokens", usage.prompt + usage.written}};
}

Json chance_json(const TokenChance& chance) {
  const Json bytes = mapped(chance.piece, [](char c) { return static_cast<unsigned char>(c); });
  return {{"token", chance.piece}, {"logprob", chance.log_probability}, {"bytes", bytes}};
}

// {"content": [{"token", "logprob", "bytes", "top_logprobs": [...]}]}
Json chat_chances(std::span<const WrittenToken> tokens) {
  Json content = Json::array();
  for (const WrittenToken& token : tokens) {
    Json one = chance_json(token);
    one["top_logprobs"] = mapped(token.likeliest, chance_json);
    content.push_back(std::move(one));
  }
  return {{"content", std::move(content)}};
}

// As OpenAI's completions name a token that is a part of a character: bytes:\xe2\x96
std::string token_name(const std::string& piece) {
  if (invalid_utf8_at(piece) == std::string::npos) return piece;
  std::string name = "bytes:";
  for (const unsigned char byte : piece)
    name.append("\\x") += {"0123456789abcdef"[byte / 16], "0123456789abcdef"[byte % 16]};
  return name;
}

// {"tokens": [...], "token_logprobs": [...], "top_logprobs": [{piece: logprob}], "text_offset": [...]}
Json completion_chances(std::span<const WrittenToken> tokens, size_t offset) {
  Json json = {{"tokens", Json::array()}, {"token_logprobs", Json::array()}, {"top_logprobs", Json::array()},
      {"text_offset", Json::array()}};
  for (const WrittenToken& token : tokens) {
    json["tokens"].push_back(token_name(token.piece));
    json["token_logprobs"].push_back(token.log_probability);
    Json top = Json::object();
    for (const TokenChance& other : token.likeliest) top[token_name(other.piece)] = other.log_probability;
    json["top_logprobs"].push_back(std::move(top));
    json["text_offset"].push_back(offset);
    offset += characters_begun(token.piece);
  }
  return json;
}

Json chances_json(const AnswerHead& head, std::span<const WrittenToken> tokens, size_t offset) {
  return head.is_chat ? chat_chances(tokens) : completion_chances(tokens, offset);
}

Json choice_json(const AnswerHead& head, int64_t index, const AnswerChoice& choice) {
  Json json = {{"index", index}};
  if (head.is_chat) json["message"] = {{"role", "assistant"}, {"content", choice.text}};
  else json["text"] = choice.text;
  if (!choice.calls.empty()) {
    if (choice.text.empty()) json["message"]["content"] = nullptr;
    json["message"]["tool_calls"] = calls_json(head, index, choice.calls);
    for (Json& call : json["message"]["tool_calls"]) call.erase("index");
  }
  json["logprobs"] = choice.has_tokens ? chances_json(head, choice.tokens, choice.offset) : Json(nullptr);
  json["finish_reason"] = finish_reason(choice);
  return json;
}

// An event of one choice with "delta" or "text".
std::string choice_event(const AnswerHead& head, int64_t choice, Json delta, Json chances, Json reason) {
  Json json = event_head(head);
  json["choices"] = Json::array({{{"index", choice}, {head.is_chat ? "delta" : "text", std::move(delta)},
      {"logprobs", std::move(chances)}, {"finish_reason", std::move(reason)}}});
  return format_event(json.dump());
}

void append_row(std::string& out, std::span<const float> row) {
  out += '[';
  append_shortest(out, row, ',');
  out += ']';
}

// Indices of the `top` largest values, largest first.
std::vector<size_t> largest(std::span<const float> values, size_t top) {
  std::vector<size_t> order = numbers_below<size_t>(values.size());
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return values[a] > values[b]; });
  order.resize(std::min(top, order.size()));
  return order;
}

Json model_json(const ModelDescription& model) {
  Json json = {{"id", model.name}, {"object", "model"}, {"created", model.created}, {"owned_by", "linnet"},
      {"kind", model.kind}};
  if (model.room > 0) json["max_tokens"] = model.room, json["chat"] = model.chat;
  if (!model.classes.empty()) json["classes"] = model.classes;
  return json;
}

constexpr std::string_view kOpen = "<tool_call>", kClose = "</tool_call>", kSpace = " \t\r\n";

bool add_call(std::string_view text, std::span<const std::string> functions, std::vector<ToolCall>& calls) {
  const Json json = Json::parse_or_null(trimmed(text, kSpace), JsonLimits::request());
  const Json* name = json.find("name");
  if (!name || !name->is_string() || !contains(functions, name->text())) return false;
  const Json* arguments = json.find("arguments");
  if (!arguments) arguments = json.find("parameters");
  if (arguments && !arguments->is_object()) return false;
  calls.push_back({name->text(), arguments ? arguments->dump() : "{}"});
  return true;
}

// Reads text that consists of calls separated by ";". Values may contain ";", so the longest valid piece counts.
bool add_bare_calls(std::string_view text, std::span<const std::string> functions, std::vector<ToolCall>& calls) {
  while (!text.empty()) {
    size_t end = text.size();
    while (!add_call(text.substr(0, end), functions, calls)) {
      end = end == 0 ? text.npos : text.rfind(';', end - 1);
      if (end == text.npos) return false;
    }
    text.remove_prefix(std::min(text.size(), end + 1));
  }
  return true;
}
}  // namespace

size_t characters_begun(std::string_view bytes) {
  return std::ranges::count_if(bytes, [](char c) { return (c & 0xC0) != 0x80; });
}

std::string format_event(const std::string& json) { return "data: " + json + "\n\n"; }

std::string format_answer(const AnswerHead& head, const std::vector<AnswerChoice>& choices, const TokenUsage& usage) {
  Json json = head_json(head, "chat.completion", "text_completion");
  json["choices"] = Json::array();
  for (size_t i = 0; i < choices.size(); ++i)
    json["choices"].push_back(choice_json(head, static_cast<int64_t>(i), choices[i]));
  json["usage"] = usage_json(usage);
  return json.dump();
}

std::string format_role_event(const AnswerHead& head, int64_t choice) {
  return choice_event(head, choice, {{"role", "assistant"}, {"content", ""}}, nullptr, nullptr);
}

std::string format_piece_event(
    const AnswerHead& head, int64_t choice, const std::string& piece, const WrittenToken* token, size_t offset) {
  const Json delta = head.is_chat ? Json{{"content", piece}} : Json(piece);
  const Json chances = token ? chances_json(head, std::span(token, 1), offset) : Json(nullptr);
  return choice_event(head, choice, delta, chances, nullptr);
}

std::string format_calls_event(const AnswerHead& head, int64_t choice, const std::vector<ToolCall>& calls) {
  return choice_event(head, choice, {{"tool_calls", calls_json(head, choice, calls)}}, nullptr, nullptr);
}

std::string format_end_event(const AnswerHead& head, int64_t choice, const AnswerChoice& ended) {
  return choice_event(head, choice, head.is_chat ? Json::object() : Json(""), nullptr, finish_reason(ended));
}

std::string format_usage_event(const AnswerHead& head, const TokenUsage& usage) {
  Json json = event_head(head);
  json["choices"] = Json::array();
  json["usage"] = usage_json(usage);
  return format_event(json.dump());
}

std::string format_openai_embeddings(
    const std::string& model, std::span<const float> rows, size_t width, bool base64, int64_t prompt_tokens) {
  std::string out = R"({"object":"list","data":[)";
  for (size_t i = 0; i < rows.size() / width; ++i) {
    const std::span<const float> row = rows.subspan(i * width, width);
    out +=
        (i > 0 ? "," : "") + std::string(R"({"object":"embedding","index":)") + std::to_string(i) + ",\"embedding\":";
    if (base64) out += '"' + encode_base64({reinterpret_cast<const char*>(row.data()), row.size_bytes()}) + '"';
    else append_row(out, row);
    out += '}';
  }
  const Json usage = {{"prompt_tokens", prompt_tokens}, {"total_tokens", prompt_tokens}};
  return out + "],\"model\":" + Json(model).dump() + ",\"usage\":" + usage.dump() + "}";
}

std::string format_embeddings(std::span<const float> rows, size_t width) {
  std::string out = "[";
  for (size_t i = 0; i < rows.size() / width; ++i) {
    if (i > 0) out += ',';
    append_row(out, rows.subspan(i * width, width));
  }
  return out + "]";
}

std::string format_ranks(const RankedTexts& ranked, std::span<const float> scores, int64_t tokens) {
  Json results = Json::array();
  for (const size_t index : largest(scores, ranked.top)) {
    Json one{{"index", index}, {ranked.plain ? "score" : "relevance_score", scores[index]}};
    if (!ranked.texts.empty() && ranked.plain) one["text"] = *ranked.texts[index];
    if (!ranked.texts.empty() && !ranked.plain) one["document"] = {{"text", *ranked.texts[index]}};
    results.push_back(std::move(one));
  }
  if (ranked.plain) return results.dump();
  return Json{{"object", "list"}, {"model", ranked.model}, {"results", std::move(results)},
      {"usage", {{"prompt_tokens", tokens}, {"total_tokens", tokens}}}}
      .dump();
}

std::string format_classes(std::span<const float> rows, const std::vector<std::string>& classes, size_t top) {
  Json all = Json::array();
  for (size_t i = 0; i < rows.size() / classes.size(); ++i) {
    const std::span<const float> row = rows.subspan(i * classes.size(), classes.size());
    all.push_back(mapped(largest(row, top), [&](size_t index) {
      return Json{{"label", classes[index]}, {"score", row[index]}};
    }));
  }
  return all.dump();
}

std::string format_spans(std::span<const Json> found, bool as_list) {
  Json all = Json::array();
  for (const Json& text : found) {
    if (const Json* top = text.find("top"); top || !text.find("entities")) {
      all.push_back(top ? *top : text);
      continue;
    }
    all.push_back(mapped(*text.find("entities"), [](const Json& entity) {
      return Json{{"entity_group", *entity.find("label")}, {"score", *entity.find("probability")},
          {"word", *entity.find("text")}, {"start", *entity.find("start")}, {"end", *entity.find("end")}};
    }));
  }
  return as_list ? all.dump() : all[0].dump();
}

std::string format_translations(const std::vector<std::string>& texts) {
  const Json all = mapped(texts, [](const std::string& text) { return Json{{"translation_text", text}}; });
  return all.dump();
}

std::string format_model(const ModelDescription& model) { return model_json(model).dump(); }

std::string format_models(const std::vector<ModelDescription>& models) {
  return Json{{"object", "list"}, {"data", mapped(models, model_json)}}.dump();
}

TextWithCalls find_tool_calls(const std::string& text, std::span<const std::string> functions) {
  TextWithCalls found;
  if (trimmed(text, kSpace).starts_with('{') && add_bare_calls(trimmed(text, kSpace), functions, found.calls))
    return found;
  found.calls.clear();
  const size_t first = text.find(kOpen);
  for (size_t at = first; at != text.npos; at = text.find(kOpen, at)) {
    at += kOpen.size();
    if (!add_call(std::string_view(text).substr(at, text.find(kClose, at) - at), functions, found.calls))
      return {.content = text, .calls = {}};
  }
  found.content = text.substr(0, found.calls.empty() ? text.npos : certain_content(text));
  return found;
}

size_t certain_content(std::string_view text) {
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == text.npos || text[begin] == '{') return 0;
  size_t size = text.find(kOpen);
  if (size == text.npos) {
    size = text.size();
    for (size_t part = std::min(kOpen.size() - 1, text.size()); part > 0 && size == text.size(); --part)
      if (text.ends_with(kOpen.substr(0, part))) size -= part;
  }
  return text.substr(0, size).find_last_not_of(kSpace) + 1;
}
}  // namespace linnet
