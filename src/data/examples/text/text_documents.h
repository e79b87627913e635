// Text for language models: documents of a file.
#pragma once
#include <string>

#include "base/function_ref.h"

namespace linnet {

// Whether the file's name says that it holds JSON objects, one document each: .jsonl or .ndjson, one on each line;
// .json, also a list of them. Each may end with .gz, too; letter case does not matter.
bool is_json_lines(const std::string& path);

// Calls `document` with each document: the string `key` of each JSON object, or any other file whole,
// its line ends as "\n". Plain or gzip, UTF-8. Every problem is a user error that names file and line (see LineReader).
void read_documents(const std::string& path, const std::string& key, FunctionRef<void(std::string text)> document);

}  // namespace linnet
