// Texts whose words have tags.
#pragma once
#include <string>
#include <vector>
#include "data/text/pretrained_tokenizer.h"
#include "tasks/texts/text_records.h"

namespace linnet {

// The words of a text, in bytes: runs of letters, digits and marks; any other character but spaces is one by itself.
std::vector<TextRange> split_words(const std::string& text);

// Reads texts whose labels are {"words": [[begin, end], ...], "tags": [...]}, with ranges in bytes. A .jsonl file has
// on each line "tokens" with "tags" (or "ner_tags"), one for each; or "text" with "entities" (or "spans", "label"),
// each
// {"start", "end", "label"} or [start, end, label], in code points. Any other file has a word and its tag on each line,
// the first and the last of its columns, and a blank line behind each text (CoNLL). Errors: user errors of one line
// that name the line.
TextRecords read_tagged_texts(const std::string& path, const DataConfig& data);

// The texts of such a file without regard to tags, which it may lack: of JSON lines "tokens" with a space between them,
// or "text"; of a .conll, .iob, .iob2, .bio or .bioes file the words of the first column; of any other file as
// for_each_text() does.
void for_each_text_of_words(const std::string& path, const DataConfig& data, const UseText& use);

}  // namespace linnet
