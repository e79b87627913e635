// Examples of tasks on texts as their files have them, before they become tokens and numbers.
#pragma once
#include <functional>
#include <string>
#include <vector>
#include "base/json.h"
#include "config/config.h"

namespace linnet {

struct TextRecord {
  std::string text, pair;                // pair: the second text
  std::vector<std::string> others = {};  // further ones, which do not go with the first
  Json label;                            // as the file has it: a string in tables, any value in JSON
  std::string where;                     // "path:line", for messages
};

struct TextRecords {
  std::vector<TextRecord> records;
  bool pairs = false;   // whether each record has a second text
  bool images = false;  // whether the texts are paths of images

  std::vector<std::string> labels() const;  // as text
};

// A label as text: a string itself, any other value as JSON writes it.
std::string label_text(const Json& label);
// A label as a finite number. User error, naming `where`, for one that is none.
double number_of(const Json& label, const std::string& where);

// Reads a table or JSON lines (data/examples/text/record_reader.h). The fields are those that data.text_column,
// data.pair_column and data.label_column name; else those with a usual name ("text", "sentence1", "label", ...); else,
// in a table without a heading, the first is the text and the last the label, and a second text is between them.
// Spaces around a label do not count. User error, naming the line, for a record without text or label.
TextRecords read_text_records(const std::string& path, const DataConfig& data);

// Calls use(text) for each text of a file that a model is asked about: of a table or JSON lines the field that
// read_text_records() would take, where no label is needed; of any other file each line. The two texts of a pair have a
// tab between them. User error, naming the line, for a record without such a text.
using UseText = std::function<void(const std::string& text)>;
void for_each_text(const std::string& path, const DataConfig& data, bool pairs, const UseText& use);

// The same of images: the fields are a file, which lies relative to the table's folder, ("file", "image", "path", ...)
// and a label. User error, naming the line, for a file that is not there. What is asked about needs no label.
TextRecords read_image_records(const std::string& path, const DataConfig& data);
void for_each_image(const std::string& path, const DataConfig& data, const UseText& use);

// Texts that belong together: pairs, with a number as label or none, or triplets, whose further texts ("negative",
// "negative_1", "negatives", which may be a list) do not. In a table without a heading the third field is a number or
// such a text.
TextRecords read_related_texts(const std::string& path, const DataConfig& data);
// The texts of such a file, with a tab before the second of a pair; of any other file each line.
void for_each_related_text(const std::string& path, const DataConfig& data, const UseText& use);

// Takes a share of the records out, of each label alike where `by_label` (data/examples/held_out.h).
TextRecords split_off(TextRecords& records, bool by_label, double share, uint64_t seed);

}  // namespace linnet
