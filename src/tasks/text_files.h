// The text files of a configuration: their documents, and the part held out for validation.
#pragma once
#include "config/config.h"

namespace linnet {
bool is_token_file(const std::string& path);  // token numbers instead of text (.bin)

// The path in key `key`. User error if it is empty.
std::string text_path(const Config& config, const std::string& path, const char* key);

// The text that `linnet eval` reads: `path`, or if empty that of the split "valid" (as in training) or "test". "": what
// training holds out. User error if a run's configuration names no test_text for "test".
std::string evaluated_text(const Config& config, const std::string& path, const std::string& split);

// Documents of a file or folder. `data`: has the field that holds them (text_column, else "text").
std::vector<std::string> read_texts(const DataConfig& data, const std::string& path);

// Moves the last `share` out of the texts: the last documents, or the end of a single one.
std::vector<std::string> split_end(std::vector<std::string>& texts, double share);
}  // namespace linnet
