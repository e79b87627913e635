#include "base/error.h"

#include <cerrno>
#include <cstring>

namespace linnet {

void fail_user(const std::string& message) { throw Error(ErrorKind::kUser, message); }

void fail_system(const std::string& message) {
  const int code = errno;
  throw Error(ErrorKind::kSystem, code ? message + ": " + std::strerror(code) : message);
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
