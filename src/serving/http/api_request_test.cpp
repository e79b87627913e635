// Bodies of requests: what is taken, and which key a refusal names.
#include <gtest/gtest.h>
#include "serving/http/api.h"
#include "serving/http/http.h"

namespace linnet {
namespace {
// What parsing ends with; "accepted" is its message and its key if there is no refusal.
template <class Parse> ApiError refusal_of(const Parse& parse, const std::string& body) {
  try {
    parse(body);
  } catch (const ApiError& error) {
    EXPECT_EQ(error.status, 400);
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    return error;
  }
  return ApiError(200, "accepted", "accepted");
}
template <class Parse> std::string refused_key(const Parse& parse, const std::string& body) {
  return refusal_of(parse, body).param;
}

TEST(CompletionCall, ReadsSettingsAndPrompts) {
  const TextCall call = parse_completion_call(
      R"({"model": "m", "prompt": ["a", [1, 2]], "max_tokens": 5, "temperature": 0.5, "top_p": 0.9, "top_k": 3,
          "n": 2, "stop": "x", "seed": -1, "logprobs": 4, "stream": true, "stream_options": {"include_usage": true},
          "user": "u", "presence_penalty": -1.5, "frequency_penalty": 2, "min_p": 0.1, "logit_bias": {"7": -100}, "suffix": null})");
  EXPECT_EQ(call.model, "m");
  ASSERT_EQ(call.requests.size(), 2u);
  EXPECT_EQ(call.requests[0].prompt, "a");
  EXPECT_EQ(call.requests[1].tokens, (std::vector<int32_t>{1, 2}));
  const TextGenerationOptions& options = call.requests[1].options;
  EXPECT_EQ(options.max_tokens, 5);
  EXPECT_EQ(options.temperature, 0.5);
  EXPECT_EQ(options.top_k, 3);
  EXPECT_EQ(options.presence_penalty, -1.5);
  EXPECT_EQ(options.frequency_penalty, 2);
  EXPECT_EQ(options.min_p, 0.1);
  EXPECT_EQ(options.logit_bias, (std::vector<std::pair<int32_t, double>>{{7, -100}}));
  EXPECT_EQ(options.stop, std::vector<std::string>{"x"});
  EXPECT_EQ(options.seed, UINT64_MAX);
  EXPECT_EQ(call.samples, 2);
  EXPECT_EQ(call.alternatives, 4);
  EXPECT_TRUE(call.stream && call.include_usage && call.seed_given);
}

TEST(CompletionCall, LargeAndDeepBodiesAreRefused) {
  const auto problem = [](const std::string& body) -> std::string {
    return refusal_of(parse_completion_call, body).what();
  };
  std::string objects = "[{}";
  for (int i = 1; i < 1'000'000; ++i) objects += ",{}";
  EXPECT_EQ(problem(R"({"prompt": )" + objects + "]}"), "the body has more than 100000 values");
  EXPECT_EQ(problem(std::string(200, '[') + std::string(200, ']')), "the body nests deeper than 64 levels");
  EXPECT_TRUE(problem(R"({"prompt": )").starts_with("the body is not JSON: "));
}

TEST(CompletionCall, ARefusalNamesTheKey) {
  const auto key = [](const std::string& more) {
    return refused_key(parse_completion_call, R"({"prompt": "a")" + (more.empty() ? "" : ", " + more) + "}");
  };
  EXPECT_EQ(key(""), "accepted");
  EXPECT_EQ(key(R"("max_tokens": 5.0)"), "accepted");
  EXPECT_EQ(key(R"("max_tokens": 5.5)"), "max_tokens");
  EXPECT_EQ(key(R"("max_tokens": 18446744073709551615)"), "max_tokens");
  EXPECT_EQ(key(R"("temperature": 1e999)"), "");  // no JSON
  EXPECT_EQ(key(R"("top_p": 0)"), "top_p");
  EXPECT_EQ(key(R"("stop": ["a", 1])"), "stop");
  EXPECT_EQ(key(R"("frequency_penalty": 2.1)"), "frequency_penalty");
  EXPECT_EQ(key(R"("min_p": -0.1)"), "min_p");
  for (const char* bias :
      {"[1]", R"({"a": 1})", R"({"1": 101})", R"({"1 ": 1})", R"({"-1": 1})", R"({"99999999999": 1})", R"({"1": "2"})"})
    EXPECT_EQ(key(R"("logit_bias": )" + std::string(bias)), "logit_bias") << bias;
  EXPECT_EQ(key(R"("best_of": 3)"), "best_of");
  EXPECT_EQ(key(R"("suffix": "x")"), "suffix");
  EXPECT_EQ(key(R"("beam": 2, "n": 2)"), "n");
  EXPECT_EQ(key(R"("temprature": 1)"), "temprature");
  EXPECT_EQ(refused_key(parse_completion_call, "{}"), "prompt");
  EXPECT_EQ(key(R"("seed": 1, "seed": 2)"), "seed");
  EXPECT_EQ(refused_key(parse_completion_call, R"({"prompt": []})"), "prompt");
  EXPECT_EQ(refused_key(parse_completion_call, R"({"prompt": [[-1]]})"), "prompt");
  EXPECT_EQ(refused_key(parse_completion_call, R"({"prompt": [[3000000000]]})"), "prompt");
}

TEST(ChatCall, JoinsThePartsOfAMessage) {
  const TextCall call = parse_chat_call(
      R"({"messages": [{"role": "system", "content": "s"},
                       {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}],
          "max_completion_tokens": 7, "logprobs": true})");
  EXPECT_EQ(call.requests[0].messages, R"([{"role":"system","content":"s"},{"role":"user","content":"ab"}])");
  EXPECT_EQ(call.requests[0].options.max_tokens, 7);
  EXPECT_EQ(call.alternatives, 0);
  const auto key = [](const std::string& messages, const std::string& more = "") {
    return refused_key(parse_chat_call, "{\"messages\": " + messages + more + "}");
  };
  EXPECT_EQ(key(R"([{"role": "user", "content": [{"type": "image_url"}]}])"), "messages");
  EXPECT_EQ(key(R"([{"content": "a"}])"), "messages");
  EXPECT_EQ(key(R"([{"role": "user"}])"), "messages");
  EXPECT_EQ(key(R"([{"role": "user", "content": null}])"), "messages");
  EXPECT_EQ(key(R"([{"role": "user", "content": ""}])"), "accepted");
  EXPECT_EQ(key(R"([{"role": "user", "content": "a"}])", R"(, "top_logprobs": 2)"), "top_logprobs");
}

