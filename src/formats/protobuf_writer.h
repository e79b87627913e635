// Fields of Protocol Buffers' wire format, appended to a string.
#pragma once
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

namespace linnet {

inline void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>((value & 0x7f) | 0x80);
  out += static_cast<char>(value);
}

template <class T>
void put_little_endian(std::string& out, T value) {
  for (size_t byte = 0; byte < sizeof value; ++byte) out += static_cast<char>((value >> (8 * byte)) & 0xff);
}

inline void put_integer(std::string& out, int field, int64_t value) {
  put_varint(out, static_cast<uint64_t>(field) << 3);
  put_varint(out, static_cast<uint64_t>(value));
}

inline void put_double(std::string& out, int field, double value) {
  put_varint(out, static_cast<uint64_t>(field) << 3 | 1);
  put_little_endian(out, std::bit_cast<uint64_t>(value));
}

inline void put_float(std::string& out, int field, float value) {
  put_varint(out, static_cast<uint64_t>(field) << 3 | 5);
  put_little_endian(out, std::bit_cast<uint32_t>(value));
}

// A text, a message or a packed list.
inline void put_bytes(std::string& out, int field, std::string_view bytes) {
  put_varint(out, static_cast<uint64_t>(field) << 3 | 2);
  put_varint(out, bytes.size());
  out += bytes;
}

}  // namespace linnet
