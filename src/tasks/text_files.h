// The files a task of plain text names: their documents, and the end that is kept for validation.
#pragma once
#include <string>
#include <vector>
#include "config/config.h"

namespace linnet {

// Numbers instead of text (.bin).
bool is_token_file(const std::string& path);

// The path of a file that `key` names. User error when it names none.
std::string text_path(const Config& config, const std::string& path, const char* key);

// The documents of a file or folder. `data`: names the field that holds them (text_column, else "text").
std::vector<std::string> read_texts(const DataConfig& data, const std::string& path);

// Takes the last `share` away from the texts: of one document its end, of several the last ones.
std::vector<std::string> split_end(std::vector<std::string>& texts, double share);

}  // namespace linnet
