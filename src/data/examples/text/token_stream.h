// A long run of tokens: in memory, or in a file of 16- or 32-bit numbers that is mapped and never read whole.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>
#include "base/function_ref.h"

namespace linnet {

class TokenStream {
 public:
  // Tokens in [0, vocab_size), kept in 16 bits each where that is enough.
  TokenStream(const std::vector<int32_t>& tokens, int64_t vocab_size);
  // A file of little-endian numbers of `bytes_each` (2 or 4), nothing else. User error when its size is no multiple.
  TokenStream(const std::string& path, int bytes_each, int64_t vocab_size);

  int64_t size() const { return size_; }
  // Tokens [first, first + count). One outside of the vocabulary is a user error that names its place.
  void read(int64_t first, int64_t count, int32_t* out) const;
  // The part [first, first + count) as a stream of the same memory.
  TokenStream part(int64_t first, int64_t count) const;
  // Gives pages of a mapped file back, so that they do not count as this process's memory.
  void drop_pages() const;

 private:
  struct Storage;

  std::shared_ptr<const Storage> storage_;
  const void* data_ = nullptr;
  int bytes_each_ = 2;
  int64_t size_ = 0, vocab_size_ = 0, first_ = 0;  // first_: of the file, for messages
};

// Text for language models: documents of a file or folder.

// Whether there are several: a folder, or a file whose name says that it has records (record_reader.h), one document
// each. A .json file may also be a list of objects.
bool has_documents(const std::string& path);

// Calls `document` with each document: the field `key` of each record, or any other file whole, its line ends as "\n";
// of a folder, of the files with texts in it and below it, by name. Plain or gzip, UTF-8. Every problem is a user error
// that names file and line (see LineReader).
void read_documents(const std::string& path, const std::string& key, FunctionRef<void(std::string text)> document);

}  // namespace linnet
