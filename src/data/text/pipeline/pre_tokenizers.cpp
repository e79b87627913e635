#include "data/text/pipeline/pre_tokenizers.h"
#include "data/text/unicode/utf8.h"

namespace linnet {

// Radford et al. 2019, encoder.py.
const char* const kGpt2Expression = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

namespace {

// Cuts [begin, end) at `matches` (sorted, disjoint) and appends the pieces.
void cut_between(size_t begin, size_t end, const std::vector<TextRange>& matches, SplitBehavior behavior, bool inverted,
                 std::vector<TextSegment>& words) {
  const size_t first = words.size();
  bool after_match = false;  // whether the last piece ends with a match
  size_t held = begin;       // kMergedWithNext: where the matches begin that wait for text
  const auto add = [&](size_t from, size_t to, bool match) {
    if (from == to) return;
    switch (behavior) {
      case SplitBehavior::kRemoved:
        if (!match) words.push_back({from, to, kNoToken});
        break;
      case SplitBehavior::kIsolated: words.push_back({from, to, kNoToken}); break;
      case SplitBehavior::kMergedWithPrevious:
        if (match && !after_match && words.size() > first) words.back().end = to;
        else words.push_back({from, to, kNoToken});
        after_match = match;
        break;
      case SplitBehavior::kMergedWithNext:
        if (match) {
          if (held < from) words.push_back({held, from, kNoToken});
          held = from;
        } else {
          words.push_back({held, to, kNoToken});
          held = to;
        }
        break;
      case SplitBehavior::kContiguous:
        if (words.size() > first && after_match == match) words.back().end = to;
        else words.push_back({from, to, kNoToken});
        after_match = match;
        break;
    }
  };
  size_t done = begin;
  for (const TextRange& match : matches) {
    add(done, match.begin, inverted);
    add(match.begin, match.end, !inverted);
    done = match.end;
  }
  add(done, end, inverted);
  if (behavior == SplitBehavior::kMergedWithNext && held < end) words.push_back({held, end, kNoToken});
}

// Words that are tokens already stay; split_word(word) appends to next_words what becomes of each other.
template <class SplitWord>
void split_words(PipelineScratch& scratch, const SplitWord& split_word) {
  scratch.next_words.clear();
  for (const TextSegment& word : scratch.words)
    if (word.id == kNoToken) split_word(word);
    else scratch.next_words.push_back(word);
  scratch.words.swap(scratch.next_words);
}

}  // namespace

void PatternSplit::split(PipelineScratch& scratch) const {
  const std::string_view text = scratch.text.view();
  split_words(scratch, [&](const TextSegment& word) {
    scratch.matches.clear();
    pattern_.find_all(text.substr(word.begin, word.end - word.begin), scratch.match, scratch.matches);
    for (TextRange& match : scratch.matches) {
      match.begin += word.begin;
      match.end += word.begin;
    }
    cut_between(word.begin, word.end, scratch.matches, behavior_, inverted_, scratch.next_words);
  });
}

void CharacterSplit::split(PipelineScratch& scratch) const {
  const std::string_view text = scratch.text.view();
  split_words(scratch, [&](const TextSegment& word) {
    scratch.matches.clear();
    for (size_t i = word.begin; i < word.end;) {
      const size_t length = utf8_length_at(text, i);
      if (matches_(utf8_code_point_at(text, i))) scratch.matches.push_back({i, i + length});
      i += length;
    }
    cut_between(word.begin, word.end, scratch.matches, behavior_, false, scratch.next_words);
  });
}

void ClassSplit::split(PipelineScratch& scratch) const {
  const std::string_view text = scratch.text.view();
  auto& words = scratch.next_words;
  split_words(scratch, [&](const TextSegment& word) {
    size_t begin = word.begin;
    for (size_t i = word.begin; i < word.end;) {
      const size_t length = utf8_length_at(text, i);
      const Kind kind = class_of_(utf8_code_point_at(text, i));
      if (kind != Kind::kText) {
        if (begin < i) words.push_back({begin, i, kNoToken});
        if (kind == Kind::kAlone) words.push_back({i, i + length, kNoToken});
        begin = i + length;
      }
      i += length;
    }
    if (begin < word.end) words.push_back({begin, word.end, kNoToken});
  });
}

void PrefixSpace::split(PipelineScratch& scratch) const {
  AlignedText& text = scratch.text;
  const std::string_view old = text.view();
  text.start_rewrite();
  size_t added = 0, done = 0;
  for (TextSegment& word : scratch.words) {
    text.keep(done, word.begin);
    done = word.begin;
    word.begin += added;
    if (word.id == kNoToken && old[done] != ' ') {
      text.put(" ", done, done + utf8_length_at(old, done));
      ++added;
    }
    text.keep(done, word.end);
    done = word.end;
    word.end += added;
  }
  if (added > 0) text.finish_rewrite();
}

void Metaspace::split(PipelineScratch& scratch) const {
  AlignedText& text = scratch.text;
  const std::string_view old = text.view();
  auto& words = scratch.next_words;
  words.clear();
  text.start_rewrite();
  size_t written = 0;
  for (const TextSegment& word : scratch.words) {
    size_t begin = written;
    const auto end_word = [&] {
      if (begin < written) words.push_back({begin, written, kNoToken});
      begin = written;
    };
    if (word.id != kNoToken) {
      text.keep(word.begin, word.end);
      written += word.end - word.begin;
      words.push_back({begin, written, word.id});
      continue;
    }
    const std::string_view part = old.substr(word.begin, word.end - word.begin);
    const bool marked = part.starts_with(' ') || part.starts_with(replacement_);
    const bool first = word.begin == 0 && text.at_start();
    if (!marked && (prepend_ == Prepend::kAlways || (prepend_ == Prepend::kFirst && first))) {
      text.put(replacement_, word.begin, word.begin + utf8_length_at(old, word.begin));
      written += replacement_.size();
    }
    for (size_t i = word.begin; i < word.end;) {
      const bool space = old[i] == ' ', mark = space || old.substr(i, word.end - i).starts_with(replacement_);
      size_t length = space ? 1 : mark ? replacement_.size() : 1;
      if (mark) {
        if (cut_) end_word();
        text.put(replacement_, i, i + length);
        written += replacement_.size();
      } else {
        while (i + length < word.end && old[i + length] != ' ' && old[i + length] != replacement_[0]) ++length;
        text.keep(i, i + length);
        written += length;
      }
      i += length;
    }
    end_word();
  }
  text.finish_rewrite();
  scratch.words.swap(words);
}

}  // namespace linnet
