// Prints lines to standard output. Write errors show at a flush, at the latest in main().
#pragma once
#include <fmt/format.h>
#include <cstdio>
#include "base/fail.h"
#include "base/json.h"

namespace linnet {
inline void print_text(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); }

template <class... Values> void print(fmt::format_string<Values...> format, Values&&... values) {
  print_text(fmt::format(format, std::forward<Values>(values)...));
}

inline void print_json(const Json& json) { print_text(json.dump() + "\n"); }

inline double megabytes(auto bytes) { return static_cast<double>(bytes) / 1e6; }

// Flushes the output; system error if it cannot be written.
inline void flush_output(const char* problem = "cannot write to standard output") {
  if (std::fflush(stdout) != 0) fail_errno(problem);
}
}  // namespace linnet
