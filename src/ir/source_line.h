// The line of a model's code that made a node, for error messages, dumps and profiles.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace linnet {

// The strings live as long as the process: they are literals of the compiler or interned.
struct SourceLine {
  const char* file = "";
  uint32_t line = 0;
  const char* function = "";

  // The caller's line, as the default argument of a function.
  static constexpr SourceLine current(const char* file = __builtin_FILE(), uint32_t line = __builtin_LINE(),
                                      const char* function = __builtin_FUNCTION()) {
    return {file, line, function};
  }
  std::string text() const;  // "gpt.cpp:57"; the file's folder is left out
};

// The same for a line that is known only at run time, as one read from a file. Equal strings are kept once, for ever.
SourceLine intern_source_line(std::string_view file, uint32_t line, std::string_view function);

}  // namespace linnet
