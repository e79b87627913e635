// Records of texts with marked parts: answers to questions, and words with tags.
#pragma once
#include "data/text/pretrained_tokenizer.h"
#include "tasks/texts/text_records.h"

namespace linnet {
// Reads a SQuAD file (1.1 or 2, plain or gzip), one JSON object with "data"; or JSON lines with "question", "context"
// and "answers": a list of {"text", "answer_start"} or of texts, or {"text": [...], "answer_start": [...]} as in
// datasets; empty for no answer. Starts count code points; by default the text's first occurrence. A record's text is
// the question, its pair the context, its label a list of [begin, end] in bytes of the context. User error naming the
// record for an answer not in the context.
TextRecords read_answers(const std::string& path, const DataConfig& data);

// Calls use() with each question, a tab and its context, labeled or not; for another file with each line.
void for_each_question(const std::string& path, const DataConfig& data, const UseText& use);

// Reads a list of [begin, end].
std::vector<TextRange> text_ranges(const Json& list);
// The texts of the ranges that are a record's label.
std::vector<std::string> answer_texts(const TextRecord& record);

// Byte ranges of runs of letters, digits and marks; any other character except spaces is a word by itself.
std::vector<TextRange> split_words(const std::string& text);

// Reads texts with labels {"words": [[begin, end], ...], "tags": [...]}, ranges in bytes. Lines of a .jsonl file have
// "tokens" and "tags" (or "ner_tags"), one for each; or "text" and "entities" (or "spans", "label"), each {"start",
// "end", "label"} or [start, end, label], in code points. Other files have a word and its tag on each line, in the
// first and last column, and a blank line after each text (CoNLL); lines "# ..." before a text, with another number of
// columns or a "=", are comments. User errors name the line.
TextRecords read_tagged_texts(const std::string& path, const DataConfig& data);

// The texts of such a file, which may lack tags: JSON "tokens" joined by spaces, or "text"; the first column of .conll,
// .iob, .iob2, .bio and .bioes files; of other files as for_each_text().
void for_each_text_of_words(const std::string& path, const DataConfig& data, const UseText& use);
}  // namespace linnet
