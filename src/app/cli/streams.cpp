#include <fcntl.h>
#include <poll.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include "app/cli/streams-inl.h"
#include "base/log.h"
#include "base/process.h"
#include "data/examples/text/record_reader.h"
#include "data/text/unicode/utf8.h"

namespace linnet {
namespace {
void begin_standard_input(const std::string& instead) {
  if (::fcntl(STDIN_FILENO, F_GETFD) < 0) fail_user("standard input is closed", instead);
  if (::isatty(STDIN_FILENO)) log_info("reading from the terminal; Ctrl-D on a line of its own ends it" + instead);
}

// False once a signal requests a stop, which poll() notices and read() does not (SA_RESTART).
bool wait_for_input() {
  pollfd input{STDIN_FILENO, POLLIN, 0};
  while (!stop_requested())
    if (::poll(&input, 1, -1) >= 0 || errno != EINTR) return true;
  return false;
}
}  // namespace

std::string read_standard_input(const std::string& instead) {
  begin_standard_input(instead);
  std::string text;
  char buffer[1 << 16];
  // Not after an end of input: a terminal would have to be ended twice.
  do text.append(buffer, std::fread(buffer, 1, sizeof buffer, stdin));
  while (!std::feof(stdin) && !std::ferror(stdin));
  if (std::ferror(stdin)) fail_errno("cannot read standard input");
  return text;
}

bool InputLines::next(std::string_view& line) {
  constexpr size_t kPart = 1 << 16, kLongest = 256'000'000;
  if (std::exchange(is_new_, false)) begin_standard_input("");
  size_t searched = at_, end;
  while ((end = buffer_.find('\n', searched)) == buffer_.npos && !ended_) {
    if (buffer_.size() - at_ > kLongest) fail_user("standard input: line ", number_ + 1, " has more than 256 MB");
    buffer_.erase(0, at_);
    at_ = 0, searched = buffer_.size();
    buffer_.resize(searched + kPart);
    const ssize_t size = wait_for_input() ? ::read(STDIN_FILENO, buffer_.data() + searched, kPart) : 0;
    if (size < 0) fail_errno("cannot read standard input");
    buffer_.resize(searched + static_cast<size_t>(size));
    ended_ = size == 0;
  }
  if (at_ == buffer_.size()) return false;
  line = std::string_view(buffer_).substr(at_, end == buffer_.npos ? end : end - at_);
  at_ = std::min(end, buffer_.size() - 1) + 1;
  ++number_;
  return true;
}

bool InputLines::next_text(std::string& line) {
  std::string_view text;
  if (!next(text)) return false;
  if (text.ends_with('\r')) text.remove_suffix(1);
  if (const size_t at = invalid_utf8_at(text); at != std::string_view::npos)
    fail_user("standard input: line ", number_, ", byte ", at + 1, ": not valid UTF-8");
  line = number_ == 1 ? without_mark(text) : text;
  return true;
}

void answer_lines(const std::function<void(const std::vector<std::string>& lines)>& answer, size_t together) {
  if (::isatty(STDIN_FILENO)) together = 1;
  std::vector<std::string> lines;
  const auto flush = [&] {
    if (!lines.empty()) answer(lines);
    lines.clear();
  };
  InputLines input;
  try {
    for (std::string line; input.next_text(line);) {
      lines.push_back(std::move(line));
      if (lines.size() == together) flush();
    }
  } catch (const Error&) {
    flush();
    throw;
  }
  flush();
}

void for_each_line(const std::vector<std::string>& files,
    const std::function<void(const std::string& line, const std::string& where)>& visit) {
  std::string line;
  for (const std::string& path : files.empty() ? std::vector<std::string>{"-"} : files) {
    if (path == "-") {
      InputLines input;
      while (input.next_text(line)) visit(line, "standard input: line " + std::to_string(input.number()));
    } else {
      LineReader reader(path);
      while (reader.next(line)) visit(line, reader.where());
    }
  }
}
}  // namespace linnet
