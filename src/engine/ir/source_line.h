// The line of a model's code that made a node, for error messages, dumps and profiles.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace linnet {
// A line of a source file. The strings live as long as the process: they are compiler literals or interned.
struct SourceLine {
  const char* file = "";      // the file's path as the compiler was given it
  uint32_t line = 0;          // counted from 1
  const char* function = "";  // the function's name

  // The caller's line, as the default argument of a function.
  static constexpr SourceLine current(const char* file = __builtin_FILE(), uint32_t line = __builtin_LINE(),
      const char* function = __builtin_FUNCTION()) {
    return {file, line, function};
  }
  std::string text() const;  // "gpt.cpp:57", without the folder
};

// A line known only at run time, such as one read from a file. Each string is stored once and never freed.
SourceLine intern_source_line(std::string_view file, uint32_t line, std::string_view function);
}  // namespace linnet
