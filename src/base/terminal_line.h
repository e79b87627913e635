// The one line at the bottom of a terminal that is redrawn while something goes on. It needs no escape sequences: a
// carriage return goes back to its beginning, and blanks cover what is left of a longer line.
#pragma once
#include <cstddef>
#include <string_view>

namespace linnet {

class TerminalLine {
 public:
  // The columns of the terminal that standard error is passed on to, in the environment of a process whose standard
  // error is a pipe.
  static constexpr const char* kColumns = "LINNET_COLUMNS";

  TerminalLine();  // looks at standard error
  ~TerminalLine() { clear(); }
  TerminalLine(const TerminalLine&) = delete;
  TerminalLine& operator=(const TerminalLine&) = delete;

  // False when standard error is no terminal, or one that cannot redraw a line (TERM=dumb).
  bool usable() const { return usable_; }
  // Characters that fit: one less than the columns, because the cursor needs the last one. Looked up at every call.
  size_t room() const;
  // Draws `text`, which is cut to room(). Allocates nothing.
  void draw(std::string_view text);
  void clear();

 private:
  bool usable_;
  size_t drawn_ = 0;  // characters on the line
};

}  // namespace linnet
