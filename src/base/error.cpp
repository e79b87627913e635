#include "base/error.h"

#include <cerrno>
#include <cstring>

namespace linnet {

namespace {

// Messages name what files hold, which may be anything: one line stays one line, and nothing speaks to the terminal.
std::string one_line(std::string message) {
  for (char& c : message)
    if (static_cast<unsigned char>(c) < ' ' || c == '\x7F') c = ' ';
  return message;
}

}  // namespace

void fail_user(const std::string& message) { throw Error(ErrorKind::kUser, one_line(message)); }

void fail_system(const std::string& message) {
  const int code = errno;
  throw Error(ErrorKind::kSystem, one_line(code ? message + ": " + std::strerror(code) : message));
}

void fail_internal(const std::string& message) { throw Error(ErrorKind::kInternal, message); }

int exit_code(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kUser:
    case ErrorKind::kShape:
    case ErrorKind::kSystem:
      return 2;
    case ErrorKind::kNumeric:
      return 3;
    case ErrorKind::kInternal:
      return 70;
  }
  return 70;
}

}  // namespace linnet
