// Texts whose words have tags.
#pragma once
#include <string>
#include <vector>
#include "data/text/pretrained_tokenizer.h"
#include "tasks/texts/text_records.h"

namespace linnet {
// Byte ranges of runs of letters, digits and marks; any other character except spaces is a word by itself.
std::vector<TextRange> split_words(const std::string& text);

// Reads texts with labels {"words": [[begin, end], ...], "tags": [...]}, ranges in bytes. Lines of a .jsonl file have
// "tokens" and "tags" (or "ner_tags"), one for each; or "text" and "entities" (or "spans", "label"), each {"start",
// "end", "label"} or [start, end, label], in code points. Other files have a word and its tag on each line, in the
// first and last column, and a blank line after each text (CoNLL). User errors name the line.
TextRecords read_tagged_texts(const std::string& path, const DataConfig& data);

// The texts of such a file, which may lack tags: JSON "tokens" joined by spaces, or "text"; the first column of .conll,
// .iob, .iob2, .bio and .bioes files; of other files as for_each_text().
void for_each_text_of_words(const std::string& path, const DataConfig& data, const UseText& use);
}  // namespace linnet
