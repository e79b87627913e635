// A tokenizer made of steps: normalizers rewrite the text, pre-tokenizers cut it into words, the model cuts words into
// tokens, the template adds special tokens; decoders go back. Reads and writes tokenizer.json, the file of the
// tokenizers library. User error naming a part that Linnet lacks.
#pragma once
#include <bitset>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>
#include "base/functions.h"
#include "base/json.h"
#include "base/text.h"
#include "data/text/pipeline/subword_model.h"
#include "data/text/pretrained_tokenizer.h"
#include "data/text/unicode/utf8.h"

namespace linnet {
// Per-thread scratch memory for one SplitPattern, reused for all texts.
class MatchScratch {
 public:
  MatchScratch();
  ~MatchScratch();

 private:
  friend class SplitPattern;
  struct State;
  std::unique_ptr<State> state_;
};

// A regular expression that cuts text into words, compiled by PCRE2. Copies share the compiled form. Character classes
// are those of Unicode 16, as in the tokenizers that Linnet follows, whatever PCRE2's version.
class SplitPattern {
 public:
  // User error showing an expression that PCRE2 refuses.
  explicit SplitPattern(const std::string& expression, const std::string& where = "");
  static SplitPattern literal(std::string_view text);  // matches exactly these bytes

  // Calls use(match) for all there are, left to right, with empty ones that do not follow another. Bytes that are no
  // UTF-8 match nothing, and nothing matches across them.
  using UseMatch = FunctionRef<void(const TextRange& match)>;
  void find_all(std::string_view text, MatchScratch& scratch, UseMatch use) const;

 private:
  struct Code;
  void find_valid(std::string_view text, size_t base, MatchScratch& scratch, UseMatch use) const;

  std::shared_ptr<const Code> code_;
};

// A token found in the raw text, before any other step: "<|endoftext|>", "[MASK]".
struct AddedToken {
  TokenId id = kNoToken;
  std::string text;
  bool special = false;      // decoding can leave it out
  bool normalized = false;   // looked for after normalization (its text normalized, too), else before
  bool single_word = false;  // not inside of a word
  bool left_strip = false, right_strip = false;  // takes the white space beside it along
};

// A stretch of text, or the token found there.
struct TextSegment {
  size_t begin = 0, end = 0;
  TokenId id = kNoToken;  // kNoToken: text
};

class AddedTokenMatcher {
 public:
  AddedTokenMatcher() = default;
  explicit AddedTokenMatcher(std::vector<AddedToken> tokens);  // matches the tokens' texts, except empty ones

  // Appends the segments of text[begin, end), none empty, which cover all of it. The longest token wins.
  void split(std::string_view text, size_t begin, size_t end, std::vector<TextSegment>& segments) const;

 private:
  std::vector<AddedToken> tokens_;
  ByteTrie trie_;           // of their texts, with places in tokens_
  std::bitset<256> first_;  // their first bytes: most bytes of a text are none of these
};

// A text between what the user wrote and what a tokenizer's model sees, and the source of each byte. Unchanged text is
// a view of the original; it is copied only when a step rewrites it.
class AlignedText {
 public:
  // `base`: where `view` begins in the original. source() needs `tracked`.
  void reset(std::string_view view, size_t base, bool tracked);

  std::string_view view() const { return rewritten_ ? std::string_view(text_) : view_; }
  // Whether view() begins with the original's first character, or with what was put in its place.
  bool at_start() const { return base_ == 0 && !starts_late_; }
  TextRange source(size_t begin, size_t end) const;  // the bytes of the original for bytes [begin, end) of view()

  // A rewrite: any number of keep() and put(), in order, between start_rewrite() and finish_rewrite(). Until then
  // view() and source() give the old text. Text in neither is dropped.
  void start_rewrite();
  void keep(size_t begin, size_t end);                         // copies these bytes
  void put(std::string_view bytes, size_t begin, size_t end);  // in place of these
  void finish_rewrite();
  // A rewrite in which change(character, begin, end) puts or keeps each character.
  template <class Change> void rewrite_characters(const Change& change) {
    start_rewrite();
    for (const Utf8Character& character : utf8_characters(view()))
      change(character.code_point(), character.begin, character.end);
    finish_rewrite();
  }

