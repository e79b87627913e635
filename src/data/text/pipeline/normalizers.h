// What rewrites text before it is cut; the names are those of tokenizer.json.
#pragma once
#include "data/text/pipeline/pipeline.h"
#include "data/text/sentencepiece/charsmap_table.h"

namespace linnet {

// BERT's: control characters out, white space to spaces, spaces around CJK ideographs, accents off, lowercase.
class BertNormalizer : public Normalizer {
 public:
  BertNormalizer(bool clean, bool space_cjk, bool strip_accents, bool lowercase)
      : clean_(clean), space_cjk_(space_cjk), strip_accents_(strip_accents), lowercase_(lowercase) {}
  void apply(AlignedText& text, PipelineScratch& scratch) const override;

 private:
  bool clean_, space_cjk_, strip_accents_, lowercase_;
};

class UnicodeNormalizer : public Normalizer {
 public:
  enum class Form { kNfc, kNfd, kNfkc, kNfkd };
  explicit UnicodeNormalizer(Form form) : form_(form) {}
  void apply(AlignedText& text, PipelineScratch& scratch) const override;

 private:
  Form form_;
};

class LowercaseNormalizer : public Normalizer {
 public:
  void apply(AlignedText& text, PipelineScratch& scratch) const override;
};

class StripAccentsNormalizer : public Normalizer {  // marks out; for after NFD or NFKD
 public:
  void apply(AlignedText& text, PipelineScratch& scratch) const override;
};

class StripNormalizer : public Normalizer {  // white space at the ends
 public:
  StripNormalizer(bool left, bool right) : left_(left), right_(right) {}
  void apply(AlignedText& text, PipelineScratch& scratch) const override;

 private:
  bool left_, right_;
};

class ReplaceNormalizer : public Normalizer {
 public:
  ReplaceNormalizer(SplitPattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void apply(AlignedText& text, PipelineScratch& scratch) const override;

 private:
  SplitPattern pattern_;
  std::string content_;
};

class PrependNormalizer : public Normalizer {  // unless the text is empty
 public:
  explicit PrependNormalizer(std::string content) : content_(std::move(content)) {}
  void apply(AlignedText& text, PipelineScratch& scratch) const override;

 private:
  std::string content_;
};

class SequenceNormalizer : public Normalizer {
 public:
  explicit SequenceNormalizer(std::vector<std::unique_ptr<Normalizer>> steps) : steps_(std::move(steps)) {}
  void apply(AlignedText& text, PipelineScratch& scratch) const override {
    for (const auto& step : steps_) step->apply(text, scratch);
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> steps_;
};

// SentencePiece's table of replacements, as tokenizers applies it.
class CharsmapNormalizer : public Normalizer {
 public:
  explicit CharsmapNormalizer(CharsmapTable table) : table_(std::move(table)) {}
  void apply(AlignedText& text, PipelineScratch& scratch) const override;

 private:
  CharsmapTable table_;
};

}  // namespace linnet
