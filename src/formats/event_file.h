// Event files as TensorBoard reads them: records of u64 length, masked crc32c of it, an Event message
// (tensorflow/core/util/event.proto), masked crc32c of that.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include "base/files.h"

namespace linnet {
class ProtoWriter;  // base/protobuf.h

// CRC-32C (Castagnoli), as in RFC 3720; "123456789" gives 0xe3069283.
uint32_t crc32c(std::string_view bytes);

// Counts finite values in ranges, 8 for each power of two on either side of zero.
class Histogram {
 public:
  void add(std::span<const float> values, double factor = 1);  // values times factor
  // Calls visit(upper limit, count of values above the previous limit and up to this one) with ascending limits. The
  // first count is 0: it only gives the second's lower limit.
  template <class Visit> void for_each_range(const Visit& visit) const;

  int64_t count = 0;
  double min = 0, max = 0, sum = 0, sum_squares = 0;

 private:
  // By sign, exponent and first 3 bits of the mantissa: the first 12 bits of a float.
  std::array<int64_t, 4096> ranges_{};
};

bool has_event_files(const std::string& folder);

class EventFile {
 public:
  // Makes a new file in `folder`, read after existing ones, and voids their events from `first_step` on, where the run
  // continues. A first file does so too: TensorBoard takes the first such mark for the beginning.
  EventFile(const std::string& folder, int64_t first_step);
  ~EventFile();  // writes pending events, if possible

  void add_scalar(int64_t step, std::string_view tag, double value);
  void add_histogram(int64_t step, std::string_view tag, const Histogram& histogram);
  void add_text(int64_t step, std::string_view tag, std::string_view markdown);
  // Writes what was added, as also happens every few seconds. Error(kSystem) if the disk is full.
  void flush();
  const std::string& path() const { return path_; }

 private:
  void add_value(int64_t step, const ProtoWriter& summary_value);
  void add_event(const ProtoWriter& fields);

  std::string path_, buffer_;
  Descriptor descriptor_;
  double flushed_ = 0;  // seconds since the epoch
};
}  // namespace linnet