 private:
  std::string_view view_;
  size_t base_ = 0;
  bool tracked_ = false, rewritten_ = false, starts_late_ = false;
  std::string text_, next_text_;
  std::vector<TextRange> source_, next_source_;  // of each byte of text_
};

// Per-thread scratch memory, reused for all texts.
struct PipelineScratch {
  static constexpr size_t kBatch = 4096;  // words
  AlignedText text;
  std::vector<TextSegment> segments, words, next_words;
  // Of a long text: uses next_words and leaves the last of them, which may grow.
  std::function<void()> use_batch;
  MatchScratch match;
  ModelScratch model;
  std::vector<ModelToken> tokens;
  WordCache cache;

  void add_word(const TextSegment& word) {  // to next_words
    next_words.push_back(word);
    if (use_batch && next_words.size() > kBatch) use_batch();
  }
  void shrink() {  // frees what a long text has made large
    text = AlignedText();
    for (auto* each : {&segments, &words, &next_words}) *each = std::vector<TextSegment>();
  }
};

// Of normalizing: rewrites scratch.text. Of pre-tokenizing: refines scratch.words, segments of scratch.text; those with
// an id are left alone.
using TextStep = std::function<void(PipelineScratch& scratch)>;
struct PreTokenizer : TextStep {
  bool rewrites = false;  // also scratch.text, and so needs all of scratch.words at once
};
using TokenDecoder = std::function<void(std::vector<std::string>& tokens)>;  // the text is what they give when joined

// Scratch memory of threads, kept for the next text of any thread.
template <class Scratch> class ScratchPool {
 public:
  // Scratch memory for the pointer's lifetime.
  auto lease() {
    std::unique_ptr<Scratch> scratch;
    {
      const std::lock_guard lock(mutex_);
      if (!idle_.empty()) scratch = std::move(idle_.back()), idle_.pop_back();
    }
    if (!scratch) scratch = std::make_unique<Scratch>();
    const auto give_back = [this](Scratch* used) {
      const std::lock_guard lock(mutex_);
      idle_.emplace_back(used);
    };
    return std::unique_ptr<Scratch, decltype(give_back)>(scratch.release(), give_back);
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Scratch>> idle_;
};

// The special tokens around one text or two, in order.
struct TemplateItem {
  int text = -1;  // 0 or 1: all of that text; -1: the token
  TokenId id = kNoToken;
  uint8_t segment = 0;
};

struct PostProcessing {
  std::vector<TemplateItem> single = {{0, kNoToken, 0}}, pair = {{0, kNoToken, 0}, {1, kNoToken, 1}};
  bool trim_offsets = false;  // a token's range leaves out the white space at its ends
  bool prefix_space = false;  // ... but not the one space that was put before the text
};

class TemplateTokenizer : public PretrainedTokenizer {
 public:
  void encode(std::string_view text, std::vector<TokenId>& ids) const override { tokenize(text, ids, nullptr); }
  void encode_with_special(std::string_view text, std::vector<TokenId>& ids) const override {
    tokenize_with_special(text, ids, nullptr);
  }
  Encoding encode(std::string_view text, const EncodeOptions& options) const override { return join({text}, options); }
  Encoding encode_pair(std::string_view first, std::string_view second, const EncodeOptions& options) const override {
    return join({first, second}, options);
  }
  int64_t added_by_template(bool pair) const override;

 protected:
  // Appends a text's tokens without the template and, if `offsets` is set, their ranges.
  virtual void tokenize(std::string_view text, std::vector<TokenId>& ids, std::vector<TextRange>* offsets) const = 0;
  // The same, where all special tokens that are spelt out become their ids.
  virtual void tokenize_with_special(
      std::string_view text, std::vector<TokenId>& ids, std::vector<TextRange>* offsets) const {
    tokenize(text, ids, offsets);
  }

  PostProcessing post_;

 private:
  Encoding join(std::initializer_list<std::string_view> texts, const EncodeOptions& options) const;
  void trim_offsets(std::string_view text, Encoding& encoding) const;
};

struct Pipeline {
  std::unique_ptr<SubwordModel> model;
  std::vector<AddedToken> added;
  std::vector<TextStep> normalizers;
  std::vector<PreTokenizer> pre_tokenizers;
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
  void cut(size_t step, PipelineScratch& scratch, std::vector<TokenId>& ids, std::vector<TextRange>* offsets) const;
  void tokenize_words(PipelineScratch& scratch, std::vector<TokenId>& ids, std::vector<TextRange>* offsets) const;

  Pipeline pipeline_;
  int64_t vocab_size_ = 0;
  size_t first_cut_ = 0;              // the pre-tokenizer from which on none rewrites
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
bool read_pre_tokenizer(const JsonObject& json, std::vector<PreTokenizer>& steps);
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
