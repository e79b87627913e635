// What cuts text into words before the model sees it; the names are those of tokenizer.json.
#pragma once
#include "data/text/pipeline/pipeline.h"

namespace linnet {

enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

// Cuts at the matches of a pattern; `inverted`: at what lies between them.
class PatternSplit : public PreTokenizer {
 public:
  PatternSplit(SplitPattern pattern, SplitBehavior behavior, bool inverted)
      : pattern_(std::move(pattern)), behavior_(behavior), inverted_(inverted) {}
  void split(PipelineScratch& scratch) const override;

 private:
  SplitPattern pattern_;
  SplitBehavior behavior_;
  bool inverted_;
};

// Cuts by a class of characters: `class_of` gives each character's.
class ClassSplit : public PreTokenizer {
 public:
  enum class Kind { kText, kRemoved, kAlone };  // part of a word, between words, a word of its own
  using ClassOf = Kind (*)(char32_t);
  explicit ClassSplit(ClassOf class_of) : class_of_(class_of) {}
  void split(PipelineScratch& scratch) const override;

 private:
  ClassOf class_of_;
};

// Cuts at the characters that `matches` is true for.
class CharacterSplit : public PreTokenizer {
 public:
  CharacterSplit(bool (*matches)(char32_t), SplitBehavior behavior) : matches_(matches), behavior_(behavior) {}
  void split(PipelineScratch& scratch) const override;

 private:
  bool (*matches_)(char32_t);
  SplitBehavior behavior_;
};

// Puts a space before each piece that does not begin with one (ByteLevel's add_prefix_space).
class PrefixSpace : public PreTokenizer {
 public:
  void split(PipelineScratch& scratch) const override;
};

// SentencePiece's way: spaces become "▁", one is put before the text, words begin at each.
class Metaspace : public PreTokenizer {
 public:
  enum class Prepend { kNever, kFirst, kAlways };
  Metaspace(std::string replacement, Prepend prepend, bool cut)
      : replacement_(std::move(replacement)), prepend_(prepend), cut_(cut) {}
  void split(PipelineScratch& scratch) const override;

 private:
  std::string replacement_;
  Prepend prepend_;
  bool cut_;
};

// GPT-2's expression: contractions, letters, numbers, others, each with the one space before it; then white space.
extern const char* const kGpt2Expression;

}  // namespace linnet
