#include "tasks/texts/text_records.h"
#include <cmath>
#include <filesystem>
#include "base/fail.h"
#include "base/files.h"
#include "base/numbers.h"
#include "base/text.h"
#include "config/hints.h"
#include "data/examples/batch.h"
#include "data/examples/text/record_reader.h"

namespace linnet {
namespace {
using FieldNames = std::vector<std::string_view>;

const FieldNames kTexts{"text", "sentence", "sentence1", "text1", "premise", "question1", "query"},
    kPairs{"text_pair", "text2", "sentence2", "hypothesis", "question2", "passage"},
    kLabels{"label", "labels", "score", "target", "gold_label"},
    kImages{"file", "image", "path", "filename", "file_name", "filepath", "file_path", "image_path"}, kNoFields;

// Which fields of a record are what.
struct Columns {
  std::string text, pair, label;  // pair: "" for single texts
};

const std::string* find_name(const Json& record, const FieldNames& names) {
  for (const bool exact : {true, false})  // else in any letter case
    for (const std::string_view name : names)
      for (const auto& [key, value] : record.items())
        if ((exact ? key : lower_ascii(key)) == name) return &key;
  return nullptr;
}

// The fields that label_column names: one, or those between its commas.
std::vector<std::string> fields_of(const Json& record, const std::string& asked) {
  if (record.contains(asked)) return {asked};
  return mapped(split(asked, ','), [](std::string_view name) { return std::string(trimmed(name)); });
}

std::string column(
    const Json& record, const std::string& asked, const FieldNames& usual, const char* key, const std::string& where) {
  if (!asked.empty()) {
    std::string option = key;
    std::ranges::replace(option, '_', '-');
    const bool may_be_several = std::string_view(key) == "label_column";
    for (const std::string& name : may_be_several ? fields_of(record, asked) : std::vector{asked})
      if (!record.contains(name))
        fail_user(where, ": there is no field \"", name, "\", which ", key, " names",
            did_you_mean(name, mapped(record.items(), &Json::Member::key)), " (there are ",
            joined(record.items(), ", ", &Json::Member::key), "; --", option, " NAME names another)");
    return asked;
  }
  const std::string* found = find_name(record, usual);
  return found ? *found : "";
}

// NaN if it is no number.
double as_number(const Json& label) {
  if (label.is_number()) return label.get<double>();
  if (!label.is_string()) return NAN;
  std::string_view text = trimmed(label.text());
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  return parse_number<double>(text).value_or(NAN);
}

// A record's field names, for the error about a missing one.
std::string names_of(const Json& record, const std::string& where) {
  const bool is_csv = where.find(".csv:") != where.npos || where.find(".csv.gz:") != where.npos;
  return joined(record.items(), ", ", &Json::Member::key) +
         (is_csv ? "; the first line of a .csv file is its heading" : "");
}

// `images`: records have image paths instead of texts.
Columns columns_of(const DataConfig& data, bool labelled, bool images, const Json& record, const std::string& where) {
  const FieldNames& texts = images ? kImages : kTexts;
  Columns columns{column(record, data.text_column, texts, "text_column", where),
      column(record, data.pair_column, images ? kNoFields : kPairs, "pair_column", where),
      column(record, data.label_column, kLabels, "label_column", where)};
  const size_t fields = record.size();
  if (columns.text.empty() && columns.label.empty() && record.contains("1") &&
      record.contains(std::to_string(fields))) {
    if (!labelled) return {"1", fields > 1 && !images ? "2" : "", ""};
    if (fields < 2 || fields > (images ? 2 : 3))
      fail_user(where, ": expected ", images ? "file<TAB>label" : "text<TAB>label or text<TAB>text<TAB>label",
          ", found ", fields < 2 ? "no tab" : std::to_string(fields - 1) + " tabs");
    return {"1", fields == 3 ? "2" : "", std::to_string(fields)};
  }
  if (columns.text.empty() && !labelled && fields == 1) columns.text = record.items().front().key;
  std::vector<std::string> missing;
  for (const auto& [column, name] : {std::pair(&columns.text, texts.front()), {&columns.label, kLabels.front()}})
    if (column->empty() && (labelled || column == &columns.text))
      missing.push_back(text_of_parts('"', name, '"', did_you_mean(name, mapped(record.items(), &Json::Member::key))));
  if (!missing.empty())
    fail_user(where, ": no field is called ", joined(missing, " or "), " (there are ", names_of(record, where), "); ",
        "--text-column NAME ", labelled ? "and --label-column NAME say which" : "says which");
  return columns;
}

const Json& record_value(const Json& record, const std::string& name, const std::string& where) {
  const Json* value = record.find(name);
  if (!value || value->is_null())
    fail_user(where, value ? ": \"" : ": there is no \"", name, value ? "\" is null" : "\"");
  return *value;
}

std::string record_text(const Json& record, const std::string& name, const std::string& where) {
  const Json& value = record_value(record, name, where);
  if (!value.is_string()) fail_user(where, ": \"", name, "\" is no text");
  return value.text();
}

// Of several fields an object with the label of each.
Json record_label(const Json& record, const std::string& name, const std::string& where) {
  if (const std::vector<std::string> fields = fields_of(record, name); fields.size() > 1) {
    Json labels = Json::object();
    for (const std::string& field : fields) labels[field] = record_label(record, field, where);
    return labels;
  }
  const Json& value = record_value(record, name, where);
  return value.is_string() ? Json(trimmed(value.text())) : value;
}

// A record, the columns found in the first record, and its location for messages.
struct Row {
  const Json& record;
  const Columns& columns;
  const std::string& where;

