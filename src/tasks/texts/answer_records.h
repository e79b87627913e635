// Questions whose answers are parts of a text, as files have them.
#pragma once
#include <string>
#include <vector>
#include "data/text/pretrained_tokenizer.h"
#include "tasks/texts/text_records.h"

namespace linnet {

// Reads a file of SQuAD's form, one JSON object with "data", of version 1.1 or 2, plain or gzip; or JSON lines with
// "question", "context" and "answers": a list of {"text", "answer_start"} or of texts, or {"text": [...],
// "answer_start": [...]} as datasets has it; none where the text has no answer. Starts count code points. Without one
// an answer is where its text is found first. A record's text is the question, its pair the context and its label a
// list of [begin, end], in bytes of the context. User error naming the record for an answer that is not there.
TextRecords read_answers(const std::string& path, const DataConfig& data);

// The questions of such a file with a tab and the context behind each, whether it has answers or not; of another file
// each line.
void for_each_question(const std::string& path, const DataConfig& data, const UseText& use);

// The ranges of a record's label, and the texts there.
std::vector<TextRange> answer_ranges(const TextRecord& record);
std::vector<std::string> answer_texts(const TextRecord& record);

}  // namespace linnet
