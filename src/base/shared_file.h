// A file that is mapped for reading and whose pages can take the place of memory that was reserved before: processes
// that map the same file share its pages.
#pragma once
#include <cstddef>
#include <span>
#include <string>

namespace linnet {

class SharedFile {
 public:
  // Errors are those of MappedFile (base/files.h).
  explicit SharedFile(const std::string& path);
  ~SharedFile();
  SharedFile(const SharedFile&) = delete;
  SharedFile& operator=(const SharedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  // Gives back the pages that were read through bytes(); reading again brings them back.
  void drop_pages() const;
  // Puts bytes [offset, offset + count) of the file over the memory at `at`, which must be mapped up to the end of its
  // last page. `at` and `offset` are multiples of kPage. What is written there afterwards stays in this process.
  void map_over(std::byte* at, size_t offset, size_t count) const;
  static constexpr size_t kPage = 4096;
  // User error when pages of the file, there or under map_over(), were lost (base/lost_pages.h).
  void check() const;

 private:
  const std::string path_;
  int descriptor_ = -1;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace linnet
