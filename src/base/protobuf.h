// The wire format of Protocol Buffers: https://protobuf.dev/programming-guides/encoding/
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace linnet {
// Reads the fields of one message. `fail` is called with the problem of malformed bytes, and must throw.
class ProtoReader {
 public:
  using Fail = std::function<void(const std::string& problem)>;
  ProtoReader(std::string_view bytes, const Fail& fail) : bytes_(bytes), fail_(fail) {}

  bool next();  // goes to the next field; false at the message's end
  uint64_t number() const { return number_; }
  // The field's value. Another wire type is an error.
  std::string_view data() const { return expect(2), data_; }
  int64_t integer() const { return expect(0), static_cast<int64_t>(value_); }
  float real() const;
  // Calls `add` for each element of a repeated number, packed or not.
  void each_integer(const std::function<void(int64_t)>& add) const;
  void each_real(const std::function<void(float)>& add) const;
  void each_double(const std::function<void(double)>& add) const;

 private:
  void expect(int wire) const;
  template <class T> void each_fixed(int wire, const std::function<void(T)>& add) const;
  [[noreturn]] void fail(const std::string& problem) const;
  uint64_t varint();
  std::string_view take(uint64_t size);

  std::string_view bytes_, data_;
  const Fail& fail_;
  uint64_t number_ = 0, value_ = 0;
  int wire_ = 0;
};

// Appends fields to a string.
class ProtoWriter {
 public:
  void integer(int number, int64_t value);
  void real(int number, float value);
  void real64(int number, double value);
  void text(int number, std::string_view value);  // strings, bytes and messages
  void message(int number, const ProtoWriter& message) { text(number, message.bytes_); }
  void append(const ProtoWriter& fields) { bytes_ += fields.bytes_; }
  // Begins a field of `size` bytes that the caller writes elsewhere.
  void begin(int number, uint64_t size);

  const std::string& bytes() const { return bytes_; }

 private:
  void tag(int number, int wire) { varint(static_cast<uint64_t>(number) << 3 | static_cast<uint64_t>(wire)); }
  template <class T> void real_as(int wire, int number, T value);
  void varint(uint64_t value);
  std::string bytes_;
};
}  // namespace linnet
