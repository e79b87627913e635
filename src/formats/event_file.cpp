#include "formats/event_file.h"
#include <fcntl.h>
#include <algorithm>
#include <bit>
#include <charconv>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <utility>
#include "base/error.h"
#include "base/protobuf.h"

namespace linnet {
namespace {
constexpr double kFlushEvery = 5;  // seconds
constexpr std::string_view kPrefix = "events.out.tfevents.";

// Numbers of fields: of Event, SessionLog, Summary and Summary.Value, HistogramProto, TensorProto.
constexpr int kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7;
constexpr int kStatus = 1, kStart = 1;
constexpr int kValue = 1, kTag = 1, kSimpleValue = 2, kHistogram = 5, kTensor = 8, kMetadata = 9;
constexpr int kMin = 1, kMax = 2, kCount = 3, kSum = 4, kSumSquares = 5, kLimits = 6, kCounts = 7;
constexpr int kTensorType = 1, kTensorOfStrings = 7, kTensorShape = 2, kStringValue = 8;

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

constexpr auto kCrcs = [] {  // by byte
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    table[byte] = byte;
    for (int bit = 0; bit < 8; ++bit) table[byte] = (table[byte] >> 1) ^ (table[byte] & 1 ? 0x82f63b78U : 0);
  }
  return table;
}();

// TFRecord's mask of stored crcs, which makes crcs of crcs safe.
uint32_t masked(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8U; }

// From the newest file's name; 0: none.
int64_t newest_file(const std::string& folder) {
  int64_t newest = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    int64_t time = 0;
    if (name.starts_with(kPrefix)) std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), time);
    newest = std::max(newest, time);
  }
  return newest;
}

std::string host_name() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  std::string text = name;
  std::erase_if(text, [](unsigned char c) { return !std::isalnum(c) && c != '-'; });
  return text.empty() ? "host" : text;
}

template <class T> void append(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// The largest magnitude with these first 12 bits (without sign).
double upper_limit(uint32_t range) { return std::bit_cast<float>((range << 20) | 0xfffff); }
}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t crc = ~uint32_t{0};
  for (const char c : bytes) crc = (crc >> 8) ^ kCrcs[(crc ^ static_cast<uint8_t>(c)) & 0xff];
  return ~crc;
}

void Histogram::add(std::span<const float> values, double factor) {
  for (const float value : values) {
    const auto scaled = static_cast<float>(value * factor);
    if (!std::isfinite(scaled)) continue;
    const double x = scaled;
    min = count == 0 ? x : std::min(min, x), max = count == 0 ? x : std::max(max, x);
    ++count, sum += x, sum_squares += x * x;
    ++ranges_[std::bit_cast<uint32_t>(scaled) >> 20];
  }
}

template <class Visit> void Histogram::for_each_range(const Visit& visit) const {
  constexpr uint32_t kHalf = 2048;  // ranges of one sign
  if (count == 0) return;
  // Readers take the limit before a range as its lower end, so it must be written.
  bool open = false;
  const auto range = [&](double lower, double upper, int64_t values) {
    if (values > 0) {
      if (!open) visit(lower, int64_t{0});
      visit(upper, values);
    }
    open = values > 0;
  };
  for (uint32_t i = kHalf - 1; i > 0; --i) range(-upper_limit(i), -upper_limit(i - 1), ranges_[kHalf + i]);
  range(-upper_limit(0), upper_limit(0), ranges_[0] + ranges_[kHalf]);
  for (uint32_t i = 1; i < kHalf; ++i) range(upper_limit(i - 1), upper_limit(i), ranges_[i]);
}

bool has_event_files(const std::string& folder) { return newest_file(folder) > 0; }

EventFile::EventFile(const std::string& folder, int64_t first_step) {
  const int64_t newest = newest_file(folder), time = std::max(static_cast<int64_t>(wall_time()), newest + 1);
  path_ =
      folder + "/" + std::string(kPrefix) + std::to_string(time) + "." + host_name() + "." + std::to_string(getpid());
  descriptor_ = Descriptor(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!descriptor_.open()) fail_errno("cannot create '" + path_ + "'");
  ProtoWriter version, status, fields;
  version.text(kFileVersion, "brain.Event:2");
  add_event(version);
  status.integer(kStatus, kStart);
  fields.integer(kStep, first_step);
  fields.message(kSessionLog, status);
  add_event(fields);
  flush();
}

EventFile::~EventFile() {
  try {
    flush();
  } catch (const Error&) {
    // The disk is full, which is reported elsewhere.
  }
}

void EventFile::add_event(const ProtoWriter& fields) {
  ProtoWriter message;
  std::string length;
  message.real64(kWallTime, wall_time());
  message.append(fields);
  append(length, static_cast<uint64_t>(message.bytes().size()));
  buffer_ += length;
  append(buffer_, masked(crc32c(length)));
  buffer_ += message.bytes();
  append(buffer_, masked(crc32c(message.bytes())));
}

void EventFile::add_value(int64_t step, const ProtoWriter& summary_value) {
  ProtoWriter list, fields;
  list.message(kValue, summary_value);
  fields.integer(kStep, step);
  fields.message(kSummary, list);
  add_event(fields);
  if (wall_time() - flushed_ > kFlushEvery) flush();
}

void EventFile::add_scalar(int64_t step, std::string_view tag, double value) {
  ProtoWriter fields;
  fields.text(kTag, tag);
  fields.real(kSimpleValue, static_cast<float>(value));
  add_value(step, fields);
}

void EventFile::add_histogram(int64_t step, std::string_view tag, const Histogram& values) {
  std::string limits, counts;
  values.for_each_range([&](double limit, int64_t count) {
    append(limits, limit);
    append(counts, static_cast<double>(count));
  });
  ProtoWriter message, fields;
  message.real64(kMin, values.min);
  message.real64(kMax, values.max);
  message.real64(kCount, static_cast<double>(values.count));
  message.real64(kSum, values.sum);
  message.real64(kSumSquares, values.sum_squares);
  message.text(kLimits, limits);
  message.text(kCounts, counts);
  fields.text(kTag, tag);
  fields.message(kHistogram, message);
  add_value(step, fields);
}

// A string tensor, with metadata that name the plugin which shows it.
void EventFile::add_text(int64_t step, std::string_view tag, std::string_view markdown) {
  ProtoWriter size, shape, text, plugin, metadata, fields;
  size.integer(1, 1);      // TensorShapeProto.Dim.size
  shape.message(2, size);  // TensorShapeProto.dim
  text.integer(kTensorType, kTensorOfStrings);
  text.message(kTensorShape, shape);
  text.text(kStringValue, markdown);
  plugin.text(1, "text");       // SummaryMetadata.PluginData.plugin_name
  metadata.message(1, plugin);  // SummaryMetadata.plugin_data
  fields.text(kTag, tag);
  fields.message(kTensor, text);
  fields.message(kMetadata, metadata);
  add_value(step, fields);
}

void EventFile::flush() {
  flushed_ = wall_time();
  const std::string bytes = std::exchange(buffer_, {});
  if (!write_all(descriptor_.get(), bytes.data(), bytes.size())) fail_errno("cannot write '" + path_ + "'");
}
}  // namespace linnet
