// Files of a run folder. What the user named wrongly (missing, a folder instead of a file) is a user error; what the
// machine refuses (full disk, read-only) is a system error. Each is one line that holds the path.
#pragma once
#include <unistd.h>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace linnet {
// A file descriptor that closes itself.
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
  int release() { return std::exchange(value_, -1); }  // leaves the file open
  // Returns false if the file system reports a write it had delayed.
  bool close() {
    const int value = release();
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

std::string read_file(const std::string& path);      // a regular file: a pipe or device would be waited for
std::string text_if_there(const std::string& path);  // "" if there is no such file
std::string read_input(const std::string& path);     // a pipe, too, to its end
bool file_exists(const std::string& path);           // a file, folder or anything else of that name
std::string path_in(const std::string& folder, const std::string& name);  // the name alone if the folder is ""
void make_directories(const std::string& path);                           // also its parents; existing ones stay
// Bytes that an ordinary user may still write on the file system of `path` or of its nearest parent that exists.
uint64_t free_disk_bytes(const std::string& path);
// Throws Error(kUser), "WHAT needs N MBUSE, ...", if fewer than `need` bytes are free. `use`: " for its checkpoints".
void check_free_disk(const std::string& path, uint64_t need, const std::string& what, const std::string& use = "");

// Replaces a file, or the one that links lead to, in one step: after any interruption it has the old contents or the
// new. The bytes go to its path + ".tmp"; a crash leaves at most that file, which the next writer overwrites.
class AtomicFile {
 public:
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();  // without commit(): removes the temporary file

  void write(const void* bytes, size_t size);
  void write(std::string_view text) { write(text.data(), text.size()); }
  // Syncs and closes the temporary file. For files that belong together, call it for all before the first commit().
  void finish();
  // Calls finish() if needed, renames the file and syncs the folder: the new contents survive a power cut.
  void commit();

 private:
  [[noreturn]] void fail();

  std::string path_, target_, temporary_;  // target_: where links from path_ lead
  Descriptor descriptor_;
  bool is_device_ = false;  // or a pipe or an open file: written as it is, as a renamed file would take its name away
  bool committed_ = false;
};

void write_file_atomically(const std::string& path, std::string_view text);

// Holds `folder`/.lock while it lives; the kernel releases it when the process ends. A folder held by someone else is
// the user error "run folder X is in use by process PID".
class FolderLock {
 public:
  explicit FolderLock(const std::string& folder);
  // User error if the folder was removed or replaced since: files written now would mix with another process's.
  void check() const;

 private:
  std::string folder_;
  Descriptor descriptor_;  // the file stays: a process that waits for it would hold another than one that makes it anew
};

// A file mapped read-only: pages are read when touched, and the system may drop them.
class MappedFile {
 public:
  MappedFile() = default;  // nothing
  explicit MappedFile(const std::string& path);

  const std::byte* data() const { return data_.get(); }  // aligned to a page; null when the file is empty
  size_t size() const { return data_ ? size_ : 0; }
  std::span<const std::byte> bytes() const { return {data(), size()}; }
  // Gives read pages back to the system, which counts them as ours; access reads them again.
  void drop_pages() const;

 protected:
  MappedFile(const std::string& path, Descriptor& descriptor);  // which stays open
  std::shared_ptr<const std::byte> data_;
  size_t size_ = 0;
};

// Its pages can replace memory that was reserved before: processes that map the same file share them.
class SharedFile : public MappedFile {
 public:
  explicit SharedFile(const std::string& path) : SharedFile(path, Descriptor()) {}
  // Maps bytes [offset, offset + count) of the file over the memory at `at`, which must be mapped up to the end of its
  // last page. `at` and `offset` are multiples of kPage. Writes to it stay in this process.
  void map_over(std::byte* at, size_t offset, size_t count) const;
  static constexpr size_t kPage = 4096;
  // Throws a user error if pages of the file, here or under map_over(), were lost.
  void check() const;

 private:
  SharedFile(const std::string& path, Descriptor opened)
      : MappedFile(path, opened), path_(path), descriptor_(std::move(opened)) {}

  std::string path_;
  Descriptor descriptor_;
};

// A file of lines that grows while others may read it. A line is one write(2), so readers and crashes see it whole; a
// line that a full disk cut short is removed before the error is reported.
class AppendFile {
 public:
  explicit AppendFile(const std::string& path);

  void write_line(std::string_view line);  // adds the newline
  uint64_t size() const { return size_; }  // bytes
  // Removes everything after the first `bytes` bytes. A shorter file is a user error.
  void truncate_to(uint64_t bytes);
  void sync();  // what was written survives a power cut

 private:
  std::string path_, line_;
  Descriptor descriptor_;
  uint64_t size_ = 0;
};

// A folder that the destructor removes.
class TemporaryFolder {
 public:
  // `beginning`: the beginning of the path, made unique by a suffix. Its parent exists.
  explicit TemporaryFolder(const std::string& beginning);
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// A folder for new files, made with its parents. The destructor removes it if empty: a failed command leaves none.
class OutputFolder {
 public:
  explicit OutputFolder(const std::string& path) : path_(path) { make_directories(path); }
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

 private:
  std::string path_;
};

// A hint to append to the error that `path` is no readable model: how to get a model folder for a name on the Hugging
// Face Hub ("org/name") or PyTorch's weights. "" for other paths.
std::string missing_model_hint(const std::string& path);

// Mapped files that become shorter or unreadable while in use. The system answers an access to such a page with SIGBUS,
// which ends the process. After catch_lost_pages() the page reads as zeros and the mapping counts as damaged; callers
// must check it before they use what they computed. A mapping is identified by the address of the file's first byte.
// Its owner watches it and every other range of memory with pages of the file.
// For programs, at their start. A library must not change its host's signal handlers.
void catch_lost_pages();

// [begin, begin + bytes) holds pages of the file at `path` that is mapped at `mapping`. Beyond some thousand ranges at
// a time further ones are not watched.
void watch_pages(const std::string& path, const void* mapping, const void* begin, size_t bytes);
void unwatch_pages(const void* mapping);  // before the mapping is given back
// Throws a user error that names the file if the mapping has lost a page; null: if any of this process has.
void check_lost_pages(const void* mapping = nullptr);

uint64_t count_lost_pages();  // counts lost pages in ranges that were intact before

// Files inside another file: "model.linnet" is read like a folder, so "model.linnet/config.json" names a file inside
// the packed model (formats/packed_model.h). read_file() and file_exists() look there if a part of the path is no
// folder.
constexpr const char* kPackedEnding = ".linnet";
constexpr const char* kGgufEnding = ".gguf";  // files of llama.cpp (models/families/gguf.h)
// A file made from other packed files (data/text/pipeline/tokenizer_tables.h), of no use outside.
constexpr const char* kTokenizerTables = "tokenizer.tables";

// `data` points into a mapping that `owner` keeps.
struct PackedFiles {
  std::shared_ptr<const void> owner;
  std::map<std::string, std::string_view> files;  // by path inside: "1_Pooling/config.json"
  bool has_weights = false;                       // read as "model.safetensors"
  // Throws a user error if the weights differ from those that were packed. Other files are checked when they are
  // opened; weights, nearly all of the bytes, only by this.
  void check() const {
    if (check_weights) check_weights();
  }
  std::function<void()> check_weights = {};  // empty: they have been compared
  bool has_folder(const std::string& inside) const;
};

// Reads files with that ending. Before a reader is set, such a file is no folder. User error for a damaged file.
using PackedReader = PackedFiles (*)(const std::string& path);
void set_packed_reader(const char* ending, PackedReader reader);

bool is_packed(const std::string& path);  // whether a regular file of that name is read as a folder
bool is_gguf(const std::string& path);
// Cached until the file changes or four others have been opened.
std::shared_ptr<const PackedFiles> open_packed(const std::string& path);

// "a/model.linnet/config.json" is {"a/model.linnet", "config.json"}; both are empty if the path has no such file.
struct PackedPath {
  std::string packed, inside;
};
PackedPath split_packed_path(const std::string& path);

bool is_folder(const std::string& path);  // or a file that is read like one
}  // namespace linnet
