// Bodies in OpenAI's and Hugging Face's formats. Errors of parsing are ApiErrors with status 400 that name the key.
#pragma once
#include "serving/loaded/workers.h"

namespace linnet {
struct TextCall {
  std::string model;  // "": the only one
  bool is_chat = false;
  std::vector<TextRequest> requests;  // one for each prompt; with settings, and `where` for messages
  int64_t samples = 1;                // of each prompt
  bool stream = false, include_usage = false, echo = false;
  bool seed_given = false;
  std::vector<std::string> functions;  // functions that the answer may call; empty: none
  int64_t alternatives = -1;           // likeliest tokens reported with each token; -1: no probabilities
};
TextCall parse_completion_call(std::string_view body);
TextCall parse_chat_call(std::string_view body);

// Texts of /v1/embeddings ("input"), /embed, /classify, /translate ("inputs"); of /rerank the query for each pair.
struct InputCall {
  std::string model;
  std::vector<std::string> texts;
  std::vector<std::optional<std::string>> pairs;  // second texts of pairs; may be empty
  std::vector<std::vector<int32_t>> tokens;       // instead of texts
  bool is_list = false;                           // instead of one text
  bool base64 = false;                            // OpenAI's encoding of embeddings
  std::optional<int64_t> dimensions;              // of embeddings: only the first ones
  std::string prompt;                             // name of the texts' prefix (RowModel::prompt)
  bool normalize = false;                         // vectors of length 1, whatever the model's setting
  std::optional<int64_t> top;                     // classes, documents
  bool raw_scores = false;                        // of documents, instead of scores in [0, 1]
  bool return_texts = false;                      // documents in the answer
  TextGenerationOptions options;                  // of translation
};
InputCall parse_embedding_call(std::string_view body);
// `path`: "/embed", "/classify", "/predict" or "/translate".
InputCall parse_inputs_call(std::string_view body, std::string_view path);
InputCall parse_rerank_call(std::string_view body);  // is_list: text-embeddings-inference's format, else Cohere's

// Function calls in generated text, in the formats that chat models are trained on: <tool_call>{"name": ...,
// "arguments": {...}}</tool_call>, any number after any text (Hermes, Qwen); or {"name": ..., "parameters": {...}} as
// the whole text, several separated by ";" (Llama 3).

struct ToolCall {
  std::string name, arguments;  // JSON
};

struct TextWithCalls {
  std::string content;  // the text before the calls
  std::vector<ToolCall> calls;
};
// Calls of functions not in `functions`, and invalid JSON, are content.
TextWithCalls find_tool_calls(const std::string& text, std::span<const std::string> functions);

// Bytes of an unfinished text that are content, whatever follows.
size_t certain_content(std::string_view text);

// Shared by all parts of a text answer.
struct AnswerHead {
  std::string id, model;
  int64_t created = 0;  // seconds since 1970
  bool is_chat = false;
};

struct TokenUsage {
  int64_t prompt = 0, written = 0;
};

struct AnswerChoice {
  std::string text;
  TextEnd end = TextEnd::kLength;
  std::vector<WrittenToken> tokens;
  bool has_tokens = false;  // probabilities were requested
  size_t offset = 0;        // characters of the text before `tokens`
  std::vector<ToolCall> calls = {};
};

std::string format_answer(const AnswerHead& head, const std::vector<AnswerChoice>& choices, const TokenUsage& usage);

// Characters that begin in `bytes`, which may be parts of UTF-8 characters as tokens are.
size_t characters_begun(std::string_view bytes);

// Server-sent events. `token` may be null; `offset`: characters of the text before it.
std::string format_role_event(const AnswerHead& head, int64_t choice);
std::string format_piece_event(
    const AnswerHead& head, int64_t choice, const std::string& piece, const WrittenToken* token, size_t offset);
std::string format_calls_event(const AnswerHead& head, int64_t choice, const std::vector<ToolCall>& calls);
std::string format_end_event(const AnswerHead& head, int64_t choice, const AnswerChoice& ended);
std::string format_usage_event(const AnswerHead& head, const TokenUsage& usage);
std::string format_event(const std::string& json);  // of any JSON
inline constexpr const char* kDoneEvent = "data: [DONE]\n\n";

// `rows`: consecutive embeddings of `width` numbers.
std::string format_openai_embeddings(
    const std::string& model, std::span<const float> rows, size_t width, bool base64, int64_t prompt_tokens);
std::string format_embeddings(std::span<const float> rows, size_t width);
// Each text's entities or answers as in Hugging Face's pipelines; without the list for a single text.
std::string format_spans(std::span<const Json> found, bool as_list);
// Each text's `top` likeliest classes, best first: [[{"label": ..., "score": ...}, ...], ...]
std::string format_classes(std::span<const float> rows, const std::vector<std::string>& classes, size_t top);

// Documents by score, best first.
struct RankedTexts {
  std::string model;
  bool plain = false;  // [{"index": ..., "score": ..., "text": ...}, ...], else Cohere's {"results": [...]}
  size_t top = 0;
  std::vector<std::optional<std::string>> texts = {};  // empty: not repeated
};
std::string format_ranks(const RankedTexts& ranked, std::span<const float> scores, int64_t tokens);
std::string format_translations(const std::vector<std::string>& texts);

struct ModelDescription {
  std::string name, kind;
  int64_t created = 0;
  bool chat = false;  // it has a chat template
  int64_t room = 0;   // tokens of a text; 0: generates none
  std::vector<std::string> classes;
};
std::string format_model(const ModelDescription& model);
std::string format_models(const std::vector<ModelDescription>& models);
}  // namespace linnet
