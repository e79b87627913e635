#include "base/protobuf.h"
#include "base/error.h"
#include "base/numbers.h"

namespace linnet {
namespace {
enum Wire { kVarint = 0, kFixed64 = 1, kLength = 2, kFixed32 = 5 };
}  // namespace

bool ProtoReader::next() {
  if (bytes_.empty()) return false;
  const uint64_t tag = varint();
  number_ = tag >> 3;
  wire_ = static_cast<int>(tag & 7);
  if (number_ == 0 || number_ > 0x1FFFFFFF) fail("a field without a number");
  if (wire_ == kVarint) value_ = varint();
  else if (wire_ == kFixed64 || wire_ == kFixed32) data_ = take(wire_ == kFixed64 ? 8 : 4);
  else if (wire_ == kLength) data_ = take(varint());
  else fail("a field of an unknown kind");
  return true;
}

float ProtoReader::real() const {
  expect(kFixed32);
  return number_at<float>(data_.data());
}

template <class T> void ProtoReader::each_fixed(int wire, const std::function<void(T)>& add) const {
  if (wire_ != kLength) {
    expect(wire);
    return add(number_at<T>(data_.data()));
  }
  if (data_.size() % sizeof(T) != 0) fail("a list of numbers that ends within one");
  for (size_t at = 0; at < data_.size(); at += sizeof(T)) add(number_at<T>(data_.data() + at));
}

void ProtoReader::each_integer(const std::function<void(int64_t)>& add) const {
  if (wire_ != kLength) return add(integer());
  ProtoReader packed(data_, fail_);
  while (!packed.bytes_.empty()) add(static_cast<int64_t>(packed.varint()));
}

void ProtoReader::each_real(const std::function<void(float)>& add) const { each_fixed(kFixed32, add); }
void ProtoReader::each_double(const std::function<void(double)>& add) const { each_fixed(kFixed64, add); }

void ProtoReader::expect(int wire) const {
  if (wire_ != wire) fail("field " + std::to_string(number_) + " has the wrong type");
}

void ProtoReader::fail(const std::string& problem) const {
  fail_(problem);
  fail_internal("a reader went on after an error");
}

uint64_t ProtoReader::varint() {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const auto byte = static_cast<unsigned char>(take(1)[0]);
    value |= static_cast<uint64_t>(byte & 127) << shift;
    if (byte < 128) return value;
  }
  fail("a number without an end");
}

std::string_view ProtoReader::take(uint64_t size) {
  if (size > bytes_.size()) fail("it ends too soon");
  const std::string_view part = bytes_.substr(0, size);
  bytes_.remove_prefix(size);
  return part;
}

void ProtoWriter::varint(uint64_t value) {
  for (; value >= 128; value >>= 7) bytes_ += static_cast<char>((value & 127) | 128);
  bytes_ += static_cast<char>(value);
}

void ProtoWriter::integer(int number, int64_t value) {
  tag(number, kVarint);
  varint(static_cast<uint64_t>(value));
}

template <class T> void ProtoWriter::real_as(int wire, int number, T value) {
  tag(number, wire);
  bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void ProtoWriter::real(int number, float value) { real_as(kFixed32, number, value); }
void ProtoWriter::real64(int number, double value) { real_as(kFixed64, number, value); }

void ProtoWriter::text(int number, std::string_view value) {
  begin(number, value.size());
  bytes_ += value;
}

void ProtoWriter::begin(int number, uint64_t size) {
  tag(number, kLength);
  varint(size);
}
}  // namespace linnet
