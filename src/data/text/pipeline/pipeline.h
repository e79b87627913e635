// The steps of a tokenizer.json: normalizers rewrite the text, pre-tokenizers cut it into words, the model cuts words
// into tokens, the template adds special tokens; decoders go back.
#pragma once
#include <bitset>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>
#include "data/text/pipeline/split_pattern.h"
#include "data/text/pipeline/subword_model.h"
#include "data/text/pretrained_tokenizer.h"
#include "data/text/unicode/utf8.h"

namespace linnet {
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
  bool at_start() const { return base_ == 0; }       // view() began where the original begins
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
  bool tracked_ = false, rewritten_ = false;
  std::string text_, next_text_;
  std::vector<TextRange> source_, next_source_;  // of each byte of text_
};

// Per-thread scratch memory, reused for all texts.
struct PipelineScratch {
  AlignedText text;
  std::vector<TextSegment> segments, words, next_words;
  std::vector<TextRange> matches;
  MatchScratch match;
  ModelScratch model;
  std::vector<ModelToken> tokens;
  WordCache cache;
};

// Of normalizing: rewrites scratch.text. Of pre-tokenizing: refines scratch.words, segments of scratch.text; those with
// an id are left alone.
using TextStep = std::function<void(PipelineScratch& scratch)>;
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
  Encoding encode(std::string_view text, const EncodeOptions& options) const override { return join({text}, options); }
  Encoding encode_pair(std::string_view first, std::string_view second, const EncodeOptions& options) const override {
    return join({first, second}, options);
  }
  int64_t added_by_template(bool pair) const override;

 protected:
  // Appends a text's tokens without the template and, if `offsets` is set, their ranges.
  virtual void tokenize(std::string_view text, std::vector<TokenId>& ids, std::vector<TextRange>* offsets) const = 0;

  PostProcessing post_;

 private:
  Encoding join(std::initializer_list<std::string_view> texts, const EncodeOptions& options) const;
  void trim_offsets(std::string_view text, Encoding& encoding) const;
};
}  // namespace linnet
