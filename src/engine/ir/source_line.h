// The line of a model's code that made a node, for error messages, dumps and profiles.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace linnet {

// A line of a source file. The strings live as long as the process: they are literals of the compiler or interned.
struct SourceLine {
  // The path of the file as the compiler was given it.
  const char* file = "";
  // The line's number, counted from 1.
  uint32_t line = 0;
  // The name of the function.
  const char* function = "";

  // The caller's line, as the default argument of a function.
  static constexpr SourceLine current(const char* file = __builtin_FILE(), uint32_t line = __builtin_LINE(),
                                      const char* function = __builtin_FUNCTION()) {
    return {file, line, function};
  }
  // The line as messages show it: "gpt.cpp:57". The file's folder is left out.
  std::string text() const;
};

// A line that is known only at run time, such as one read from a file. Each string is stored once and never freed.
SourceLine intern_source_line(std::string_view file, uint32_t line, std::string_view function);

}  // namespace linnet
