#include "base/json.h"
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>
#include "base/numbers.h"
#include "base/text.h"

namespace linnet {
namespace {
constexpr uint32_t kEmpty = UINT32_MAX;  // of a slot
constexpr size_t kSmall = 8;             // members that are looked through one by one

// A polynomial of the key at a random point, modulo the prime 2^61 - 1: without the point nobody can make keys that
// collide (Carter & Wegman 1979).
uint64_t hash_key(std::string_view key) {
  constexpr uint64_t kPrime = (uint64_t{1} << 61) - 1;
  static const uint64_t point = [] {
    std::random_device device;
    return ((uint64_t{device()} << 32) + device()) % (kPrime - 256) + 256;
  }();
  uint64_t hash = key.size();
  while (!key.empty()) {
    uint64_t part = 0;
    const size_t bytes = std::min<size_t>(key.size(), 7);
    std::memcpy(&part, key.data(), bytes);
    key.remove_prefix(bytes);
    const auto product = static_cast<unsigned __int128>(hash) * point + part;
    hash = static_cast<uint64_t>(product & kPrime) + static_cast<uint64_t>(product >> 61);
    hash = hash >= kPrime ? hash - kPrime : hash;
  }
  return mix64(hash);  // the last part alone is in the lowest bits
}

// The slot of the key by linear probing: the one with is_at(its position), or the empty one for it.
template <class IsAt> size_t slot_of(const std::vector<uint32_t>& slots, std::string_view key, const IsAt& is_at) {
  const size_t mask = slots.size() - 1;
  size_t slot = hash_key(key) & mask;
  while (slots[slot] != kEmpty && !is_at(slots[slot])) slot = (slot + 1) & mask;
  return slot;
}

void put(std::vector<uint32_t>& slots, std::string_view key, size_t position) {
  slots[slot_of(slots, key, [](size_t) { return false; })] = static_cast<uint32_t>(position);
}

enum class Strings { kReplaced, kAscii, kUtf8 };  // what becomes of bytes that are not ASCII or not UTF-8

class Writer {
 public:
  Writer(int indent, Strings strings) : indent_(indent), strings_(strings) {}

  void write(const Json& json) {
    if (json.is_object())
      write_all(json.items(), '{', '}', [&](const Json::Member& member) {
        write(member.key);
        out_ += indent_ < 0 ? ":" : ": ";
        write(member.value);
      });
    else if (json.is_array()) write_all(json, '[', ']', [&](const Json& element) { write(element); });
    else if (json.is_string()) write(json.text());
    else if (json.is_float()) write(json.get<double>());
    else if (json.is_boolean()) out_ += json.get<bool>() ? "true" : "false";
    else if (json.is_null()) out_ += "null";
    else out_ += json.is_natural() ? std::to_string(json.get<uint64_t>()) : std::to_string(json.get<int64_t>());
  }
  std::string take() { return std::move(out_); }

 private:
  template <class Range, class WriteOne>
  void write_all(const Range& range, char begin, char end, const WriteOne& write_one) {
    out_ += begin;
    ++depth_;
    const char* comma = "";
    for (const auto& one : range) {
      out_ += comma;
      begin_line();
      write_one(one);
      comma = ",";
    }
    --depth_;
    if (*comma) begin_line();
    out_ += end;
  }
  void begin_line() {
    if (indent_ >= 0) (out_ += '\n').append(indent_ * depth_, ' ');
  }

  void write(double number) {
    if (!std::isfinite(number)) return void(out_ += "null");  // JSON has no other word for it
    char digits[64];
    out_.append(digits, nlohmann::detail::to_chars(digits, digits + sizeof digits, number));
  }

  void write(const std::string& text) {
    const auto is_plain = [](unsigned char c) { return c >= ' ' && c < 0x7f && c != '"' && c != '\\'; };
    if (std::ranges::all_of(text, is_plain)) return void(((out_ += '"') += text) += '"');
    using Handler = nlohmann::json::error_handler_t;
    try {
      out_ += nlohmann::json(text).dump(
          -1, ' ', strings_ == Strings::kAscii, strings_ == Strings::kUtf8 ? Handler::strict : Handler::replace);
    } catch (const nlohmann::json::exception&) {
      throw JsonError("is not valid UTF-8");
    }
  }

