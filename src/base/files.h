// Files of a run folder. What the user named wrongly (missing, a folder instead of a file) is a user error; what the
// machine refuses (full disk, read-only) is a system error. Each is one line that holds the path.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include "base/descriptor.h"

namespace linnet {
std::string read_file(const std::string& path);   // a regular file: a pipe or device would be waited for
std::string read_input(const std::string& path);  // a pipe, too, to its end
bool file_exists(const std::string& path);        // a file, folder or anything else of that name
void make_directories(const std::string& path);   // also its parents; existing ones stay
// Bytes that an ordinary user may still write on the file system of `path` or of its nearest parent that exists.
uint64_t free_disk_bytes(const std::string& path);
// Throws Error(kUser), "WHAT needs N MBUSE, ...", if fewer than `need` bytes are free. `use`: " for its checkpoints".
void check_free_disk(const std::string& path, uint64_t need, const std::string& what, const std::string& use = "");

// Replaces a file in one step: after any interruption `path` holds the old contents or the new. The bytes go to path +
// ".tmp"; a crash leaves at most that file, which the next writer overwrites.
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

  std::string path_, temporary_;
  Descriptor descriptor_;
  bool is_device_ = false;  // or a pipe: written as it is, because a renamed file would take its name away
  bool committed_ = false;
};

void write_file_atomically(const std::string& path, std::string_view text);

// Holds `folder`/.lock while it lives; the kernel releases it when the process ends. A folder held by someone else is
// the user error "run folder X is in use by process PID".
class FolderLock {
 public:
  explicit FolderLock(const std::string& folder);

 private:
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
  // Throws a user error if pages of the file, here or under map_over(), were lost (base/lost_pages.h).
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

// A hint to append to the error that `path` is no readable model: how to get a model folder for a name on the Hugging
// Face Hub ("org/name") or PyTorch's weights. "" for other paths.
std::string missing_model_hint(const std::string& path);
}  // namespace linnet
