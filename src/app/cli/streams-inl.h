// Lines to standard output, and from standard input or files. Write errors show at a flush, at the latest in main().
#pragma once
#include <fmt/format.h>
#include <cstdio>
#include <functional>
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

// Standard input, line by line, of any length.
class InputLines {
 public:
  // `asks`: the command prompts for each line, and needs no hint at a terminal.
  explicit InputLines(bool asks = false) : is_new_(!asks) {}
  // The next line without its "\n", valid until the next call; false at the end. User error for lines over 256 MB.
  bool next(std::string_view& line);
  // The same without a final "\r" and a byte order mark. User error with the location if it is not valid UTF-8.
  bool next_text(std::string& line);
  int64_t number() const { return number_; }  // of the last line, from 1

 private:
  bool is_new_;         // nothing was read, and the hint is still due
  std::string buffer_;  // what was read
  size_t at_ = 0;       // where its next line begins
  bool ended_ = false;
  int64_t number_ = 0;
};

// Calls visit(line, "FILE:3" or "standard input: line 3") for every line; "-" or no files: standard input.
void for_each_line(const std::vector<std::string>& files,
    const std::function<void(const std::string& line, const std::string& where)>& visit);

// Calls answer(lines) for lines of standard input, many at once, so that texts of similar length are computed together;
// at a terminal line by line. Lines before a bad one are still answered.
void answer_lines(const std::function<void(const std::vector<std::string>& lines)>& answer, size_t together = 1024);

// All of standard input. `instead`: the alternative, which ends the hint at a terminal and the error for closed input.
std::string read_standard_input(const std::string& instead);
}  // namespace linnet
