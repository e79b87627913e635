// The one exception type of Linnet.
#pragma once
#include <stdexcept>
#include <string>

namespace linnet {
// What went wrong. The kind decides the exit code of the command line.
enum class ErrorKind {
  kUser,      // bad input: a file, a configuration, an argument            -> exit code 2
  kShape,     // tensors whose shapes do not fit, found while tracing       -> exit code 2
  kNumeric,   // a loss or gradient that is not finite                      -> exit code 3
  kSystem,    // the machine refuses: disk full, out of memory, read-only   -> exit code 2
  kInternal,  // a broken invariant of Linnet itself                        -> exit code 70
};
// The exception that every function throws. what() is one line that says what to do.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}  // one line
  ErrorKind kind() const { return kind_; }                                                         // what went wrong

 private:
  ErrorKind kind_;
};

[[noreturn]] void fail_user(const std::string& message);      // throws Error(kUser)
[[noreturn]] void fail_system(const std::string& message);    // throws Error(kSystem)
[[noreturn]] void fail_errno(const std::string& message);     // fail_system() with the text of errno, if it is set
[[noreturn]] void fail_internal(const std::string& message);  // throws Error(kInternal)

// The exit code a program should end with after an error of this kind.
int exit_code(ErrorKind kind);
}  // namespace linnet
