// std::source_location where the compiler lacks what libstdc++ builds it from (clang 14). For clang-tidy only: nothing
// that is run is compiled with it.
#pragma once
#include <source_location>

#if !defined(__cpp_lib_source_location)
namespace std {
struct source_location {
  static constexpr source_location current(unsigned line = __builtin_LINE(), const char* file = __builtin_FILE(),
                                           const char* function = __builtin_FUNCTION()) noexcept {
    source_location here;
    here.line_ = line;
    here.file_ = file;
    here.function_ = function;
    return here;
  }
  constexpr unsigned line() const noexcept { return line_; }
  constexpr unsigned column() const noexcept { return 0; }
  constexpr const char* file_name() const noexcept { return file_; }
  constexpr const char* function_name() const noexcept { return function_; }

 private:
  unsigned line_ = 0;
  const char* file_ = "";
  const char* function_ = "";
};
}  // namespace std
#endif
