// tokenizer.json, the file of the tokenizers library, read and written, whole and in parts. What a part asks for and
// Linnet lacks is a user error that names it.
#pragma once
#include "base/json_reader.h"
#include "data/text/pipeline/pipeline_tokenizer.h"

namespace linnet {

// The whole file; `path` is for messages. `tables`: the model's vocabulary and merges or scores, which `text` then
// lacks.
Pipeline read_tokenizer_json(std::string_view text, const std::string& path, const TokenizerTables* tables = nullptr);
// The same of what a file would hold; `where` begins messages.
Pipeline read_pipeline(const Json& file, const std::string& where, const TokenizerTables* tables = nullptr);

// A token of "added_tokens", whose id stands elsewhere in tokenizer_config.json.
AddedToken read_added_token(const JsonObject& token, int64_t id);

Normalizer read_normalizer(const JsonObject& json);
// Appends the steps; returns whether ByteLevel is among them.
bool read_pre_tokenizer(const JsonObject& json, std::vector<PreTokenizer>& steps);
void read_post_processor(const JsonObject& json, PostProcessing& post);
void read_decoder(const JsonObject& json, std::vector<TokenDecoder>& steps);
SplitPattern read_pattern(const JsonObject& step);  // {"pattern": {"Regex": "..."}} or {"String": "..."}

// What stands for a space ("▁"), and whether one is put before every text, the first part of a text, or none.
struct Metaspace {
  std::string replacement;
  enum { kNever, kFirst, kAlways } prepends;
};
Metaspace read_metaspace(const JsonObject& step);

[[noreturn]] void fail_unknown(const JsonObject& json, const std::string& key, const std::string& value);

// GPT-2's expression: contractions, letters, numbers, others, each with the one space before it; then white space.
extern const char* const kGpt2Expression;

// A JSON string with its quotes; what is not UTF-8 becomes U+FFFD.
std::string quote_json(std::string_view text);

}  // namespace linnet
