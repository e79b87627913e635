// Files as a run folder needs them: read whole or mapped, replaced in one step, appended to by lines, locked.
//
// What the user named wrongly (missing, unreadable, a folder where a file belongs) is a user error; what the machine
// refuses (full disk, read-only file system) is a system error. Either is one line that holds the path.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace linnet {

std::string read_file(const std::string& path);   // a regular file: a pipe or device would be waited for
std::string read_input(const std::string& path);  // a pipe, too, to its end
bool file_exists(const std::string& path);        // a file, folder or anything else of that name
// The folder and all its parents; existing ones are left alone.
void make_directories(const std::string& path);
// What an ordinary user may still write on the file system of `path` or, where it does not exist yet, of its nearest
// parent that does.
uint64_t free_disk_bytes(const std::string& path);
// Throws Error(kUser), "WHAT needs N MBUSE, ...", where that is less than `need` bytes. `use`: " for its checkpoints".
void check_free_disk(const std::string& path, uint64_t need, const std::string& what, const std::string& use = "");

// Replaces a file in one step: whatever interrupts, `path` holds the old contents or the new. The bytes go to
// path + ".tmp"; a crash leaves at most that one file, which the next writer overwrites.
class AtomicFile {
 public:
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();  // without commit(): removes the temporary file
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* bytes, size_t size);
  void write(std::string_view text) { write(text.data(), text.size()); }
  // Syncs and closes the temporary file, for files that are only together of use: what can fail has been done before
  // the first of them is committed.
  void finish();
  // finish(), if it was not called; renames the file and syncs the folder: afterwards the new contents survive a power
  // cut.
  void commit();

 private:
  [[noreturn]] void fail();

  std::string path_, temporary_;
  int descriptor_ = -1;
  bool is_device_ = false;  // or a pipe: written as it is, because a renamed file would take its name away
  bool committed_ = false;
};

void write_file_atomically(const std::string& path, std::string_view text);

// Holds `folder`/.lock for as long as it lives. The kernel releases it when the process ends, however it ends. A folder
// held by someone else is the user error "run folder X is in use by process PID".
class FolderLock {
 public:
  explicit FolderLock(const std::string& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int descriptor_ = -1;
};

// A file mapped read-only: pages are read when touched, and the system may drop them again.
class MappedFile {
 public:
  MappedFile() = default;  // nothing
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  const std::byte* data() const { return data_; }  // aligned to a page; null when the file is empty
  size_t size() const { return size_; }
  // Gives read pages back to the system, which counts them as ours; reading again brings them back.
  void drop_pages() const;

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// A file of lines, such as metrics.jsonl, that grows while others may be reading it. A line is one write(2), so readers
// and crashes see it whole; a line that a full disk cut short is taken back before the error is reported.
class AppendFile {
 public:
  explicit AppendFile(const std::string& path);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  void write_line(std::string_view line);  // adds the newline
  uint64_t size() const { return size_; }  // bytes
  // Forgets all that was written after the first `bytes` bytes. A file that is shorter already is a user error.
  void truncate_to(uint64_t bytes);
  void sync();  // what was written survives a power cut

 private:
  std::string path_, line_;
  int descriptor_ = -1;
  uint64_t size_ = 0;
};

// What to do where a path is no model that can be read.

// To be appended to an error about `path`: how to get a model folder of a name on the Hugging Face Hub ("org/name") or
// of PyTorch's weights. "" for other paths.
std::string missing_model_hint(const std::string& path);

}  // namespace linnet
