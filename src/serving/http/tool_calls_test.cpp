// Calls of functions in texts, whole and as they are streamed.
#include <gtest/gtest.h>
#include "base/json.h"
#include "serving/http/api.h"
#include "serving/http/service.h"

namespace linnet {
namespace {
const std::vector<std::string> kFunctions{"add", "weather"};

std::string shown(const std::string& text) {
  const TextWithCalls found = find_tool_calls(text, kFunctions);
  std::string all = found.content;
  for (const ToolCall& call : found.calls) all += "|" + call.name + call.arguments;
  return all;
}

TEST(ToolCalls, AreFoundInTheFormsOfChatModels) {
  const std::string qwen = R"(<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>)";
  EXPECT_EQ(shown(qwen), R"(|add{"a":1})");
  EXPECT_EQ(shown("Let me see.\n\n" + qwen + "\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {}}\n</tool_call>"),
      R"(Let me see.|add{"a":1}|weather{})");
  EXPECT_EQ(shown(R"(<tool_call>{"name": "add", "arguments": {"a": 1}})"),
      R"(|add{"a":1})");  // the end token closed it
  EXPECT_EQ(shown(R"({"name": "weather", "parameters": {"city": "a;b"}})"), R"(|weather{"city":"a;b"})");
  EXPECT_EQ(
      shown(R"( {"name": "add", "parameters": {}}; {"name": "add", "parameters": {"a": 2}})"), R"(|add{}|add{"a":2})");
  for (const std::string text :
      {"plain", "a < b <tool", "{\"a\": 1}", "{\"name\": \"other\", \"parameters\": {}}", "<tool_call>{</tool_call>",
          "{\"name\": \"add\", \"parameters\": {}} and more", "{\"name\": \"add\", \"parameters\": 1}", ""})
    EXPECT_EQ(shown(text), text);
}

class Exchange : public HttpExchange {
 public:
  const std::string& id() const override { return id_; }
  void respond(HttpResponse response) override { written += response.body; }
  void begin_stream(HttpResponse) override {}
  void write(std::string piece) override { written += piece; }
  void end_stream() override {}
  void note(std::string) override {}
  void on_abort(std::function<void(HttpAbort)>) override {}
  std::string written;

 private:
  const std::string id_ = "1";
};

std::string answer_of(const std::vector<std::string>& pieces, bool stream) {
  ServiceMetrics metrics;
  const auto exchange = std::make_shared<Exchange>();
  const auto answer = std::make_shared<TextAnswer>(exchange,
      TextAnswer::Form{.head = {.id = "i", .model = "m", .is_chat = true}, .stream = stream, .functions = kFunctions},
      metrics);
  answer->expect(1);
  const TextEvents events = answer->events(0, {.job = {.prompt = {1}}}, "");
  TextOutcome outcome;
  for (const std::string& piece : pieces) events.token(0, piece, nullptr), outcome.text.text += piece;
  outcome.text.end = TextEnd::kEndToken;
  events.finished(0, std::move(outcome));
  return exchange->written;
}

TEST(ToolCalls, AnAnswerTellsThemApartFromItsText) {
  const std::vector<std::string> pieces{
      "I ", "look.\n", "<tool", "_call>{\"name\": \"add\", ", "\"arguments\": {\"a\": 1}}", "</tool_call>"};
  const Json whole = Json::parse(answer_of(pieces, false), JsonLimits::request())["choices"][0];
  EXPECT_EQ(whole["finish_reason"], "tool_calls");
  EXPECT_EQ(whole["message"]["content"], "I look.");
  const Json& call = whole["message"]["tool_calls"][0];
  EXPECT_EQ(call["function"]["name"], "add");
  EXPECT_EQ(call["function"]["arguments"], "{\"a\":1}");
  EXPECT_TRUE(call["id"].text().starts_with("call_"));
  const auto streamed = [](const std::vector<std::string>& parts, std::string& calls, std::string& reason) {
    std::string text;
    const std::string events = answer_of(parts, true);
    for (size_t at = 0; events.substr(at) != "data: [DONE]\n\n";) {
      const size_t end = events.find("\n\n", at);
      const Json choice = Json::parse(events.substr(at + 6, end - at - 6), JsonLimits::request())["choices"][0];
      text += choice["delta"].value("content", std::string());
      if (const Json* called = choice["delta"].find("tool_calls")) calls += (*called)[0]["function"].dump();
      if (!choice["finish_reason"].is_null()) reason = choice["finish_reason"].text();
      at = end + 2;
    }
    return text;
  };
  std::string calls, reason;
  EXPECT_EQ(streamed(pieces, calls, reason), "I look.");
  EXPECT_EQ(calls, R"({"name":"add","arguments":"{\"a\":1}"})");
  EXPECT_EQ(reason, "tool_calls");
  calls.clear();
  EXPECT_EQ(streamed({"a <", "tool b", " {\"c\"", ": 1} \n"}, calls, reason), "a <tool b {\"c\": 1} \n");
  EXPECT_EQ(streamed({"{\"c\"", ": 1}"}, calls, reason), "{\"c\": 1}");
  EXPECT_EQ(calls + reason, "stop");
}

TEST(TextAnswer, OffsetsOfTokensCountTheCharactersOfTheEchoedPrompt) {
  const auto offsets = [](bool stream) {
    ServiceMetrics metrics;
    const auto exchange = std::make_shared<Exchange>();
    const auto answer = std::make_shared<TextAnswer>(
        exchange, TextAnswer::Form{.head = {.id = "i", .model = "m"}, .stream = stream}, metrics);
    answer->expect(1);
    const TextEvents events = answer->events(0, {.job = {.prompt = {1}}}, "Zoë: ");
    TextOutcome outcome;
    for (const char* piece : {"é", "\xC3", "\xB6", "I"}) {  // the second and the third make one character
      outcome.tokens.push_back({{.token = 0, .piece = piece, .log_probability = -1}, {}});
      outcome.text.text += piece;
      events.token(0, piece, &outcome.tokens.back());
    }
    events.finished(0, std::move(outcome));
    std::string found;
    for (size_t at = 0; (at = exchange->written.find("\"text_offset\":[", at)) != std::string::npos;) {
      at += 14;
      found += exchange->written.substr(at, exchange->written.find(']', at) + 1 - at);
    }
    return found;
  };
  EXPECT_EQ(offsets(false), "[5,6,7,7]");
  EXPECT_EQ(offsets(true), "[5][6][7][7]");
}
}  // namespace
}  // namespace linnet
