// Normalizers by their names in tokenizer.json.
#include <utf8proc.h>
#include <algorithm>
#include "base/error.h"
#include "base/text.h"
#include "data/text/pipeline/tokenizer_json.h"
#include "data/text/sentencepiece/sentencepiece_pretrained.h"
#include "data/text/unicode/utf8.h"

namespace linnet {
namespace {
bool all_ascii(std::string_view text) {
  unsigned char all = 0;
  for (const char c : text) all |= static_cast<unsigned char>(c);
  return all < 0x80;
}

struct Form {  // NFC, NFD, NFKC, NFKD
  bool compatible, composes;
};

// Whether a character of combining class 0 may compose with one before it.
bool composes_backward(char32_t c) {
  if (c < 0x9BE) return false;
  if ((c >= 0x1161 && c <= 0x1175) || (c >= 0x11A8 && c <= 0x11C2)) return true;  // Hangul's vowels and last consonants
  constexpr char32_t kVowels[] = {0x9BE, 0x9D7, 0xB3E, 0xB56, 0xB57, 0xBBE, 0xBD7, 0xCC2, 0xCD5, 0xCD6, 0xD3E, 0xD57,
      0xDCF, 0xDDF, 0x102E, 0x1B35, 0x11127, 0x1133E, 0x11357, 0x114B0, 0x114BA, 0x114BD, 0x115AF, 0x11930};
  return std::ranges::binary_search(kVowels, c);
}

// Whether what precedes `c` cannot affect its normalization.
bool starts_afresh(Form form, char32_t c, std::u32string& scratch) {
  if (c < 0x300) return true;
  scratch.clear();
  append_decomposition(c, form.compatible, scratch);
  return combining_class(scratch[0]) == 0 && !(form.composes && composes_backward(scratch[0]));
}

struct Part {
  char32_t c;
  uint8_t combining_class;
  bool first;  // of what its source became
};

// Decomposes a stretch that starts afresh at both ends, with marks in canonical order.
std::vector<Part> decomposed(Form form, std::string_view text) {
  std::vector<Part> parts;
  std::u32string letters;
  for (const Utf8Character& character : utf8_characters(text)) {
    letters.clear();
    append_decomposition(character.code_point(), form.compatible, letters);
    for (size_t k = 0; k < letters.size(); ++k) parts.push_back({letters[k], combining_class(letters[k]), k == 0});
  }
  const auto is_starter = [](const Part& part) { return part.combining_class == 0; };
  for (auto begin = parts.begin(); begin != parts.end();) {
    const auto end = std::find_if(begin, parts.end(), is_starter);
    std::ranges::stable_sort(begin, end, {}, &Part::combining_class);
    begin = end == parts.end() ? end : end + 1;
  }
  return parts;
}

std::string composed(Form form, std::string_view text) {
  std::vector<utf8proc_int32_t> points = mapped<utf8proc_int32_t>(decomposed(form, text), &Part::c);
  const auto count = utf8proc_normalize_utf32(
      points.data(), std::ssize(points), static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
  if (count < 0) fail_internal("utf8proc cannot compose a text");
  return to_utf8(std::u32string(points.begin(), points.begin() + count));
}

// Decomposes text[begin, end), which starts afresh at both ends, with sources as in tokenizers: reordered marks take
// the sources of their positions.
void put_decomposed(Form form, AlignedText& text, size_t begin, size_t end) {
  const std::string_view old = text.view();
  size_t source = begin, next = begin;
  for (const Part& part : decomposed(form, old.substr(begin, end - begin))) {
    if (part.first && next < end) {
      source = next;
      next += utf8_length_at(old, next);
    }
    text.put(to_utf8(part.c), source, source + utf8_length_at(old, source));
  }
}

// Puts `bytes` for text[begin, end), character by character if they do not interact, else as a whole.
void put_composed(Form form, AlignedText& text, size_t begin, size_t end, const std::string& bytes) {
  const std::string_view old = text.view();
  const Utf8Characters characters = utf8_characters(old.substr(begin, end - begin));
  const auto parts = mapped(characters, [&](const Utf8Character& each) { return composed(form, each.bytes()); });
  if (joined(parts, "") != bytes) return text.put(bytes, begin, end);
  for (size_t i = 0; const Utf8Character& character : characters)
    text.put(parts[i++], begin + character.begin, begin + character.end);
}

void normalize_unicode(Form form, AlignedText& text) {
  const std::string_view old = text.view();
  if (all_ascii(old)) return;
  std::u32string scratch;
  text.start_rewrite();
  for (size_t begin = 0, end; begin < old.size(); begin = end) {
    end = begin + utf8_length_at(old, begin);
    if (is_unknown_to_normalization(utf8_code_point_at(old, begin))) {
      text.keep(begin, end);
      continue;
    }
    for (; end < old.size(); end += utf8_length_at(old, end)) {
      const char32_t c = utf8_code_point_at(old, end);
      if (starts_afresh(form, c, scratch) || is_unknown_to_normalization(c)) break;
    }
    const std::string_view part = old.substr(begin, end - begin);
    if (part.size() == 1 && static_cast<unsigned char>(part[0]) < 0x80) text.keep(begin, end);
    else if (!form.composes) put_decomposed(form, text, begin, end);
    else if (const std::string bytes = composed(form, part); bytes == part) text.keep(begin, end);
    else put_composed(form, text, begin, end, bytes);
  }
  text.finish_rewrite();
}

void make_lowercase(AlignedText& text) {
  std::u32string lower;
  text.rewrite_characters([&](char32_t c, size_t begin, size_t end) {
    lower.clear();
    append_lowercase(c, lower);
    if (lower.size() == 1 && lower[0] == c) text.keep(begin, end);
    else text.put(to_utf8(lower), begin, end);
  });
}

// For use after NFD or NFKD.
void strip_accents(AlignedText& text) {
  if (all_ascii(text.view())) return;
  text.rewrite_characters([&](char32_t c, size_t begin, size_t end) {
    if (!is_combining_mark(c)) text.keep(begin, end);
  });
}

void strip_white_space(bool left, bool right, AlignedText& text) {
  const std::string_view old = text.view();
  size_t begin = 0, end = old.size();
  while (left && begin < end && is_white_space(utf8_code_point_at(old, begin))) begin += utf8_length_at(old, begin);
  while (right && end > begin) {
    const size_t last = utf8_start_before(old, end);
    if (!is_white_space(utf8_code_point_at(old, last))) break;
    end = last;
  }
  if (begin == 0 && end == old.size()) return;
  text.start_rewrite();
  text.keep(begin, end);
  text.finish_rewrite();
}

void replace_matches(const SplitPattern& pattern, const std::string& content, PipelineScratch& scratch) {
  AlignedText& text = scratch.text;
  const std::string_view old = text.view();
  text.start_rewrite();
  size_t done = 0;
  bool any = false;
  pattern.find_all(old, scratch.match, [&](const TextRange& match) {
    text.keep(done, match.begin);
    text.put(content, match.end > 0 ? utf8_start_before(old, match.end) : 0, match.end);  // of the last character
    done = match.end, any = true;
  });
  if (!any) return;
  text.keep(done, old.size());
  text.finish_rewrite();
}

void prepend(const std::string& content, AlignedText& text) {  // not before an empty text
  const std::string_view old = text.view();
  if (old.empty()) return;
  text.start_rewrite();
  text.put(content, 0, utf8_length_at(old, 0));
  text.keep(0, old.size());
  text.finish_rewrite();
}

size_t grapheme_end(std::string_view text, size_t begin) {
  utf8proc_int32_t state = 0;
  auto last = static_cast<utf8proc_int32_t>(utf8_code_point_at(text, begin));
  size_t end = begin + utf8_length_at(text, begin);
  while (end < text.size()) {
    const auto next = static_cast<utf8proc_int32_t>(utf8_code_point_at(text, end));
    if (utf8proc_grapheme_break_stateful(last, next, &state)) break;
    end += utf8_length_at(text, end);
    last = next;
  }
  return end;
}

// SentencePiece's table of replacements as tokenizers applies it, which differs from SentencePiece: a whole grapheme of
// less than 6 bytes that begins with an entry is replaced; else each of its characters is looked up.
void replace_by_table(const CharsmapTable& table, AlignedText& text) {
  const std::string_view old = text.view();
  if (old.empty()) return;
  // Every byte is then a grapheme.
  const bool plain = all_ascii(old) && old.find('\r') == old.npos;
  text.start_rewrite();
  for (size_t begin = 0, end; begin < old.size(); begin = end) {
    end = plain ? begin + 1 : grapheme_end(old, begin);
    const std::string_view grapheme = old.substr(begin, end - begin);
    if (const char* found = grapheme.size() < 6 ? table.shortest(grapheme) : nullptr) {
      text.put(found, begin, end);
      continue;
    }
    for (const Utf8Character& character : utf8_characters(grapheme)) {
      const char* part = grapheme.size() > character.bytes().size() ? table.shortest(character.bytes()) : nullptr;
      if (part) text.put(part, begin + character.begin, begin + character.end);
      else text.keep(begin + character.begin, begin + character.end);
    }
  }
  text.finish_rewrite();
}

// BERT's: removes control characters, spells white space as spaces, spaces CJK ideographs, removes accents, lowercases.
struct BertNormalizer {
  bool clean, space_cjk, strip_accents, lowercase;

  void operator()(AlignedText& text) const {
    // A mark that stays when accents are removed, such as a vowel sign; decomposition orders them by class.
    struct Mark {
      uint8_t order;
      std::string bytes;
      size_t begin, end;
    };
    std::vector<Mark> marks;
    const auto put_marks = [&] {
      if (marks.empty()) return;
      std::ranges::stable_sort(marks, {}, &Mark::order);
      for (const Mark& mark : marks) text.put(mark.bytes, mark.begin, mark.end);
      marks.clear();
    };
    std::u32string parts, lower;
    const auto change = [&](char32_t c, size_t begin, size_t end) {
      if (clean) {
        if (is_white_space(c) && !is_bert_control(c)) return put_marks(), text.put(" ", begin, end);
        if (c == 0 || c == 0xFFFD || is_bert_control(c)) return;
      }
      if (c < 0x80) {
        put_marks();
        const char small = static_cast<char>(c | 32);
        if (lowercase && c >= 'A' && c <= 'Z') text.put({&small, 1}, begin, end);
        else text.keep(begin, end);
        return;
      }
      const bool spaced = space_cjk && is_cjk_ideograph(c);
      parts.clear();
      if (strip_accents) append_decomposition(c, false, parts);
      else parts += c;
      if (spaced) put_marks(), text.put(" ", begin, end);
      for (const char32_t part : parts) {
        if (!marks.empty() && combining_class(part) == 0) put_marks();
        if (strip_accents && is_bert_accent(part)) continue;
        lower.clear();
        if (lowercase) append_lowercase(part, lower);
        else lower += part;
        if (strip_accents && combining_class(part) != 0) {
          marks.push_back({combining_class(part), to_utf8(lower), begin, end});
          continue;
        }
        text.put(to_utf8(lower), begin, end);
      }
      if (spaced) text.put(" ", begin, end);
    };
    text.rewrite_characters([&](char32_t c, size_t begin, size_t end) {
      change(c, begin, end);
      if (end == text.view().size()) put_marks();
    });
  }
};

// For a function that needs only the text.
template <class Change> TextStep normalizer(const Change& change) {
  return [change](PipelineScratch& scratch) { change(scratch.text); };
}

TextStep read_charsmap(const JsonObject& json) {
  std::string table;
  if (json.has("precompiled_charsmap") && !decode_base64(json.text("precompiled_charsmap"), table))
    json.fail("has a table that is not base64");
  if (table.empty()) return [](PipelineScratch&) {};
  return normalizer([table = CharsmapTable(table, json.where())](AlignedText& text) { replace_by_table(table, text); });
}

TextStep read_normalizing_step(const JsonObject& json, const std::string& type) {
  if (type == "BertNormalizer") {
    const bool lowercase = json.flag("lowercase", true);
    return normalizer(BertNormalizer{json.flag("clean_text", true), json.flag("handle_chinese_chars", true),
        json.flag("strip_accents", lowercase), lowercase});
  }
  if (type == "NFC" || type == "NFD" || type == "NFKC" || type == "NFKD") {
    const Form form{.compatible = type.size() == 4, .composes = type.ends_with('C')};
    return normalizer([form](AlignedText& text) { normalize_unicode(form, text); });
  }
  if (type == "Lowercase") return normalizer(make_lowercase);
  if (type == "StripAccents") return normalizer(strip_accents);
  if (type == "Strip")
    return normalizer([left = json.flag("strip_left", true), right = json.flag("strip_right", true)](
                          AlignedText& text) { strip_white_space(left, right, text); });
  if (type == "Replace")
    return [pattern = read_pattern(json), content = json.text("content")](
               PipelineScratch& scratch) { replace_matches(pattern, content, scratch); };
  if (type == "Prepend")
    return normalizer([content = json.text("prepend")](AlignedText& text) { prepend(content, text); });
  if (type == "Precompiled") return read_charsmap(json);
  fail_unknown(json, "type", type);
}
}  // namespace

void read_normalizer(const JsonObject& json, std::vector<TextStep>& steps) {
  const std::string type = json.text("type");
  if (type != "Sequence") return steps.push_back(read_normalizing_step(json, type));
  for (const JsonObject& step : json.objects("normalizers")) read_normalizer(step, steps);
}
}  // namespace linnet
