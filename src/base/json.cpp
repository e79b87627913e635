#include "base/json.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <random>

#include "base/hash.h"
#include "base/json_object.h"

namespace linnet {
namespace {

constexpr size_t kSmall = 8;  // members that are looked through one by one

// A polynomial of the key at a random point, modulo the prime 2^61 - 1: nobody who does not know the point can make
// keys that collide (Carter & Wegman 1979).
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

}  // namespace

size_t Json::Object::position(std::string_view key, size_t* compared) const {
  const auto is_at = [&](size_t i) {
    if (compared) ++*compared;
    return members[i].key == key;
  };
  if (slots.empty()) {
    for (size_t i = 0; i < members.size(); ++i)
      if (is_at(i)) return i;
    return kNone;
  }
  const size_t mask = slots.size() - 1;
  for (size_t slot = hash_key(key) & mask; slots[slot] != kEmpty; slot = (slot + 1) & mask)
    if (is_at(slots[slot])) return slots[slot];
  return kNone;
}

Json& Json::Object::add(std::string key, Json value) {
  members.push_back({std::move(key), std::move(value)});
  if (members.size() > kSmall && 2 * members.size() > slots.size())
    index();
  else if (!slots.empty())
    put(members.size() - 1);
  return members.back().value;
}

void Json::Object::put(size_t member) {
  const size_t mask = slots.size() - 1;
  size_t slot = hash_key(members[member].key) & mask;
  while (slots[slot] != kEmpty) slot = (slot + 1) & mask;
  slots[slot] = static_cast<uint32_t>(member);
}

void Json::Object::index() {
  slots.clear();
  if (members.size() <= kSmall) return;
  slots.assign(4 * std::bit_ceil(members.size()), kEmpty);
  for (size_t i = 0; i < members.size(); ++i) put(i);
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

Json::Members::Members() : object_(new Object) {}
Json::Members::Members(const Members& other) : object_(new Object(*other.object_)) {}
Json::Members::~Members() { delete object_; }

bool Json::Members::equals(const Members& other) const {
  return object_->members.size() == other->members.size() &&
         std::ranges::all_of(object_->members, [&](const Member& member) {
           const size_t same = other->position(member.key);
           return same != Object::kNone && other->members[same].value == member.value;
         });
}

Json::Object& Json::members() const {
  if (!is_object()) fail_type("an object");
  return *std::get<Members>(value_).operator->();
}

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
  object.members.erase(object.members.begin() + static_cast<std::ptrdiff_t>(found));
  object.index();
}

void Json::update(Json other) {
  for (auto& [key, value] : other.items()) (*this)[key] = std::move(value);
}

const std::vector<Json::Member>& Json::items() const { return members().members; }
std::vector<Json::Member>& Json::items() { return members().members; }

size_t Json::probes(std::string_view key) const {
  size_t compared = 0;
  if (is_object()) members().position(key, &compared);
  return compared;
}

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

}  // namespace linnet
