// A file descriptor that closes itself, and loops that read or write everything.
#pragma once
#include <unistd.h>
#include <cerrno>
#include <cstddef>
#include <string>
#include <utility>

namespace linnet {
class Descriptor {
 public:
  explicit Descriptor(int value = -1) : value_(value) {}
  ~Descriptor() { close(); }
  Descriptor(Descriptor&& other) noexcept : value_(std::exchange(other.value_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(value_, other.value_);
    return *this;
  }
  int get() const { return value_; }
  bool open() const { return value_ >= 0; }
  // Returns false if the file system reports a write it had delayed.
  bool close() {
    const int value = std::exchange(value_, -1);
    return value < 0 || ::close(value) == 0;
  }

 private:
  int value_;
};

// Returns false, with errno set, if the file takes no more.
inline bool write_all(int descriptor, const void* bytes, size_t size) {
  const char* next = static_cast<const char*>(bytes);
  while (size > 0) {
    const ssize_t wrote = ::write(descriptor, next, size);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return false;
    next += wrote;
    size -= static_cast<size_t>(wrote);
  }
  return true;
}

// Appends the rest of the file. Returns false, with errno set, if reading fails.
inline bool read_to_end(int descriptor, std::string& bytes) {
  char buffer[1 << 16];
  for (;;) {
    const ssize_t got = ::read(descriptor, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return got == 0;
    bytes.append(buffer, static_cast<size_t>(got));
  }
}
}  // namespace linnet
