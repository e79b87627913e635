#include "text/whole_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/error.h"

namespace linnet {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor() { close(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  operator int() const { return value_; }
  // False when the file system reports a write it had delayed.
  bool close() {
    const int value = value_;
    value_ = -1;
    return value < 0 || ::close(value) == 0;
  }

 private:
  int value_;
};

bool write_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t wrote = ::write(descriptor, bytes.data(), bytes.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return false;
    bytes.remove_prefix(static_cast<size_t>(wrote));
  }
  return true;
}

// The rename itself is only durable once the folder that holds the name is.
void sync_folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == path.npos ? "." : path.substr(0, slash + 1);
  const Descriptor descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (descriptor >= 0) ::fsync(descriptor);
}

}  // namespace

std::string read_whole_file(const std::string& path) {
  const Descriptor descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (descriptor < 0) fail_user("cannot read '" + path + "': " + std::strerror(errno));
  std::string bytes;
  char buffer[1 << 16];
  for (;;) {
    const ssize_t got = ::read(descriptor, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_user("cannot read '" + path + "': " + std::strerror(errno));
    if (got == 0) return bytes;
    bytes.append(buffer, static_cast<size_t>(got));
  }
}

void write_whole_file(const std::string& path, std::string_view bytes) {
  const std::string temporary = path + ".tmp";
  Descriptor descriptor(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (descriptor < 0) fail_system("cannot write '" + temporary + "'");
  if (!write_all(descriptor, bytes) || ::fsync(descriptor) != 0 || !descriptor.close() ||
      ::rename(temporary.c_str(), path.c_str()) != 0) {
    const int code = errno;
    ::unlink(temporary.c_str());
    errno = code;
    fail_system("cannot write '" + path + "'");
  }
  sync_folder_of(path);
}

}  // namespace linnet
