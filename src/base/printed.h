// Numbers in the form that printf() gives them.
#pragma once
#include <string>

namespace linnet {
// Parts of the library for programs use it in place of fmt, which programs would have to link.
[[gnu::format(printf, 1, 2)]] std::string printed(const char* format, ...);
}  // namespace linnet
