// Pre-tokenizers by their names in tokenizer.json.
#include <algorithm>
#include <iterator>
#include "data/text/pipeline/tokenizer_json.h"
#include "data/text/unicode/utf8.h"

namespace linnet {
// Radford et al. 2019, encoder.py.
const char* const kGpt2Expression = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

namespace {
// What happens to the matches at which a text is cut. From kMergedWithPrevious on they may join their neighbors.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };
constexpr std::string_view kBehaviors[] = {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"};

// Cuts a word at the matches for which for_each_match(cut) calls cut(begin, end), in order, and appends the pieces.
template <class ForEachMatch> void cut_at(const TextSegment& word, SplitBehavior behavior, bool inverted,
    PipelineScratch& scratch, const ForEachMatch& for_each_match) {
  // Whether there is a piece; the last one ends with a match; was empty.
  bool begun = false, after_match = false, after_empty = false;
  const auto add = [&](size_t from, size_t to, bool match) {
    if (match && behavior == SplitBehavior::kRemoved) return;
    const bool joins = behavior >= SplitBehavior::kMergedWithPrevious && begun && !after_empty &&
                       (behavior == SplitBehavior::kMergedWithPrevious  ? match && !after_match
                           : behavior == SplitBehavior::kMergedWithNext ? !match && after_match
                                                                        : match == after_match);
    if (joins) scratch.next_words.back().end = to;
    else if (from < to) scratch.add_word({from, to, kNoToken}), begun = true;
    after_match = match, after_empty = !joins && from == to;
  };
  size_t done = word.begin;
  for_each_match([&](size_t begin, size_t end) {
    if (done < begin) add(done, begin, inverted);
    add(begin, end, !inverted);
    done = end;
  });
  if (done < word.end) add(done, word.end, inverted);
}

// Keeps words that are tokens; split_word(word, text, scratch) appends the pieces of each other one to next_words.
template <class SplitWord> PreTokenizer split_words(SplitWord split_word) {
  return {[split_word](PipelineScratch& scratch) {
    scratch.next_words.clear();
    for (const TextSegment& word : scratch.words)
      if (word.id == kNoToken) split_word(word, scratch.text.view(), scratch);
      else scratch.add_word(word);
    scratch.words.swap(scratch.next_words);
  }};
}

// At the matches of a pattern; `inverted`: at the text between them.
PreTokenizer pattern_split(const SplitPattern& pattern, SplitBehavior behavior, bool inverted = false) {
  return split_words([=](const TextSegment& word, std::string_view text, PipelineScratch& scratch) {
    cut_at(word, behavior, inverted, scratch, [&](const auto& cut) {
      pattern.find_all(text.substr(word.begin, word.end - word.begin), scratch.match,
          [&](const TextRange& match) { cut(word.begin + match.begin, word.begin + match.end); });
    });
  });
}

// At the characters with matches(c).
PreTokenizer character_split(bool (*matches)(char32_t), SplitBehavior behavior) {
  return split_words([=](const TextSegment& word, std::string_view text, PipelineScratch& scratch) {
    cut_at(word, behavior, false, scratch, [&](const auto& cut) {
      for (const Utf8Character& character : utf8_characters(text.substr(word.begin, word.end - word.begin)))
        if (matches(character.code_point())) cut(word.begin + character.begin, word.begin + character.end);
    });
  });
}

enum class Kind { kText, kRemoved, kAlone };  // a character that is part of a word, between words, a word of its own

// Where the class of characters changes.
template <class KindOf> PreTokenizer class_split(KindOf kind_of) {
  return split_words([=](const TextSegment& word, std::string_view text, PipelineScratch& scratch) {
    size_t begin = word.begin;
    for (const Utf8Character& character : utf8_characters(text.substr(word.begin, word.end - word.begin))) {
      const Kind kind = kind_of(character.code_point());
      if (kind == Kind::kText) continue;
      const size_t at = word.begin + character.begin, end = word.begin + character.end;
      if (begin < at) scratch.add_word({begin, at, kNoToken});
      if (kind == Kind::kAlone) scratch.add_word({at, end, kNoToken});
      begin = end;
    }
    if (begin < word.end) scratch.add_word({begin, word.end, kNoToken});
  });
}

// Puts a space before each piece that does not begin with one (ByteLevel's add_prefix_space).
void put_prefix_space(PipelineScratch& scratch) {
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

// SentencePiece's spaces: they become "▁", one is put before the text, and if `cut` is set words begin at each.
void put_spaces(const Metaspace& how, bool cut, PipelineScratch& scratch) {
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
    const bool marked = part.starts_with(' ') || part.starts_with(how.replacement);
    const bool first = word.begin == 0 && text.at_start();
    if (!marked && (how.prepends == Metaspace::kAlways || (how.prepends == Metaspace::kFirst && first))) {
      text.put(how.replacement, word.begin, word.begin + utf8_length_at(old, word.begin));
      written += how.replacement.size();
    }
    for (size_t i = word.begin; i < word.end;) {
      const bool space = old[i] == ' ', mark = space || old.substr(i, word.end - i).starts_with(how.replacement);
      size_t length = space ? 1 : mark ? how.replacement.size() : 1;
      if (mark) {
        if (cut) end_word();
        text.put(how.replacement, i, i + length);
        written += how.replacement.size();
      } else {
        while (i + length < word.end && old[i + length] != ' ' && old[i + length] != how.replacement[0]) ++length;
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

SplitBehavior read_behavior(const JsonObject& step) {
  const std::string name = step.text("behavior");
  const auto found = std::ranges::find(kBehaviors, name);
  if (found == std::end(kBehaviors)) fail_unknown(step, "behavior", name);
  return static_cast<SplitBehavior>(found - kBehaviors);
}

// Every step but Sequence and ByteLevel.
PreTokenizer read_cutting_step(const JsonObject& json, const std::string& type) {
  if (type == "Split") return pattern_split(read_pattern(json), read_behavior(json), json.flag("invert", false));
  if (type == "Metaspace")
    return {[how = read_metaspace(json), cut = json.flag("split", true)](
                PipelineScratch& scratch) { put_spaces(how, cut, scratch); },
        true};
  if (type == "Whitespace")  // \w+|[^\w\s]+, where \w also has what joins letters
    return pattern_split(
        SplitPattern(R"([\w\x{200C}\x{200D}]+|[^\w\x{200C}\x{200D}\s]+)"), SplitBehavior::kRemoved, true);
  if (type == "CharDelimiterSplit")
    return pattern_split(SplitPattern::literal(json.text("delimiter")), SplitBehavior::kRemoved);
  if (type == "BertPreTokenizer")
    return class_split([](char32_t c) {
      return is_white_space(c) ? Kind::kRemoved : is_bert_punctuation(c) ? Kind::kAlone : Kind::kText;
    });
  if (type == "WhitespaceSplit")
    return class_split([](char32_t c) { return is_white_space(c) ? Kind::kRemoved : Kind::kText; });
  if (type == "Punctuation")
    return character_split(is_bert_punctuation, json.has("behavior") ? read_behavior(json) : SplitBehavior::kIsolated);
  if (type == "Digits")
    return pattern_split(SplitPattern(R"(\p{N})"),
        json.flag("individual_digits", false) ? SplitBehavior::kIsolated : SplitBehavior::kContiguous);
  fail_unknown(json, "type", type);
}
}  // namespace

SplitPattern read_pattern(const JsonObject& step) {
  const JsonObject pattern = step.object("pattern");
  if (pattern.has("Regex")) return SplitPattern(pattern.text("Regex"), pattern.where());
  return SplitPattern::literal(pattern.text("String"));
}

// Old files have add_prefix_space instead of prepend_scheme.
Metaspace read_metaspace(const JsonObject& step) {
  const std::string replacement = step.text("replacement");
  if (replacement.empty()) step.fail("has an empty replacement");
  const std::string scheme = step.text("prepend_scheme", step.flag("add_prefix_space", true) ? "always" : "never");
  if (scheme == "always") return {replacement, Metaspace::kAlways};
  if (scheme == "first") return {replacement, Metaspace::kFirst};
  if (scheme == "never") return {replacement, Metaspace::kNever};
  fail_unknown(step, "prepend_scheme", scheme);
}

bool read_pre_tokenizer(const JsonObject& json, std::vector<PreTokenizer>& steps) {
  const std::string type = json.text("type");
  if (type == "Sequence") {
    bool byte_level = false;
    for (const JsonObject& step : json.objects("pretokenizers")) {
      if (byte_level) step.fail("follows ByteLevel, which Linnet expects last");
      byte_level = read_pre_tokenizer(step, steps);
    }
    return byte_level;
  }
  if (type != "ByteLevel") {
    steps.push_back(read_cutting_step(json, type));
    return false;
  }
  if (json.flag("add_prefix_space", true)) steps.push_back({put_prefix_space, true});
  if (json.flag("use_regex", true))
    steps.push_back(pattern_split(SplitPattern(kGpt2Expression), SplitBehavior::kIsolated));
  return true;
}
}  // namespace linnet
