// Calls of functions in what a model writes, in the forms that chat models are trained to write them:
//   <tool_call>{"name": ..., "arguments": {...}}</tool_call>, several of them, after any text (Hermes, Qwen)
//   {"name": ..., "parameters": {...}} as the whole text, several with ";" between (Llama 3)
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace linnet {

struct ToolCall {
  std::string name, arguments;  // JSON
};

struct TextWithCalls {
  std::string content;  // the text before the calls
  std::vector<ToolCall> calls;
};
// Calls of other functions than `functions`, and what is not JSON, are content.
TextWithCalls find_tool_calls(const std::string& text, std::span<const std::string> functions);

// How many bytes of a text that is still written are content, whatever comes.
size_t certain_content(std::string_view text);

}  // namespace linnet
