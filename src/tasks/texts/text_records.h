// Examples of text tasks as their files have them, before tokenization.
#pragma once
#include <functional>
#include "base/json.h"
#include "config/config.h"

namespace linnet {
struct TextRecord {
  std::string text, pair;                // pair: the second text
  std::vector<std::string> others = {};  // further texts, which do not match the first
  Json label;                            // a string in tables, any value in JSON; of several fields an object
  std::string where;                     // "path:line", for messages
};

struct TextRecords {
  std::vector<TextRecord> records;
  bool pairs = false;   // whether each record has a second text
  bool images = false;  // whether the texts are paths of images

  std::vector<std::string> labels() const;  // as text
};

std::string label_text(const Json& label);  // a string itself, any other value as JSON
// A label as a finite number. User error beginning with `where` if it is none.
double number_of(const Json& label, const std::string& where);
// The end of a message about a label in line 1 of a table, which may be its heading; "" for others.
const char* heading_hint(const std::string& where);

// Reads a table or JSON lines (data/examples/text/record_reader.h). Fields are data.text_column, pair_column and
// label_column, else those with usual names ("text", "sentence1", "label", ... in any letter case), else, in a table
// without heading, the first is the text, the last the label, and a second text is between. label_column may name
// several fields ("toxic,insult"). Spaces around labels are ignored. User error naming the line for a record without
// text or label.
TextRecords read_text_records(const std::string& path, const DataConfig& data);

// Calls use(text) for each text to label: in a table or JSON lines the field as in read_text_records(); in other files
// each line. Pairs have a tab between their texts. User error naming the line for a record without text.
using UseText = std::function<void(const std::string& text)>;
void for_each_text(const std::string& path, const DataConfig& data, bool pairs, const UseText& use);

// The same for images: a file relative to the table's folder ("file", "image", "path", ...) and a label, which
// for_each_image() does not need. User error naming the line for a missing file.
TextRecords read_image_records(const std::string& path, const DataConfig& data);
void for_each_image(const std::string& path, const DataConfig& data, const UseText& use);

// Related texts: pairs, with or without a number as label, or texts with negatives ("negative", "negative_1",
// "negatives", which may be a list). Without a heading a table's third field is a number or a negative.
TextRecords read_related_texts(const std::string& path, const DataConfig& data);
// The texts of such a file, pairs with a tab between them; in other files each line.
void for_each_related_text(const std::string& path, const DataConfig& data, const UseText& use);

// Moves a share of the records out, with `by_label` of each label alike (choose_held_out()).
TextRecords split_off(TextRecords& records, bool by_label, double share, uint64_t seed);
}  // namespace linnet