  const int indent_;
  const Strings strings_;
  int depth_ = 0;
  std::string out_;
};

std::string written(const Json& json, int indent, Strings strings) {
  Writer writer(indent, strings);
  writer.write(json);
  return writer.take();
}
}  // namespace

Json::Members::Members() : object_(new Object) {}
Json::Members::Members(const Members& other) : object_(new Object(*other)) {}
Json::Members::~Members() { delete object_; }
bool Json::Members::operator==(const Members& other) const { return *object_ == *other; }

size_t Json::Object::position(std::string_view key) const {
  const auto is_at = [&](size_t i) { return members[i].key == key; };
  if (slots.empty()) {
    for (size_t i = 0; i < members.size(); ++i)
      if (is_at(i)) return i;
    return kNone;
  }
  const uint32_t found = slots[slot_of(slots, key, is_at)];
  return found == kEmpty ? kNone : found;
}

Json& Json::Object::add(std::string key, Json value) {
  members.push_back({std::move(key), std::move(value)});
  if (members.size() > kSmall && 2 * members.size() > slots.size()) index();
  else if (!slots.empty()) put(slots, members.back().key, members.size() - 1);
  return members.back().value;
}

void Json::Object::index() {
  slots.clear();
  if (members.size() <= kSmall) return;
  slots.assign(4 * std::bit_ceil(members.size()), kEmpty);
  for (size_t i = 0; i < members.size(); ++i) put(slots, members[i].key, i);
}

bool Json::Object::operator==(const Object& other) const {
  return members.size() == other.members.size() && std::ranges::all_of(members, [&](const Member& member) {
    const size_t same = other.position(member.key);
    return same != kNone && other.members[same].value == member.value;
  });
}

Json::Json(std::initializer_list<Item> items) {
  const auto is_member = [](const Item& item) {
    return item.value.is_array() && item.value.size() == 2 && item.value.element(0).is_string();
  };
  if (!std::ranges::all_of(items, is_member)) {
    *this = array(items);
    return;
  }
  *this = object();
  for (const Item& item : items) (*this)[item.value.begin()[0].text()] = std::move(item.value.begin()[1]);
}

Json Json::array(std::initializer_list<Item> items) {
  List list;
  list.reserve(items.size());
  for (const Item& item : items) list.push_back(std::move(item.value));
  return Json(Value(std::move(list)));
}

const Json::Object& Json::members() const {
  if (!is_object()) fail_type("an object");
  return *std::get<Members>(value_);
}
Json::Object& Json::members() { return const_cast<Object&>(std::as_const(*this).members()); }

std::string shown(const Json& json) {
  constexpr size_t kLongest = 100;
  const std::string text = json.dump_ascii();
  return text.size() > kLongest ? text.substr(0, kLongest) + "..." : text;
}

void Json::fail_type(const char* expected) const { throw JsonError("is " + shown(*this) + ", expected " + expected); }

bool Json::is_integer(int64_t least, int64_t most) const {
  const int64_t* number = std::get_if<int64_t>(&value_);
  return number && *number >= least && *number <= most;
}

bool Json::to_bool() const {
  if (!is_boolean()) fail_type("true or false");
  return std::get<bool>(value_);
}

double Json::to_double() const {
  if (const double* number = std::get_if<double>(&value_)) return *number;
  if (const int64_t* number = std::get_if<int64_t>(&value_)) return static_cast<double>(*number);
  if (const uint64_t* number = std::get_if<uint64_t>(&value_)) return static_cast<double>(*number);
  fail_type("a number");
}

int64_t Json::to_int64() const {
  if (!is_integer()) fail_type("an integer");
  return std::get<int64_t>(value_);
}

std::optional<int64_t> Json::whole_number() const {
  if (is_integer()) return to_int64();
  const double* number = std::get_if<double>(&value_);
  if (!number || !(std::abs(*number) < 0x1p53) || std::floor(*number) != *number) return {};
  return static_cast<int64_t>(*number);
}

uint64_t Json::to_uint64() const {
  if (!is_natural()) fail_type("an integer of 0 or more");
  const uint64_t* large = std::get_if<uint64_t>(&value_);
  return large ? *large : static_cast<uint64_t>(std::get<int64_t>(value_));
}

const std::string& Json::text() const {
  if (!is_string()) fail_type("a string");
  return std::get<std::string>(value_);
}
std::string& Json::text() { return const_cast<std::string&>(std::as_const(*this).text()); }

const Json* Json::find(std::string_view key) const {
  if (!is_object()) return nullptr;
  const Object& object = members();
  const size_t found = object.position(key);
  return found == Object::kNone ? nullptr : &object.members[found].value;
}
Json* Json::find(std::string_view key) { return const_cast<Json*>(std::as_const(*this).find(key)); }

const Json& Json::at(std::string_view key) const {
  const Object& object = members();
  if (const size_t found = object.position(key); found != Object::kNone) return object.members[found].value;
  throw JsonError("has no \"" + std::string(key) + "\"");
}

Json& Json::operator[](std::string_view key) {
  if (is_null()) *this = object();
  Object& object = members();
  const size_t found = object.position(key);
  return found == Object::kNone ? object.add(std::string(key), {}) : object.members[found].value;
}

void Json::erase(std::string_view key) {
  Object& object = members();
  const size_t found = object.position(key);
  if (found == Object::kNone) return;
  object.members.erase(object.members.begin() + found);
  object.index();
}

void Json::update(Json other) {
  for (auto& [key, value] : other.items()) (*this)[key] = std::move(value);
}

const std::vector<Json::Member>& Json::items() const { return members().members; }
std::vector<Json::Member>& Json::items() { return members().members; }

const Json::List& Json::elements() const {
  static const List none;
  return is_array() ? std::get<List>(value_) : none;
}

const Json& Json::element(size_t index) const {
  if (!is_array()) fail_type("a list");
  if (index >= size()) throw JsonError("has no element " + std::to_string(index + 1));
  return elements()[index];
}

void Json::push_back(Json value) {
  if (is_null()) *this = array();
  if (!is_array()) fail_type("a list");
  std::get<List>(value_).push_back(std::move(value));
}

void Json::resize(size_t size) {
  if (!is_array()) fail_type("a list");
  std::get<List>(value_).resize(size);
}

size_t Json::size() const {
  if (is_object()) return items().size();
  return is_array() ? elements().size() : is_null() ? 0 : 1;
}

bool Json::equals(const Json& other) const {
  const bool other_type = value_.index() != other.value_.index();
  return other_type && is_number() && other.is_number() ? to_double() == other.to_double() : value_ == other.value_;
}

std::string Json::dump_sorted(int indent) const {
  Json sorted = *this;
  sorted.sort_keys();
  return sorted.dump(indent);
}

void Json::sort_keys() {
  for (Json& element : *this) element.sort_keys();
  if (!is_object()) return;
  Object& object = members();
  for (Member& member : object.members) member.value.sort_keys();
  std::ranges::sort(object.members, {}, &Member::key);
  object.index();
}

// Builds the tree from the parser's events. Only the innermost open container grows, so open containers do not move.
class JsonBuilder {
 public:
  explicit JsonBuilder(const JsonLimits& limits) : limits_(limits) {}

