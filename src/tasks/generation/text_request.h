// One prompt with its settings, as `linnet generate` takes it.
#pragma once
#include <string>
#include <string_view>
#include <vector>
#include "tasks/generation/generation_choice.h"

namespace linnet {
class Json;
class JsonObject;

struct TextRequest {
  std::string prompt;
  std::string messages;         // instead of the prompt: a conversation as JSON, for the folder's chat template
  std::string tools;            // of the conversation: functions as JSON, for the template; "" for none
  std::vector<int32_t> tokens;  // instead of the prompt: token ids
  bool has_tokens = false;
  TextGenerationOptions options;
  std::string id;     // JSON repeated in its results; "" for none
  std::string where;  // begins messages: "the prompt", "'requests.jsonl', line 3"
};

// Parses {"prompt": TEXT}, {"messages": [...]} or {"tokens": [ids]} with "id" and the command line's settings, by
// default those of `defaults`. User errors begin with `where`.
TextRequest parse_text_request(std::string_view line, const TextGenerationOptions& defaults, const std::string& where);
// Reads settings that the command line and the server share. Absent ones stay as they are.
void read_text_options(const JsonObject& json, TextGenerationOptions& options);
// Reads OpenAI's "tools".
void read_tools(const JsonObject& json, TextRequest& request);
bool is_token_list(const Json& value);  // ids, at least one
// One request for each line that is not empty.
std::vector<TextRequest> parse_text_requests(
    std::string_view lines, const TextGenerationOptions& defaults, const std::string& name);
// One request for each line, whose text is the prompt.
std::vector<TextRequest> split_prompts(
    std::string_view lines, const TextGenerationOptions& defaults, const std::string& name);

// A one-question conversation after an optional system message; JSON for TextRequest::messages.
std::string ask(const std::string& question, const std::string& system);

enum class TextEnd { kEndToken, kStopText, kLength, kInterrupted };

struct WrittenText {
  std::string text;
  std::vector<int32_t> tokens;           // without the end
  std::vector<float> log_probabilities;  // of each token and the end token, if requested; empty for a search
  double log_probability = 0;            // sum of them, if requested
  int32_t end_token = -1;
  TextEnd end = TextEnd::kLength;
};

std::string format_written_text(const WrittenText& written, const TextRequest& request, int64_t index, int64_t sample,
    const std::vector<int32_t>& prompt, bool echo);
}  // namespace linnet
