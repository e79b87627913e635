// Numbers and strings as bytes, little-endian, for what Linnet writes into files of its own (graphs, plans).
#pragma once
#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "base/error.h"

namespace linnet {

static_assert(std::endian::native == std::endian::little, "files are written in the machine's own order");

class ByteWriter {
 public:
  template <class T>
  void number(T value) {
    static_assert(std::is_arithmetic_v<T>);
    char bytes[sizeof value];
    std::memcpy(bytes, &value, sizeof value);
    bytes_.append(bytes, sizeof value);
  }
  void string(std::string_view text) {
    number(static_cast<uint32_t>(text.size()));
    bytes_ += text;
  }
  const std::string& bytes() const { return bytes_; }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// Throws Error(kUser) "WHAT is damaged: ..." when the bytes end early.
class ByteReader {
 public:
  ByteReader(std::string_view bytes, std::string what) : bytes_(bytes), what_(std::move(what)) {}

  template <class T>
  T number() {
    static_assert(std::is_arithmetic_v<T>);
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string_view string() { return take(number<uint32_t>()); }
  // How many elements of at least `least_bytes` each follow; never more than there are bytes for.
  size_t count(size_t least_bytes) {
    const auto value = number<uint32_t>();
    if (value > bytes_.size() / least_bytes) fail("it ends early");
    return value;
  }
  // The next bytes as they are; those of a list, its count included.
  std::string_view bytes(size_t size) { return take(size); }
  std::string_view list_bytes(size_t element_bytes) {
    const char* begin = bytes_.data();
    const size_t elements = count(element_bytes);
    take(elements * element_bytes);
    return {begin, sizeof(uint32_t) + elements * element_bytes};
  }
  bool at_end() const { return bytes_.empty(); }
  [[noreturn]] void fail(const std::string& problem) const { fail_user(what_ + " is damaged: " + problem); }
  const std::string& what() const { return what_; }

 private:
  std::string_view take(size_t size) {
    if (size > bytes_.size()) fail("it ends early");
    const std::string_view part = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return part;
  }

  std::string_view bytes_;
  std::string what_;
};

}  // namespace linnet
