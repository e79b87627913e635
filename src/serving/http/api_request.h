// Parses request bodies: OpenAI's completions, conversations and embeddings; Hugging Face's translation, classification
// and embedding. Errors are ApiErrors with status 400 that name the key.
#pragma once
#include "tasks/generation/text_request.h"

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
InputCall parse_inputs_call(std::string_view body,
    std::string_view path);                          // "/embed", "/classify", "/predict", "/translate"
InputCall parse_rerank_call(std::string_view body);  // is_list: text-embeddings-inference's format, else Cohere's
}  // namespace linnet
