#include "data/examples/text/token_stream.h"

#include <bit>

#include "base/error.h"
#include "base/files.h"
#include "base/lost_pages.h"

namespace linnet {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are read as they lie");
constexpr int64_t kSmall = 1 << 16;

}  // namespace

struct TokenStream::Storage {
  std::string name;  // of the file, or empty
  MappedFile file;
  std::vector<uint16_t> small;
  std::vector<uint32_t> large;
};

TokenStream::TokenStream(const std::vector<int32_t>& tokens, int64_t vocab_size)
    : size_(static_cast<int64_t>(tokens.size())), vocab_size_(vocab_size) {
  auto storage = std::make_shared<Storage>();
  if (vocab_size <= kSmall) {
    storage->small.assign(tokens.begin(), tokens.end());
    data_ = storage->small.data();
  } else {
    storage->large.assign(tokens.begin(), tokens.end());
    data_ = storage->large.data(), bytes_each_ = 4;
  }
  storage_ = std::move(storage);
}

TokenStream::TokenStream(const std::string& path, int bytes_each, int64_t vocab_size)
    : bytes_each_(bytes_each), vocab_size_(vocab_size) {
  auto storage = std::make_shared<Storage>();
  storage->name = path, storage->file = MappedFile(path);
  const auto bytes = static_cast<int64_t>(storage->file.size());
  if (bytes % bytes_each != 0)
    fail_user("'" + path + "' has " + std::to_string(bytes) + " bytes, which is no whole number of tokens of " +
              std::to_string(bytes_each) + " bytes");
  size_ = bytes / bytes_each;
  data_ = storage->file.data();
  storage_ = std::move(storage);
}

TokenStream TokenStream::part(int64_t first, int64_t count) const {
  TokenStream part = *this;
  part.data_ = static_cast<const std::byte*>(data_) + first * bytes_each_;
  part.size_ = count, part.first_ = first_ + first;
  return part;
}

void TokenStream::drop_pages() const { storage_->file.drop_pages(); }

void TokenStream::read(int64_t first, int64_t count, int32_t* out) const {
  if (first < 0 || count < 0 || first + count > size_) fail_internal("tokens beyond the end of a stream");
  const auto copy = [&]<class T>(const T* data) {
    for (int64_t i = 0; i < count; ++i) out[i] = static_cast<int32_t>(data[first + i]);
  };
  if (bytes_each_ == 2)
    copy(static_cast<const uint16_t*>(data_));
  else
    copy(static_cast<const uint32_t*>(data_));
  if (storage_->file.data()) check_lost_pages(storage_->file.data());
  for (int64_t i = 0; i < count; ++i)
    if (out[i] < 0 || out[i] >= vocab_size_)
      fail_user((storage_->name.empty() ? "the text" : "'" + storage_->name + "'") + ": token " +
                std::to_string(first_ + first + i) + " is " + std::to_string(static_cast<uint32_t>(out[i])) +
                ", and the vocabulary has " + std::to_string(vocab_size_) + " tokens");
}

}  // namespace linnet