  std::string text(const std::string& name) const { return record_text(record, name, where); }
  std::string pair() const { return with_tab(text(columns.text), text(columns.pair)); }
};

// Calls use(row) for each record. `headings`: names that mark a tab-separated file's first line as heading, beside
// those in `data`. `choose(record, where)` returns the columns.
template <class Choose, class Use> void for_each_row(const std::string& path,
    std::initializer_list<const FieldNames*> headings, const DataConfig& data, const Choose& choose, const Use& use) {
  FieldNames heading;
  for (const FieldNames* names : headings) heading.insert(heading.end(), names->begin(), names->end());
  for (const std::string* asked : {&data.text_column, &data.pair_column, &data.label_column})
    if (!asked->empty()) heading.push_back(*asked);
  for (const std::string_view name : split(data.label_column, ','))
    if (!name.empty()) heading.push_back(trimmed(name));
  RecordReader reader(path, heading);
  Columns columns;
  for (Json record; reader.next(record);) {
    if (columns.text.empty()) columns = choose(record, reader.where_named());
    use(Row{record, columns, reader.where()});
  }
}

TextRecords read_labelled(const std::string& path, const DataConfig& data, bool images) {
  TextRecords found{.images = images};
  std::string text_column;
  for_each_row(path, {&kLabels}, data, std::bind_front(columns_of, data, true, images), [&](const Row& row) {
    found.pairs = !row.columns.pair.empty(), text_column = row.columns.text;
    found.records.push_back({.text = row.text(row.columns.text),
        .pair = found.pairs ? row.text(row.columns.pair) : "",
        .label = record_label(row.record, row.columns.label, row.where),
        .where = row.where});
  });
  if (found.records.empty()) fail_user("'", path, "' has no labelled lines");
  if (std::ranges::all_of(found.records, [](const TextRecord& record) { return trimmed(record.text).empty(); }))
    fail_user("'", path, "': the field \"", text_column, "\" is empty in every record");
  return found;
}

// An image path in the table `path`, relative to the current directory.
std::string image_path(const std::string& path, const std::string& image, const std::string& where) {
  if (trimmed(image).empty()) fail_user(where, ": the name of the image is empty");
  const std::string file = (std::filesystem::path(path).parent_path() / trimmed(image)).string();
  if (!file_exists(file)) fail_user(where, ": there is no image '", file, "'");
  return file;
}

const FieldNames kFirsts{
    "anchor", "query", "question", "text", "sentence", "sentence1", "text1", "premise", "question1"},
    kSeconds{"positive", "answer", "passage", "document", "context", "response", "sentence2", "text2", "hypothesis",
        "question2", "text_pair"},
    kScores{"score", "label", "similarity", "similarity_score"};
constexpr std::string_view kOther = "negative";

// Further fields are negatives of the first text, unless the third is a number.
Columns related_columns(const DataConfig& data, bool pairs, const Json& record, const std::string& where) {
  Columns columns{column(record, data.text_column, kFirsts, "text_column", where),
      column(record, data.pair_column, kSeconds, "pair_column", where),
      column(record, data.label_column, kScores, "label_column", where)};
  if (columns.text.empty() && record.contains("1") && record.contains(std::to_string(record.size()))) {
    columns.text = "1", columns.pair = record.contains("2") ? "2" : "";
    const Json* third = record.find("3");
    if (third && columns.label.empty() && record.size() == 3 && !std::isnan(as_number(*third))) columns.label = "3";
  }
  if (columns.text.empty() && !pairs && record.size() == 1) columns.text = record.items().front().key;
  if (columns.text.empty() || (pairs && columns.pair.empty()))
    fail_user(where, ": no field is called \"", columns.text.empty() ? "anchor" : "positive", "\" (there are ",
        names_of(record, where), "); --", columns.text.empty() ? "text" : "pair", "-column NAME says which");
  return columns;
}

std::vector<std::string> other_texts(const Json& record, const Columns& columns, const std::string& where) {
  std::vector<std::string> others;
  for (const auto& [key, value] : record.items()) {
    const bool unnamed = columns.text == "1" && key != columns.text && key != columns.pair && key != columns.label;
    if (!unnamed && !lower_ascii(key).starts_with(kOther)) continue;
    if (!value.is_array()) others.push_back(record_text(record, key, where));
    for (const Json& text : value) {
      if (!text.is_string()) fail_user(where, ": a text of \"", key, "\" is no text");
      others.push_back(text.text());
    }
  }
  return others;
}
}  // namespace

double number_of(const Json& label, const std::string& where) {
  const double value = as_number(label);
  if (!std::isfinite(value) || std::abs(value) > 1e30)
    fail_user(where, ": the label '", label_text(label), "' is no number", heading_hint(where));
  return value;
}

const char* heading_hint(const std::string& where) {
  const bool may_be = where.ends_with(":1") && !has_json(where.substr(0, where.size() - 2));
  return may_be ? "; if line 1 is a heading, --label-column NAME says so" : "";
}

std::string label_text(const Json& label) { return label.is_string() ? label.text() : label.dump(); }

std::vector<std::string> TextRecords::labels() const {
  return mapped(records, [&](const TextRecord& record) { return label_text(record.label); });
}

TextRecords read_text_records(const std::string& path, const DataConfig& data) {
  return read_labelled(path, data, false);
}

TextRecords read_image_records(const std::string& path, const DataConfig& data) {
  TextRecords found = read_labelled(path, data, true);
  for (TextRecord& record : found.records) record.text = image_path(path, record.text, record.where);
  return found;
}

void for_each_image(const std::string& path, const DataConfig& data, const UseText& use) {
  DataConfig named = data;
  named.label_column.clear();
  for_each_row(path, {&kImages, &kLabels}, data, std::bind_front(columns_of, named, false, true),
      [&](const Row& row) { use(image_path(path, row.text(row.columns.text), row.where)); });
}

void for_each_text(const std::string& path, const DataConfig& data, bool pairs, const UseText& use) {
  if (!has_records(path)) {
    LineReader lines(path);
    for (std::string line; lines.next(line);) use(line);
    return;
  }
  DataConfig named = data;
  named.label_column.clear();  // the file may have no labels
  if (!pairs) named.pair_column.clear();
  const auto choose = [&](const Json& record, const std::string& where) {
    const Columns columns = columns_of(named, false, false, record, where);
    if (pairs && columns.pair.empty())
      fail_user(where, ": the model takes two texts, and there is one field with a text");
    return columns;
  };
  for_each_row(path, {&kTexts, &kLabels}, data, choose,
      [&](const Row& row) { use(pairs ? row.pair() : row.text(row.columns.text)); });
}

TextRecords read_related_texts(const std::string& path, const DataConfig& data) {
  TextRecords found;
  for_each_row(path, {&kFirsts, &kSeconds}, data, std::bind_front(related_columns, data, true), [&](const Row& row) {
    const auto& [record, columns, where] = row;
    TextRecord& to = found.records.emplace_back();
    to.text = row.text(columns.text), to.pair = row.text(columns.pair), to.where = where;
    if (!columns.label.empty()) to.label = number_of(record_label(record, columns.label, where), where);
    else to.others = other_texts(record, columns, where);
    if (to.others.size() != found.records[0].others.size())
      fail_user(where, ": ", to.others.size(), " negative texts, and ", found.records[0].others.size(),
          " in the first record");
    for (const std::string* text : {&to.text, &to.pair})
      if (trimmed(*text).empty()) fail_user(where, ": a text is empty");
  });
  if (found.records.empty()) fail_user("'", path, "' has no pairs of texts");
  return found;
}

void for_each_related_text(const std::string& path, const DataConfig& data, const UseText& use) {
  if (!has_records(path)) return for_each_text(path, data, false, use);
  for_each_row(path, {&kFirsts, &kSeconds}, data, std::bind_front(related_columns, data, false), [&](const Row& row) {
    std::string text = row.text(row.columns.text);
    std::ranges::replace(text, '\t', ' ');
    use(row.columns.pair.empty() ? text : row.pair());
  });
}

TextRecords split_off(TextRecords& records, bool by_label, double share, uint64_t seed) {
  std::map<std::string, int32_t> numbers;  // of labels in byte order
  const std::vector<std::string> texts = records.labels();
  if (by_label)
    for (const std::string& text : texts) numbers[text];
  int32_t next = 0;
  for (auto& [text, number] : numbers) number = next++;
  const auto number_of_label = [&](const std::string& text) { return by_label ? numbers[text] : 0; };
  std::vector<bool> chosen = choose_held_out(mapped(texts, number_of_label), share, seed);
  keep_together(chosen, mapped(records.records, [](const TextRecord& record) {
    return fnv1a(record.pair, fnv1a("\t", fnv1a(record.text)));
  }));
  TextRecords part{.records = {}, .pairs = records.pairs, .images = records.images};
  size_t kept = 0;
  for (TextRecord& record : records.records)
    if (chosen[&record - records.records.data()]) part.records.push_back(std::move(record));
    else std::swap(records.records[kept++], record);
  records.records.resize(kept);
  return part;
}
}  // namespace linnet
