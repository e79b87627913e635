#include "tasks/texts/answer_records.h"
#include <algorithm>
#include "base/fail.h"
#include "base/text.h"
#include "data/examples/text/record_reader.h"
#include "data/text/unicode/utf8.h"

namespace linnet {
namespace {
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
  std::vector<std::string_view> characters;
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
      begin = at < characters.size() ? static_cast<size_t>(characters[at].data() - context.data()) : context.size();
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
  // In JSON lines the first line is a whole object with a question.
  if (const Json record = Json::parse_or_null(first, JsonLimits::tables()); !record.contains("question")) {
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

bool has_json(const std::string& path) {
  return has_ending(path, ".json") || has_ending(path, ".jsonl") || has_ending(path, ".ndjson");
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
  for_each_record(path, false, [&](const TextRecord& record) {
    std::string question = record.text;
    std::ranges::replace(question, '\t', ' ');
    use(question + '\t' + record.pair);
  });
}

std::vector<TextRange> answer_ranges(const TextRecord& record) {
  std::vector<TextRange> ranges;
  for (const Json& range : record.label) ranges.push_back({range[0].get<size_t>(), range[1].get<size_t>()});
  return ranges;
}

std::vector<std::string> answer_texts(const TextRecord& record) {
  std::vector<std::string> texts;
  for (const TextRange& range : answer_ranges(record))
    texts.push_back(record.pair.substr(range.begin, range.end - range.begin));
  return texts;
}
}  // namespace linnet