TEST(ChatCall, FormatsAndTools) {
  const auto parse = [](const std::string& more) {
    return parse_chat_call(R"({"messages": [{"role": "user", "content": "a"}], )" + more + "}");
  };
  const auto key = [&](const std::string& more) { return refused_key(parse, more); };
  EXPECT_TRUE(parse(R"("response_format": {"type": "json_object"})").requests[0].options.grammar);
  EXPECT_FALSE(parse(R"("response_format": {"type": "text"})").requests[0].options.grammar);
  const auto schema = [](const std::string& of) {
    return R"("response_format": {"type": "json_schema", "json_schema": {"name": "n", "strict": true, "schema": )" +
           of + "}}";
  };
  EXPECT_TRUE(parse(schema(R"({"type": "object"})")).requests[0].options.grammar);
  const ApiError refusal = refusal_of(parse, schema(R"({"properties": {"a": {"multipleOf": 2}}})"));
  EXPECT_EQ(refusal.param, "response_format");
  EXPECT_NE(std::string(refusal.what()).find("\"multipleOf\" is not supported"), std::string::npos) << refusal.what();
  for (const char* format :
      {R"({"type": "xml"})", "{}", "1", R"({"type": "json_schema"})", R"({"type": "json_object", "x": 1})"})
    EXPECT_EQ(key(R"("response_format": )" + std::string(format)), "response_format") << format;

  const std::string tools =
      R"("tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}])";
  const TextCall call = parse(tools);
  EXPECT_EQ(call.functions, std::vector<std::string>{"f"});
  EXPECT_TRUE(call.requests[0].tools.starts_with(R"([{"type":"function")"));
  const TextCall none = parse(tools + R"(, "tool_choice": "none")");
  EXPECT_TRUE(none.functions.empty() && none.requests[0].tools.empty());
  EXPECT_EQ(key(tools + R"(, "tool_choice": "required")"), "tool_choice");
  EXPECT_EQ(key(tools + R"(, "response_format": {"type": "json_object"})"), "response_format");
  for (const char* wrong :
      {"[{}]", "[1]", "1", R"([{"type": "retrieval", "function": {"name": "f"}}])", R"([{"function": {"name": 1}}])"})
    EXPECT_NE(key(R"("tools": )" + std::string(wrong)), "accepted") << wrong;
  EXPECT_EQ(
      parse_chat_call(
          R"({"messages": [{"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": "{\"a\": 1}"}}]},
                                             {"role": "tool", "content": "2"}]})")
          .requests[0]
          .messages,
      R"([{"role":"assistant","content":"","tool_calls":[{"function":{"name":"f","arguments":{"a":1}}}]},{"role":"tool","content":"2"}])");
}

TEST(InputsCall, SettingsMayStandInParameters) {
  const InputCall call =
      parse_inputs_call(R"({"inputs": "a", "parameters": {"num_beams": 3, "max_new_tokens": 9}})", "/translate");
  EXPECT_FALSE(call.is_list);
  EXPECT_EQ(call.options.beams, 3);
  EXPECT_EQ(call.options.max_tokens, 9);
  EXPECT_EQ(parse_inputs_call(R"({"inputs": ["a", "b"], "top_k": 1})", "/classify").top, 1);
  const auto classify = [](const std::string& body) { return parse_inputs_call(body, "/classify"); };
  EXPECT_EQ(refused_key(classify, R"({"inputs": "a", "parameters": {"num_beams": 3}})"), "num_beams");
  EXPECT_EQ(refused_key(classify, R"({"inputs": [1, 2]})"), "inputs");
}

TEST(EmbeddingCall, TakesTextsOrTokens) {
  const InputCall call = parse_embedding_call(R"({"input": ["a", "b"], "encoding_format": "base64", "dimensions": 4})");
  EXPECT_EQ(call.texts, (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(call.base64);
  EXPECT_EQ(call.dimensions, 4);
  EXPECT_EQ(parse_inputs_call(R"({"inputs": "a", "prompt_name": "query", "dimensions": 3})", "/embed").prompt, "query");
  EXPECT_EQ(refused_key(parse_embedding_call, R"({"input": ["a", [1]]})"), "input");
  EXPECT_EQ(refused_key(parse_embedding_call, R"({"input": "a", "encoding_format": "int8"})"), "encoding_format");
}
}  // namespace
}  // namespace linnet