  Json take() { return std::move(root_); }

  bool null() { return add(Json()); }
  bool boolean(bool value) { return add(Json(value)); }
  bool number_integer(int64_t value) { return add(Json(value)); }
  bool number_unsigned(uint64_t value) { return add(Json(value)); }
  bool number_float(double value, const std::string&) { return add(Json(value)); }
  bool string(std::string& value) { return add(Json(std::move(value))); }
  bool binary(nlohmann::json::binary_t&) { return false; }  // no text has it
  bool start_object(size_t) { return open(Json::object()); }
  bool start_array(size_t) { return open(Json::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(std::string& key) {
    Json::Object& object = open_.back()->members();
    const size_t found = object.position(key);
    if (found == Json::Object::kNone) {
      slot_ = &object.add(std::move(key), {});
    } else {
      if (limits_.refuses_duplicates) throw JsonError("names " + shown(Json(key)) + " twice", key);
      slot_ = &(object.members[found].value = Json());
    }
    return true;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::json::exception& error) {
    std::string what = error.what();
    if (const size_t at = what.find("] "); at != std::string::npos) what = what.substr(at + 2);
    constexpr size_t kLongest = 300;  // it repeats what was read last
    if (what.size() > kLongest) what = what.substr(0, kLongest) + "...";
    throw JsonError(one_line("is not JSON: " + what));
  }

 private:
  bool add(Json value) { return insert(std::move(value)) != nullptr; }

  Json* insert(Json value) {
    if (++values_ > limits_.values) throw JsonError("has more than " + std::to_string(limits_.values) + " values");
    if (open_.empty()) return &(root_ = std::move(value));
    if (open_.back()->is_object()) return &(*slot_ = std::move(value));
    return &std::get<Json::List>(open_.back()->value_).emplace_back(std::move(value));
  }

  bool open(Json container) {
    if (static_cast<int>(open_.size()) >= limits_.depth)
      throw JsonError("nests deeper than " + std::to_string(limits_.depth) + " levels");
    open_.push_back(insert(std::move(container)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  const JsonLimits& limits_;
  Json root_;
  std::vector<Json*> open_;
  Json* slot_ = nullptr;  // the value of the key that was read last
  size_t values_ = 0;
};

Json Json::parse(std::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.bytes) throw JsonError("has more than " + std::to_string(limits.bytes) + " bytes of JSON");
  JsonBuilder builder(limits);
  nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

Json Json::parse(std::string_view text, const std::string& subject, const JsonLimits& limits) {
  try {
    return parse(text, limits);
  } catch (const JsonError& error) {
    throw JsonError(one_line(subject + " " + error.what()), error.key);
  }
}

Json Json::parse_or_null(std::string_view text, const JsonLimits& limits) {
  try {
    return parse(text, limits);
  } catch (const JsonError&) {
    return {};
  }
}

std::string Json::dump(int indent) const { return written(*this, indent, Strings::kReplaced); }
std::string Json::dump_ascii() const { return written(*this, -1, Strings::kAscii); }
std::string Json::dump_if_utf8() const { return written(*this, -1, Strings::kUtf8); }
}  // namespace linnet
