// The steps of a tokenizer.json: normalizers rewrite the text, pre-tokenizers cut it into words, the model cuts words
// into tokens, the template adds the special ones; decoders go back.
#pragma once
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>
#include "data/text/pipeline/added_tokens.h"
#include "data/text/pipeline/aligned_text.h"
#include "data/text/pipeline/split_pattern.h"
#include "data/text/pipeline/subword_model.h"

namespace linnet {

// What one thread needs to tokenize; reused from text to text.
struct PipelineScratch {
  AlignedText text;
  std::vector<TextSegment> segments, words, next_words;
  std::vector<TextRange> matches;
  MatchScratch match;
  ModelScratch model;
  std::vector<ModelToken> tokens;
  WordCache cache;
};

using Normalizer = std::function<void(AlignedText& text, PipelineScratch& scratch)>;
// Refines scratch.words, segments of scratch.text; those with an id are left alone.
using PreTokenizer = std::function<void(PipelineScratch& scratch)>;
using TokenDecoder = std::function<void(std::vector<std::string>& tokens)>;  // the text is what they give when joined

// What threads need while they work on a text, kept for the next text of any thread.
template <class Scratch>
class ScratchPool {
 public:
  // A scratch of the caller's own for as long as the pointer lives.
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

// What tokenizers with a template share.
class TemplateTokenizer : public PretrainedTokenizer {
 public:
  void encode(std::string_view text, std::vector<TokenId>& ids) const override { tokenize(text, ids, nullptr); }
  Encoding encode(std::string_view text, const EncodeOptions& options) const override { return join({text}, options); }
  Encoding encode_pair(std::string_view first, std::string_view second, const EncodeOptions& options) const override {
    return join({first, second}, options);
  }
  int64_t added_by_template(bool pair) const override;

 protected:
  // Appends the tokens of a text without the template, and where `offsets` is set what each covers.
  virtual void tokenize(std::string_view text, std::vector<TokenId>& ids, std::vector<TextRange>* offsets) const = 0;

  PostProcessing post_;

 private:
  Encoding join(std::initializer_list<std::string_view> texts, const EncodeOptions& options) const;
  void trim_offsets(std::string_view text, Encoding& encoding) const;
};

}  // namespace linnet
