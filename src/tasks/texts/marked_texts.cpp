#include "tasks/texts/marked_texts.h"
#include "base/fail.h"
#include "base/json.h"
#include "base/text.h"
#include "data/examples/text/record_reader.h"
#include "data/text/unicode/utf8.h"

namespace linnet {
namespace {
using Characters = std::vector<std::string_view>;

// The byte at which character `at` of the text begins.
size_t byte_at(const std::string& text, const Characters& characters, size_t at) {
  return at < characters.size() ? static_cast<size_t>(characters[at].data() - text.data()) : text.size();
}

const std::string& text_at(const Json& record, std::string_view key, const std::string& where) {
  const Json* value = record.find(key);
  if (!value || !value->is_string())
    fail_user(where, ": there is no text \"", key, "\" (a record has question, context and answers)");
  return value->text();
}

struct GivenAnswer {
  std::string text;
  const Json* start = nullptr;  // in code points of the context; null: missing
};

const std::string& answer_text(const Json& answer, const std::string& where) {
  if (answer.is_object()) return text_at(answer, "text", where);
  if (!answer.is_string()) fail_user(where, ": an answer is no text");
  return answer.text();
}

std::vector<GivenAnswer> given_answers(const Json& record, const std::string& where) {
  const Json* answers = record.find("answers");
  if (!answers) answers = record.find("answer");
  std::vector<GivenAnswer> given;
  if (!answers) fail_user(where, ": there is no \"answers\" (\"answers\": [] says that the text has none)");
  if (answers->is_null()) return given;
  const Json* texts = answers->is_object() ? answers->find("text") : nullptr;
  if (texts && texts->is_array()) {
    const Json* starts = answers->find("answer_start");
    if (starts && (!starts->is_array() || starts->size() != texts->size()))
      fail_user(where, ": \"answers\" has ", texts->size(), " texts and another number of starts");
    for (size_t i = 0; i < texts->size(); ++i)
      given.push_back({answer_text((*texts)[i], where), starts ? &(*starts)[i] : nullptr});
    return given;
  }
  if (answers->is_string()) return {{answer_text(*answers, where), record.find("answer_start")}};
  if (!answers->is_array()) fail_user(where, ": \"answers\" is no list");
  for (const Json& answer : *answers) given.push_back({answer_text(answer, where), answer.find("answer_start")});
  return given;
}

Json ranges_of(const Json& record, const std::string& context, const std::string& where) {
  Json ranges = Json::array();
  const Json* impossible = record.find("is_impossible");
  if (impossible && impossible->is_boolean() && impossible->get<bool>()) return ranges;
  const std::vector<GivenAnswer> given = given_answers(record, where);
  Characters characters;
  if (std::ranges::any_of(given, [](const GivenAnswer& answer) { return answer.start; }))
    characters = split_code_points(context);
  for (const auto& [text, start] : given) {
    if (text.empty()) continue;  // in some files this means no answer
    size_t begin = context.find(text);
    if (start) {
      if (!start->is_integer(0, std::ssize(characters)))
        fail_user(
            where, ": \"answer_start\" is ", start->dump(), ", and the context has ", characters.size(), " characters");
      const auto at = start->get<size_t>();
      begin = byte_at(context, characters, at);
      if (context.compare(begin, text.size(), text) != 0)
        fail_user(where, ": the answer '", text, "' does not stand at \"answer_start\" ", at,
            " of the context (starts count characters from 0)");
    }
    if (begin == context.npos) fail_user(where, ": the answer '", text, "' is no part of the context");
    ranges.push_back(Json::array({begin, begin + text.size()}));
  }
  return ranges;
}

TextRecord record_of(const Json& question, const std::string& context, bool labelled, const std::string& where) {
  TextRecord record{.text = text_at(question, "question", where), .pair = context, .where = where};
  record.text.erase(0, record.text.find_first_not_of(" \t\r\n"));
  if (labelled && trimmed(context).empty()) fail_user(where, ": the context is empty");
  if (labelled) record.label = ranges_of(question, context, where);
  return record;
}

using UseRecord = std::function<void(TextRecord record)>;

// "data": articles with "paragraphs", each with a "context" and questions, "qas".
void read_articles(const Json& whole, bool labelled, const std::string& path, const UseRecord& use) {
  for (const Json& article : whole["data"]) {
    const Json* paragraphs = article.find("paragraphs");
    if (!paragraphs) fail_user("'", path, "': an article of \"data\" has no \"paragraphs\"");
    for (const Json& paragraph : *paragraphs) {
      const std::string& context = text_at(paragraph, "context", path);
      const Json* questions = paragraph.find("qas");
      if (!questions) fail_user("'", path, "': a paragraph has no \"qas\"");
      for (const Json& question : *questions) {
        const Json* id = question.find("id");
        use(record_of(question, context, labelled, path + (id ? ": question " + shown(*id) : "")));
      }
    }
  }
}

void for_each_record(const std::string& path, bool labelled, const UseRecord& use) {
  LineReader lines(path);
  std::string first, line;
  while (first.empty() && lines.next(line)) first = trimmed(line);
  // In JSON lines the first line is a whole object with a question. A list is one of records.
  if (!first.starts_with('[') && !Json::parse_or_null(first, JsonLimits::tables()).contains("question")) {
    while (lines.next(line)) first += '\n' + line;
    const Json whole = Json::parse(first, "'" + path + "'", JsonLimits::tables());
    const Json* data = whole.find("data");
    if (!data || !data->is_array())
      fail_user("'", path,
          "' has neither SQuAD's form, an object with \"data\", nor a \"question\" on each line, which is a record");
    return read_articles(whole, labelled, path, use);
  }
  RecordReader reader(path, {});
  for (Json record; reader.next(record);)
    use(record_of(record, text_at(record, "context", reader.where()), labelled, reader.where()));
}

using WordRanges = std::vector<TextRange>;

Json words_label(const WordRanges& words, const std::vector<std::string>& tags) {
  const auto range_of = [](const TextRange& word) { return Json::array({word.begin, word.end}); };
  return {{"words", mapped(words, range_of)}, {"tags", tags}};
}

// Joins tokens with spaces, and sets the WordRanges.
TextRecord join(const std::vector<std::string>& tokens, const std::vector<std::string>& tags, std::string where) {
  TextRecord record{.where = std::move(where)};
  WordRanges words;
  for (const std::string& token : tokens) {
    if (!record.text.empty()) record.text += ' ';
    words.push_back({record.text.size(), record.text.size() + token.size()});
    record.text += token;
  }
  record.label = words_label(words, tags);
  return record;
}

struct TaggedSpan {
  size_t begin, end;  // bytes
  std::string label;
};

TaggedSpan read_span(
    const Json& json, const Characters& characters, const std::string& text, const std::string& where) {
  const bool list = json.is_array() && json.size() == 3;
  if (!list && !json.is_object()) fail_user(where, ": an entity is neither an object nor [start, end, label]");
  const auto part = [&](const char* key, size_t index) -> const Json& {
    if (list) return json[index];
    if (const Json* found = json.find(key)) return *found;
    fail_user(where, ": an entity has no \"", key, "\"");
  };
  const auto offset = [&](const char* key, size_t index) {
    const Json& value = part(key, index);
    if (!value.is_integer(0, std::ssize(characters)))
      fail_user(where, ": \"", key, "\" of an entity is ", value.dump(), ", and the text has ", characters.size(),
          " characters");
    return byte_at(text, characters, value.get<size_t>());
  };
  TaggedSpan span{offset("start", 0), offset("end", 1), ""};
  const Json& label = part("label", 2);
  if (!label.is_string() || label.text().empty()) fail_user(where, ": the label of an entity is no text");
  span.label = label.text();
  if (span.begin >= span.end) fail_user(where, ": an entity ends where it starts or before");
  return span;
}

TextRecord tag_spans(std::string text, const Json& spans, const std::string& where) {
  const Characters characters = split_code_points(text);
  const WordRanges words = split_words(text);
  std::vector<std::string> tags(words.size(), "O");
  for (const Json& json : spans) {
    const TaggedSpan span = read_span(json, characters, text, where);
    bool is_first = true;
    for (size_t i = 0; i < words.size(); ++i) {
      if (words[i].end <= span.begin || words[i].begin >= span.end) continue;
      if (tags[i] != "O")
        fail_user(
            where, ": two entities share the word '", text.substr(words[i].begin, words[i].end - words[i].begin), "'");
      tags[i] = (is_first ? "B-" : "I-") + span.label;
      is_first = false;
    }
  }
  TextRecord record{.where = where};
  record.label = words_label(words, tags);
  record.text = std::move(text);
  return record;
}

const Json* first_field(const Json& record, std::initializer_list<std::string> names) {
  for (const std::string& name : names)
    if (!name.empty())
      if (const Json* found = record.find(name)) return found;
  return nullptr;
}

const Json* tagged_tokens(const Json& json, const DataConfig& data) {
  const Json* tokens = first_field(json, {data.text_column, "tokens", "words"});
  return tokens && tokens->is_array() ? tokens : nullptr;
}

std::vector<std::string> texts_of(const Json& tokens, const std::string& where) {
  std::vector<std::string> texts;
  for (const Json& token : tokens) {
    if (!token.is_string()) fail_user(where, ": a token is no text");
    texts.push_back(token.text());
  }
  return texts;
}

const std::string& tagged_text(const Json& json, const DataConfig& data, const std::string& where) {
  const Json* text = first_field(json, {data.text_column, "text", "sentence"});
  if (!text || !text->is_string()) fail_user(where, ": there is neither \"tokens\" nor a \"text\"");
  return text->text();
}

TextRecord read_record(const Json& json, const DataConfig& data, const std::string& where) {
  if (const Json* tokens = tagged_tokens(json, data)) {
    const Json* tags = first_field(json, {data.label_column, "tags", "ner_tags", "labels"});
    if (!tags || !tags->is_array()) fail_user(where, ": there is no list \"tags\" beside the tokens");
    if (tags->size() != tokens->size()) fail_user(where, ": ", tokens->size(), " tokens and ", tags->size(), " tags");
    std::vector<std::string> names;
    for (const Json& tag : *tags) {
      if (!tag.is_string())
        fail_user(where, ": the tag ", tag.dump(), " is no text: numbers do not say which tag they stand for");
      names.push_back(tag.text());
    }
    return join(texts_of(*tokens, where), names, where);
  }
  const std::string& text = tagged_text(json, data, where);
  const Json* spans = first_field(json, {data.label_column, "entities", "spans", "label", "labels"});
  if (!spans || !spans->is_array()) fail_user(where, ": there is no list \"entities\" beside the text");
  return tag_spans(text, *spans, where);
}

TextRecords read_json(const std::string& path, const DataConfig& data) {
  RecordReader reader(path, {});
  TextRecords found;
  for (Json record; reader.next(record);) found.records.push_back(read_record(record, data, reader.where()));
  return found;
}

// A word's line in a CoNLL file.
struct WordLine {
  std::string word, tag, where;
  size_t columns;
  bool has_value;  // as comments "# key = value"
};

TextRecords read_columns(const std::string& path, bool tagged) {
  LineReader reader(path);
  TextRecords found;
  std::vector<WordLine> lines;
  size_t columns = 0;  // of the file's words
  const auto finish = [&] {
    const auto word = std::ranges::find_if(lines, [](const WordLine& line) { return line.word != "#"; });
    if (columns == 0 && word != lines.end()) columns = word->columns;
    // Comments are in front of a text. The word "#" has the columns of any other.
    lines.erase(lines.begin(), std::ranges::find_if_not(lines, [&](const WordLine& line) {
      return line.word == "#" && (line.columns != columns || line.has_value);
    }));
    for (const WordLine& line : lines)
      if (line.columns < 2 && tagged)
        fail_user(line.where, ": expected a word and its tag, found '", line.word, "' alone");
    const auto is_counted = [](const WordLine& line) {  // "3", or "3-4" for a token of two words
      return line.columns >= 10 && is_digits(line.word.substr(0, line.word.find_first_of("-.")));
    };
    if (!lines.empty() && std::ranges::all_of(lines, is_counted))
      fail_user(lines[0].where,
          ": the first column counts the words, as in CoNLL-U; a line begins with its word and ends with its tag "
          "(`cut -f 2,4` leaves words and their parts of speech)");
    if (!lines.empty())
      found.records.push_back(join(mapped(lines, &WordLine::word), mapped(lines, &WordLine::tag), lines[0].where));
    lines.clear();
  };
  for (std::string line; reader.next(line);) {
    const std::vector<std::string_view> row = split_white_space(line);
    if (row.empty()) finish();
    else if (row[0] != "-DOCSTART-")
      lines.push_back(
          {std::string(row.front()), std::string(row.back()), reader.where(), row.size(), line.find('=') != line.npos});
  }
  finish();
  return found;
}
}  // namespace

TextRecords read_answers(const std::string& path, const DataConfig&) {
  if (!has_json(path))
    fail_user("'", path, "': questions with answers are in a file of SQuAD's form (.json) or in JSON lines (.jsonl)");
  TextRecords found{.records = {}, .pairs = true};
  for_each_record(path, true, [&](TextRecord record) { found.records.push_back(std::move(record)); });
  if (found.records.empty()) fail_user("'", path, "' has no questions");
  return found;
}

void for_each_question(const std::string& path, const DataConfig& data, const UseText& use) {
  if (!has_json(path)) return for_each_text(path, data, true, use);
  for_each_record(path, false, [&](const TextRecord& record) { use(with_tab(record.text, record.pair)); });
}

std::vector<TextRange> text_ranges(const Json& list) {
  return mapped(list, [](const Json& range) { return TextRange{range[0].get<size_t>(), range[1].get<size_t>()}; });
}

std::vector<std::string> answer_texts(const TextRecord& record) {
  return mapped(text_ranges(record.label),
      [&](const TextRange& range) { return record.pair.substr(range.begin, range.end - range.begin); });
}

WordRanges split_words(const std::string& text) {
  WordRanges words;
  bool goes_on = false;
  for (const std::string_view character : split_code_points(text)) {
    const auto begin = static_cast<size_t>(character.data() - text.data());
    const char32_t c = utf8_code_point_at(text, begin);
    const bool is_part = is_word_character(c);
    if (is_part && goes_on) words.back().end = begin + character.size();
    else if (!is_white_space(c)) words.push_back({begin, begin + character.size()});
    goes_on = is_part;
  }
  return words;
}

TextRecords read_tagged_texts(const std::string& path, const DataConfig& data) {
  TextRecords found = has_json(path) ? read_json(path, data) : read_columns(path, true);
  if (found.records.empty()) fail_user("'", path, "' has no tagged texts");
  return found;
}

void for_each_text_of_words(const std::string& path, const DataConfig& data, const UseText& use) {
  constexpr std::string_view kColumns[] = {".conll", ".conllu", ".iob", ".iob2", ".bio", ".bioes"};
  if (std::ranges::any_of(kColumns, [&](std::string_view ending) { return has_ending(path, ending); })) {
    for (const TextRecord& record : read_columns(path, false).records) use(record.text);
    return;
  }
  if (!has_json(path)) return for_each_text(path, data, false, use);
  RecordReader reader(path, {});
  for (Json record; reader.next(record);) {
    const Json* tokens = tagged_tokens(record, data);
    use(tokens ? join(texts_of(*tokens, reader.where()), {}, "").text : tagged_text(record, data, reader.where()));
  }
}
}  // namespace linnet
