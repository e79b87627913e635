// Older files of tokenizers, and tokenizer_config.json beside any of them.
#pragma once
#include "base/json.h"
#include "data/text/pipeline/tokenizer_json.h"

namespace linnet {
// GPT-2's vocab.json (or encoder.json) and merges.txt (or vocab.bpe): a byte-level BPE. `kind` (tokenizer_kind()) and
// tokenizer_config.json (`config`) decide the template, the normalizer and the space before the text.
Pipeline read_gpt2_files(std::string_view vocabulary, const std::string& vocabulary_path, std::string_view merges,
    const std::string& merges_path, const std::string& kind, const JsonObject& config);

// BERT's vocab.txt, a piece a line. tokenizer_config.json (`config`) says whether it is lowercase; `kind` whether it
// has MPNet's special tokens.
Pipeline read_bert_vocabulary(
    std::string_view text, const std::string& path, const std::string& kind, const JsonObject& config);

// ByT5's tokens: <pad>, </s>, <unk>, the 256 bytes, and extra_ids of tokenizer_config.json (`config`; 125 by default).
Pipeline read_byt5(const JsonObject& config);

// tokenizer_class of tokenizer_config.json or config.json, else a name by config.json's model_type; "" if unknown. A
// class's name may end in Tokenizer or TokenizerFast.
std::string tokenizer_kind(const JsonObject& config, const std::string& folder);

// Adds tokenizer_config.json's added_tokens_decoder, which replace tokens of the same id or text.
void add_tokens_of_config(const JsonObject& config, Pipeline& pipeline);

// Whether transformers has a class for `kind` that adds its own steps around a SentencePiece model.
bool has_sentencepiece_pipeline(const std::string& kind);

// The steps of such a class around the model in `bytes`, with its ids and template. `settings` is
// tokenizer_config.json, `map` special_tokens_map.json; config_json also gets the class's special tokens.
Pipeline read_sentencepiece_pipeline(const std::string& bytes, const std::string& path, const std::string& kind,
    const Json& settings, const JsonObject& map);

// A folder's tokenizer_config.json, or "". Its "chat_template" is replaced by chat_template.jinja, if there is one.
std::string read_tokenizer_config(const std::string& folder);

// The object in one of these files; {} for an empty text.
Json parse_tokenizer_config(std::string_view text, const std::string& path);

// Sets roles, maximum length and chat template from tokenizer_config.json (`config`) and special_tokens_map.json
// (`map`), both may be empty, else from the usual spellings.
void set_roles_from_files(PretrainedTokenizer& tokenizer, const JsonObject& config, const JsonObject& map);

// tokenizer_config.json: the original (may be empty) with the tokenizer's roles.
std::string format_tokenizer_config(const PretrainedTokenizer& tokenizer, std::string_view read_before);
}  // namespace linnet
