// tokenizer.json, the file of the tokenizers library, read and written.
#pragma once
#include "base/json_reader.h"
#include "data/text/pipeline/pipeline_tokenizer.h"

namespace linnet {

class TokenizerTables;  // pipeline/tokenizer_tables.h

// The whole file; `path` is for messages. What it asks for and Linnet lacks is a user error that names it.
// `tables`: the model's vocabulary and merges or scores, which `text` then lacks.
Pipeline read_tokenizer_json(std::string_view text, const std::string& path, const TokenizerTables* tables = nullptr);

// A token of "added_tokens", whose id stands elsewhere in tokenizer_config.json.
AddedToken read_added_token(const JsonObject& token, int64_t id);

// A JSON string with its quotes; what is not UTF-8 becomes U+FFFD.
std::string quote_json(std::string_view text);
std::string number_json(double value);                      // the shortest that reads back the same
std::string vocabulary_json(const Vocabulary& vocabulary);  // {piece: id, ...} in the order of the ids

}  // namespace linnet
