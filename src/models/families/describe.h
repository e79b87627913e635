// A model folder in lines for people.
#pragma once
#include <string>

namespace linnet {

// Family, sizes, parameters, files, what is unused; ends with a newline. User errors as open_pretrained().
std::string describe_pretrained(const std::string& folder);

}  // namespace linnet
