#include "formats/event_file.h"
#include <gtest/gtest.h>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>
#include "base/files.h"
#include "temporary_folder.h"

namespace linnet {
namespace {
TEST(EventFile, TheChecksumIsCastagnolis) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283U);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aaU);  // RFC 3720, B.4
  EXPECT_EQ(crc32c(""), 0U);
}

// The messages of a file, whose lengths and checksums must be right.
std::vector<std::string> records(const std::string& path) {
  const std::string bytes = read_file(path);
  std::vector<std::string> messages;
  const auto masked = [](std::string_view text) {
    const uint32_t crc = crc32c(text);
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8U;
  };
  for (size_t at = 0; at < bytes.size();) {
    uint64_t length = 0;
    uint32_t of_length = 0, of_data = 0;
    std::memcpy(&length, bytes.data() + at, 8);
    std::memcpy(&of_length, bytes.data() + at + 8, 4);
    EXPECT_EQ(of_length, masked(std::string_view(bytes).substr(at, 8)));
    messages.push_back(bytes.substr(at + 12, length));
    std::memcpy(&of_data, bytes.data() + at + 12 + length, 4);
    EXPECT_EQ(of_data, masked(messages.back()));
    at += 16 + length;
  }
  return messages;
}

TEST(EventFile, AScalarIsOneRecordAfterTheVersion) {
  const testing::TemporaryFolder folder;
  EventFile file(folder.path(), 1);
  file.add_scalar(300, "train/loss", 0.5);
  file.flush();
  const std::vector<std::string> messages = records(file.path());
  ASSERT_EQ(messages.size(), 3u);
  EXPECT_TRUE(messages[0].ends_with("brain.Event:2"));
  EXPECT_EQ(messages[1].substr(9), std::string("\x10\x01\x3a\x02\x08\x01", 6));  // step 1, session_log { START }
  // After the wall time (9 bytes): step 300, summary { value { tag: "train/loss" simple_value: 0.5 } }.
  const char expected[] = "\x10\xac\x02\x2a\x13\x0a\x11\x0a\x0atrain/loss\x15\x00\x00\x00\x3f";
  EXPECT_EQ(messages[2].substr(9), std::string(expected, sizeof expected - 1));
}

TEST(EventFile, AFileOfAResumedRunComesLaterAndVoidsWhatItRepeats) {
  const testing::TemporaryFolder folder;
  std::string first;
  {
    EventFile file(folder.path(), 1);
    first = file.path();
  }
  const EventFile file(folder.path(), 11);
  EXPECT_GT(file.path().substr(0, file.path().rfind('.')), first.substr(0, first.rfind('.')));
  const std::vector<std::string> messages = records(file.path());
  ASSERT_EQ(messages.size(), 2u);
  EXPECT_EQ(messages[1].substr(9), std::string("\x10\x0b\x3a\x02\x08\x01", 6));  // step 11, session_log { START }
}

TEST(EventFile, AHistogramCountsEveryFiniteValueOnce) {
  const testing::TemporaryFolder folder;
  Histogram histogram;
  histogram.add(std::vector<float>{-2, -2, 0, 1, 3, std::numeric_limits<float>::infinity(), std::nanf("")});
  histogram.add(std::vector<float>{8}, 0.5);
  EXPECT_EQ(histogram.count, 6);
  EXPECT_EQ(histogram.min, -2);
  EXPECT_EQ(histogram.max, 4);
  EXPECT_EQ(histogram.sum, 4);
  EXPECT_EQ(histogram.sum_squares, 34);
  EventFile file(folder.path(), 1);
  file.add_histogram(1, "weights/fc", histogram);
  file.flush();
  const std::vector<std::string> messages = records(file.path());
  // bucket_limit and bucket are the last two fields, packed: five ranges with values, each with a limit below it.
  const std::string& message = messages.at(2);
  double total = 0, last = 0;
  std::memcpy(&last, message.data() + message.size() - 8, 8);
  EXPECT_EQ(last, 1);  // of 4
  for (size_t i = 0; i < 10; ++i) {
    double count = 0;
    std::memcpy(&count, message.data() + message.size() - 80 + 8 * i, 8);
    total += count;
  }
  EXPECT_EQ(total, 6);
}
}  // namespace
}  // namespace linnet
