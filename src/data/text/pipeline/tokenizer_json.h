// A tokenizer made of the steps in pipeline.h. Reads and writes tokenizer.json, the file of the tokenizers library.
// User error naming a part that Linnet lacks.
#pragma once
#include <unordered_map>
#include "base/json_reader.h"
#include "base/text.h"
#include "data/text/pipeline/pipeline.h"

namespace linnet {
struct Pipeline {
  std::unique_ptr<SubwordModel> model;
  std::vector<AddedToken> added;
  std::vector<TextStep> normalizers, pre_tokenizers;
  PostProcessing post;
  std::vector<TokenDecoder> decoders;
  bool join_by_space = false;  // without decoders tokenizers puts a space between tokens
  // The steps in tokenizer.json's spelling, "null" for none.
  std::string normalizer_json = "null", pre_tokenizer_json = "null", post_json = "null", decoder_json = "null";
  std::string config_json;  // tokenizer_config.json as it was read, "" for none
  // The file the steps were made of, by name, for other programs: a SentencePiece model.
  std::map<std::string, std::string> made_of;
};

class PipelineTokenizer : public TemplateTokenizer {
 public:
  explicit PipelineTokenizer(Pipeline pipeline);

  std::string kind() const override { return lower_ascii(model().settings()["type"].text()); }
  int64_t vocab_size() const override { return vocab_size_; }
  using PretrainedTokenizer::decode;
  std::string decode(std::span<const TokenId> ids, bool skip_special) const override;
  std::string piece(TokenId id) const override;
  TokenId id_of(std::string_view piece) const override;
  bool is_special(TokenId id) const override;
  std::map<std::string, std::string> files() const override;

  const SubwordModel& model() const { return *pipeline_.model; }
  // Adds the begin and end tokens that tokenizer_config.json asks for by add_bos_token and add_eos_token. A template
  // that adds tokens already is kept, and so is one whose role has no token.
  void add_to_template(bool begin, bool end);
  std::string to_json() const { return to_json(model().to_json()); }  // tokenizer.json
  std::string to_json(const std::string& model) const;                // the same with this "model"

 private:
  void tokenize(std::string_view text, std::vector<TokenId>& ids, std::vector<TextRange>* offsets) const override;
  void tokenize_words(PipelineScratch& scratch, std::vector<TokenId>& ids, std::vector<TextRange>* offsets) const;

  Pipeline pipeline_;
  int64_t vocab_size_ = 0;
  AddedTokenMatcher before_, after_;  // normalization
  std::unordered_map<TokenId, size_t> added_by_id_;
  std::unordered_map<std::string_view, TokenId> added_by_text_;
  mutable ScratchPool<PipelineScratch> scratch_;
};

// Reads the whole file; `path` is for messages. `tables`: vocabulary and merges or scores, which `text` then lacks.
Pipeline read_tokenizer_json(std::string_view text, const std::string& path, const TokenizerTables* tables = nullptr);
// The same for parsed JSON; `where` begins messages.
Pipeline read_pipeline(const Json& file, const std::string& where, const TokenizerTables* tables = nullptr);

// A token of "added_tokens"; tokenizer_config.json has its id elsewhere.
AddedToken read_added_token(const JsonObject& token, int64_t id);

// These append the steps. Returns whether ByteLevel is among them.
bool read_pre_tokenizer(const JsonObject& json, std::vector<TextStep>& steps);
void read_normalizer(const JsonObject& json, std::vector<TextStep>& steps);
void read_post_processor(const JsonObject& json, PostProcessing& post);
void read_decoder(const JsonObject& json, std::vector<TokenDecoder>& steps);
SplitPattern read_pattern(const JsonObject& step);  // {"pattern": {"Regex": "..."}} or {"String": "..."}

// The replacement of spaces ("▁"), and whether one is put before every text, the first part of a text, or none.
struct Metaspace {
  std::string replacement;
  enum { kNever, kFirst, kAlways } prepends;
};
Metaspace read_metaspace(const JsonObject& step);

[[noreturn]] void fail_unknown(const JsonObject& json, const std::string& key, const std::string& value);

// GPT-2's expression: contractions, letters, numbers, others, each with the space before it; then white space.
extern const char* const kGpt2Expression;

std::string quote_json(std::string_view text);  // a quoted JSON string; bytes that are not UTF-8 become U+FFFD
}  // namespace linnet
