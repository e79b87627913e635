// Manual pages in the format of man(7).
#pragma once
#include <string>
#include <vector>

#include "app/cli/command_description.h"

namespace linnet {

// "linnet-tokenizer-train" for {"tokenizer", "train"}.
std::string man_page_name(const std::vector<std::string>& path);
std::string man_page(const CommandDescription& root, const std::vector<std::string>& path);

}  // namespace linnet
