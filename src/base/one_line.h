// Messages about what files hold, which may be anything.
#pragma once
#include <string>

namespace linnet {

// `message` without line breaks and control characters; of a long one, its beginning and its end.
std::string one_line(std::string message);

}  // namespace linnet
