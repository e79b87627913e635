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
