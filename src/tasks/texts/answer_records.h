// Records of questions whose answers are parts of a text.
#pragma once
#include <string>
#include <vector>
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

// The ranges of a record's label, and their texts.
std::vector<TextRange> answer_ranges(const TextRecord& record);
std::vector<std::string> answer_texts(const TextRecord& record);
}  // namespace linnet
