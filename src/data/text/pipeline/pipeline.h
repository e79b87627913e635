// The steps of a tokenizer.json: normalizers rewrite the text, pre-tokenizers cut it into words, the model cuts words
// into tokens, the template adds the special ones; decoders go back.
#pragma once
#include <memory>
#include <string>
#include <vector>
#include "data/text/bpe/word_cache.h"
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

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void apply(AlignedText& text, PipelineScratch& scratch) const = 0;
};

// Refines scratch.words, segments of scratch.text; those with an id are left alone.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void split(PipelineScratch& scratch) const = 0;
};

class TokenDecoder {
 public:
  virtual ~TokenDecoder() = default;
  virtual void apply(std::vector<std::string>& tokens) const = 0;  // the text is what they give when joined
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

}  // namespace linnet
