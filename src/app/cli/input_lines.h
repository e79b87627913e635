// Standard input or files, line by line, of any length.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace linnet {

class InputLines {
 public:
  // `asks`: the command asks for each line itself, and needs no hint at a terminal.
  explicit InputLines(bool asks = false) : is_new_(!asks) {}
  // The bytes of the next line without its "\n"; false at the end. Good until the next call. User error for a line of
  // more than 256 MB.
  bool next(std::string_view& line);
  // The same as text: without "\r" before the end and without a byte order mark. User error, with the place, where it
  // is not valid UTF-8.
  bool next_text(std::string& line);
  int64_t number() const { return number_; }  // of the last line, from 1

 private:
  bool is_new_;         // nothing was read, and there is a hint to give
  std::string buffer_;  // what was read
  size_t at_ = 0;       // where the next line begins in it
  bool ended_ = false;
  int64_t number_ = 0;
};

// Calls visit(line, where) for every line of the files, or of standard input for a file "-" and when none is given.
// `where` is "FILE:3" or "standard input: line 3".
void for_each_line(const std::vector<std::string>& files,
                   const std::function<void(const std::string& line, const std::string& where)>& visit);

// Calls answer(lines) for the lines of standard input, many together, so that texts of like length can be computed
// together; at a terminal for each line at once. What came before a bad line is not lost.
void answer_lines(const std::function<void(const std::vector<std::string>& lines)>& answer, size_t together = 1024);

// All of standard input. `instead` says what the user can do otherwise; it ends the hint at a terminal and the user
// error where standard input is closed.
std::string read_standard_input(const std::string& instead);

}  // namespace linnet
