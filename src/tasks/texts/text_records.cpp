#include "tasks/texts/text_records.h"

#include <algorithm>
#include <array>
#include <map>

#include "base/error.h"
#include "data/examples/held_out.h"
#include "data/examples/text/record_reader.h"

namespace linnet {
namespace {

using FieldNames = std::vector<std::string_view>;

const FieldNames kTexts{"text", "sentence", "sentence1", "text1", "premise", "question1", "query"},
    kPairs{"text_pair", "text2", "sentence2", "hypothesis", "question2", "passage"},
    kLabels{"label", "labels", "score", "target", "gold_label"};

// Which fields of a record are what.
struct Columns {
  std::string text, pair, label;  // pair: "" for single texts
};

const std::string* find_name(const Json& record, const FieldNames& names) {
  for (const std::string_view name : names)
    for (const auto& [key, value] : record.items())
      if (key == name) return &key;
  return nullptr;
}

std::string column(const Json& record, const std::string& asked, const FieldNames& usual, const char* key,
                   const std::string& where) {
  if (!asked.empty()) {
    if (record.contains(asked)) return asked;
    fail_user(where + ": there is no field \"" + asked + "\", which " + key + " names");
  }
  const std::string* found = find_name(record, usual);
  return found ? *found : "";
}

Columns columns_of(const Json& record, const DataConfig& data, bool labelled, const std::string& where) {
  Columns columns{column(record, data.text_column, kTexts, "text_column", where),
                  column(record, data.pair_column, kPairs, "pair_column", where),
                  column(record, data.label_column, kLabels, "label_column", where)};
  const size_t fields = record.size();
  if (columns.text.empty() && columns.label.empty() && record.contains("1")) {
    if (!labelled) return {"1", fields > 1 ? "2" : "", ""};
    if (fields < 2 || fields > 3)
      fail_user(where + ": expected text<TAB>label or text<TAB>text<TAB>label, found " +
                (fields < 2 ? "no tab" : std::to_string(fields - 1) + " tabs"));
    return {"1", fields == 3 ? "2" : "", std::to_string(fields)};
  }
  if (columns.text.empty() && !labelled && fields == 1) columns.text = record.items().front().key;
  std::string names;
  for (const auto& [key, value] : record.items()) names += (names.empty() ? "" : ", ") + key;
  if (columns.text.empty())
    fail_user(where + ": no field is called \"text\" (there are " + names +
              "); " + (labelled ? "--set data.text_column=NAME" : "--text-column NAME") + " says which");
  if (columns.label.empty() && labelled)
    fail_user(where + ": no field is called \"label\" (there are " + names +
              "); --set data.label_column=NAME says which");
  return columns;
}

std::string text_of(const Json& record, const std::string& name, const std::string& where) {
  const Json* value = record.find(name);
  if (!value || value->is_null()) fail_user(where + ": there is no \"" + name + "\"");
  if (!value->is_string()) fail_user(where + ": \"" + name + "\" is no text");
  return value->text();
}

Json label_of(const Json& record, const std::string& name, const std::string& where) {
  const Json* value = record.find(name);
  if (!value || value->is_null()) fail_user(where + ": there is no \"" + name + "\"");
  return value->is_string() ? Json(trimmed(value->text())) : *value;
}

// What the first line of a tab-separated file has among its fields if it is a heading.
FieldNames heading_names(FieldNames names, const DataConfig& data) {
  for (const std::string* asked : {&data.text_column, &data.pair_column, &data.label_column})
    if (!asked->empty()) names.push_back(*asked);
  return names;
}

}  // namespace

std::string label_text(const Json& label) { return label.is_string() ? label.text() : label.dump(); }

std::vector<std::string> TextRecords::labels() const {
  std::vector<std::string> texts;
  for (const TextRecord& record : records) texts.push_back(label_text(record.label));
  return texts;
}

TextRecords read_text_records(const std::string& path, const DataConfig& data) {
  RecordReader reader(path, heading_names(kLabels, data));
  TextRecords found;
  Columns columns;
  for (Json record; reader.next(record);) {
    const std::string& where = reader.where();
    if (columns.text.empty()) {
      columns = columns_of(record, data, true, where);
      found.pairs = !columns.pair.empty();
    }
    found.records.push_back({.text = text_of(record, columns.text, where),
                             .pair = found.pairs ? text_of(record, columns.pair, where) : "",
                             .label = label_of(record, columns.label, where),
                             .where = where});
  }
  if (found.records.empty()) fail_user("'" + path + "' has no labelled lines");
  return found;
}

void for_each_text(const std::string& path, const DataConfig& data, bool pairs, const UseText& use) {
  if (!has_records(path)) {
    LineReader lines(path);
    for (std::string line; lines.next(line);) use(line);
    return;
  }
  FieldNames heading = kTexts;
  heading.insert(heading.end(), kLabels.begin(), kLabels.end());
  RecordReader reader(path, heading_names(heading, data));
  DataConfig named = data;
  named.label_column.clear();  // the file may have no labels
  if (!pairs) named.pair_column.clear();
  Columns columns;
  for (Json record; reader.next(record);) {
    const std::string& where = reader.where();
    if (columns.text.empty()) columns = columns_of(record, named, false, where);
    std::string text = text_of(record, columns.text, where);
    if (pairs) {
      if (columns.pair.empty()) fail_user(where + ": the model takes two texts, and there is one field with a text");
      std::ranges::replace(text, '\t', ' ');
      text += '\t' + text_of(record, columns.pair, where);
    }
    use(text);
  }
}

TextRecords split_off(TextRecords& records, bool by_label, double share, uint64_t seed) {
  std::map<std::string, int32_t> numbers;  // of the labels, in the order of their bytes
  std::vector<int32_t> labels;
  const std::vector<std::string> texts = records.labels();
  if (by_label)
    for (const std::string& text : texts) numbers[text];
  int32_t next = 0;
  for (auto& [text, number] : numbers) number = next++;
  for (const std::string& text : texts) labels.push_back(by_label ? numbers[text] : 0);
  std::vector<bool> chosen = choose_held_out(labels, share, seed);
  std::vector<std::string> whole;
  for (const TextRecord& record : records.records) whole.push_back(record.text + '\0' + record.pair);
  keep_together(chosen, {whole.begin(), whole.end()});
  TextRecords part{.records = {}, .pairs = records.pairs}, rest = part;
  for (size_t i = 0; i < records.records.size(); ++i)
    (chosen[i] ? part : rest).records.push_back(std::move(records.records[i]));
  records = std::move(rest);
  return part;
}

}  // namespace linnet
