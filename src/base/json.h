// The JSON value class. The header is cheap to include; only json.cpp includes nlohmann's parser.
#pragma once
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>
#include "base/error.h"
#include "base/functions.h"

namespace linnet {
// A user error: a text that is not JSON, or a value of another type. Without a known subject the message starts with
// the verb: "is not JSON: ...", "has no \"name\"".
class JsonError : public Error {
 public:
  explicit JsonError(const std::string& message, std::string key = "")
      : Error(ErrorKind::kUser, message), key(std::move(key)) {}
  const std::string key;  // of the object, "" if it is about no key of one
};

// Limits of a parser. Reading is linear in the text; the limits bound the memory that a text can ask for.
struct JsonLimits {
  size_t bytes;                     // of the text
  int depth;                        // of lists and objects within each other
  size_t values;                    // in all; each key has one
  bool refuses_duplicates = false;  // else the last of two equal keys counts, at the place of the first

  constexpr JsonLimits with_unique_keys() const { return {bytes, depth, values, true}; }
  static constexpr JsonLimits request() { return {size_t{64} << 20, 64, 100'000}; }     // of strangers
  static constexpr JsonLimits settings() { return {size_t{64} << 20, 64, 2'000'000}; }  // config.json
  static constexpr JsonLimits tables() { return {size_t{1} << 30, 100, 50'000'000}; }   // tokenizer.json, headers
};

// Any JSON value. An object keeps the order of its keys and finds one in constant time.
class Json {
 public:
  struct Member;
  struct Item;  // of a braced list

  Json() = default;  // null
  Json(std::nullptr_t) {}
  template <std::same_as<bool> T> Json(T value) : value_(value) {}
  template <std::integral T>
  requires(!std::same_as<T, bool>) Json(T value) {
    if (std::in_range<int64_t>(value)) value_ = static_cast<int64_t>(value);
    else value_ = static_cast<uint64_t>(value);
  }
  template <std::floating_point T> Json(T value) : value_(static_cast<double>(value)) {}
  Json(std::string value) : value_(std::move(value)) {}
  Json(std::string_view value) : value_(std::string(value)) {}
  Json(const char* value) : value_(std::string(value)) {}
  template <class T> Json(const std::vector<T>& values) : value_(List(values.begin(), values.end())) {}
  template <class Map>
  requires requires { typename Map::mapped_type; }
  Json(const Map& map) : Json(object()) {
    for (const auto& [key, value] : map) (*this)[key] = value;
  }
  // {{"name", 1}, {"other", {2, 3}}}: pairs that begin with a string make an object, anything else a list.
  Json(std::initializer_list<Item> items);
  static Json object() { return Json(Value(Members())); }
  static Json array() { return Json(Value(List())); }
  static Json array(std::initializer_list<Item> items);

  // Throws JsonError. `subject` begins its message: "'config.json'".
  static Json parse(std::string_view text, const JsonLimits& limits);
  static Json parse(std::string_view text, const std::string& subject, const JsonLimits& limits);
  // Returns null for text that is not JSON or beyond the limits.
  static Json parse_or_null(std::string_view text, const JsonLimits& limits);

  bool is_null() const { return holds<std::nullptr_t>(); }
  bool is_boolean() const { return holds<bool>(); }
  bool is_string() const { return holds<std::string>(); }
  bool is_array() const { return holds<List>(); }
  bool is_object() const { return holds<Members>(); }
  bool is_float() const { return holds<double>(); }  // written with a point or an exponent
  bool is_integer() const { return holds<int64_t>(); }
  bool is_integer(int64_t least, int64_t most) const;
  bool is_natural() const { return holds<uint64_t>() || is_integer(0, std::numeric_limits<int64_t>::max()); }
  bool is_number() const { return is_float() || holds<int64_t>() || holds<uint64_t>(); }

  // The value as a bool, an integer, a floating-point number (integers are converted), a string or a vector of these.
  // Throws JsonError for another type.
  template <class T> T get() const;
  template <class T> void get_to(T& out) const { out = get<T>(); }
  std::optional<int64_t> whole_number() const;  // also of 5.0, as some programs write integers
  const std::string& text() const;              // of a string
  std::string& text();

  // For objects. find() returns null if the key is absent or the value is no object.
  const Json* find(std::string_view key) const;
  Json* find(std::string_view key);
  bool contains(std::string_view key) const { return find(key) != nullptr; }
  const Json& at(std::string_view key) const;  // JsonError where the key is absent
  template <class T> T value(std::string_view key, T otherwise) const {
    const Json* found = find(key);
    return found ? found->get<T>() : otherwise;
  }
  std::string value(std::string_view key, const char* otherwise) const { return value(key, std::string(otherwise)); }
  Json& operator[](std::string_view key);  // null if it was absent; null itself becomes an object
  const Json& operator[](std::string_view key) const { return at(key); }
  void erase(std::string_view key);  // linear
  void update(Json other);           // sets all members of `other`
  const std::vector<Member>& items() const;
  std::vector<Member>& items();  // whose keys must stay

  // For lists. Other values have no elements.
  const Json* begin() const { return elements().data(); }
  const Json* end() const { return elements().data() + elements().size(); }
  Json* begin() { return const_cast<Json*>(std::as_const(*this).begin()); }
  Json* end() { return const_cast<Json*>(std::as_const(*this).end()); }
  template <std::integral T> const Json& operator[](T index) const { return element(index); }
  template <std::integral T> const Json& operator[](T index) {  // not a key: 0 is also a null pointer
    return element(index);
  }
  void push_back(Json value);  // null itself becomes a list
  void resize(size_t size);

  size_t size() const;  // of a list or object: 0 for null, 1 for anything else
  bool empty() const { return size() == 0; }

  // An indent below 0 gives one line. Numbers are the shortest text that reads back exactly; non-finite ones are null,
  // and bytes that are not UTF-8 become U+FFFD.
  std::string dump(int indent = -1) const;
  std::string dump_ascii() const;                  // with \u escapes
  std::string dump_if_utf8() const;                // JsonError for a string that is not UTF-8
  std::string dump_sorted(int indent = -1) const;  // the keys of all objects by their bytes
  void sort_keys();

  friend bool operator==(const Json& a, const Json& b) { return a.equals(b); }  // the order of keys does not count

 private:
  friend class JsonBuilder;
  struct Object;
  class Members {  // owns an Object, which is not complete here: clang needs that of a vector's elements
   public:
    Members();
    Members(const Members& other);
    Members(Members&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
    Members& operator=(Members other) noexcept { return std::swap(object_, other.object_), *this; }
    ~Members();
    Object& operator*() const { return *object_; }
    bool operator==(const Members& other) const;

   private:
    Object* object_;
  };
  using List = std::vector<Json>;
  using Value = std::variant<std::nullptr_t, bool, int64_t, uint64_t, double, std::string, List, Members>;
  explicit Json(Value value) : value_(std::move(value)) {}

  template <class T> bool holds() const { return std::holds_alternative<T>(value_); }
  const List& elements() const;
  const Json& element(size_t index) const;
  bool equals(const Json& other) const;
  const Object& members() const;  // of an object
  Object& members();
  bool to_bool() const;
  double to_double() const;
  int64_t to_int64() const;
  uint64_t to_uint64() const;
  [[noreturn]] void fail_type(const char* expected) const;

  Value value_;
};

struct Json::Member {
  std::string key;
  Json value;
};

struct Json::Object {
  static constexpr size_t kNone = SIZE_MAX;

  size_t position(std::string_view key) const;  // of the member with this key, or kNone
  Json& add(std::string key, Json value);       // a key that is not there yet
  void index();                                 // anew, after members have moved
  bool operator==(const Object& other) const;

  std::vector<Member> members = {};
  std::vector<uint32_t> slots = {};  // a hash table of positions in `members`; empty while these are few
};

// An element of a braced list. It can be moved out, unlike elements of an initializer_list.
struct Json::Item {
  template <class T>
  requires(!std::same_as<std::remove_cvref_t<T>, Item> && std::constructible_from<Json, T>) Item(T&& from)
      : value(std::forward<T>(from)) {}
  Item(std::initializer_list<Item> items) : value(items) {}
  mutable Json value;
};

std::string shown(const Json& json);  // for messages: in ASCII, and what is long is cut

template <class T> T Json::get() const {
  if constexpr (std::same_as<T, bool>) {
    return to_bool();
  } else if constexpr (std::floating_point<T>) {
    return static_cast<T>(to_double());
  } else if constexpr (std::unsigned_integral<T>) {
    const uint64_t number = to_uint64();
    if (!std::in_range<T>(number)) fail_type("a smaller integer");
    return static_cast<T>(number);
  } else if constexpr (std::integral<T>) {
    const int64_t number = to_int64();
    if (!std::in_range<T>(number)) fail_type("a smaller integer");
    return static_cast<T>(number);
  } else if constexpr (std::same_as<T, std::string>) {
    return text();
  } else {  // std::vector
    if (!is_array()) fail_type("a list");
    return mapped(*this, &Json::get<typename T::value_type>);
  }
}

// Reads the fields of a JSON object by key. Errors are one line that names the object and the expected value.
// A null field counts as absent, except for find().
class JsonObject {
 public:
  // `value` outlives this. `where` begins every message ("'tokenizer.json': model"); "" for none.
  JsonObject(const Json& value, std::string where);

  const std::string& where() const { return where_; }
  std::string within(const std::string& key) const;  // where() and the key
  const Json* find(const char* key) const;           // null if absent
  bool has(const char* key) const;
  // Without a default value, an absent field is an error. A field of another type always is.
  const Json& at(const char* key) const;
  const Json& list(const char* key) const;
  JsonObject object(const char* key) const;
  std::vector<JsonObject> objects(const char* key) const;  // of a list
  std::string text(const char* key) const;
  std::string text(const char* key, const std::string& otherwise) const { return has(key) ? text(key) : otherwise; }
  std::vector<std::string> texts(const char* key) const;  // of a string or a list of them; empty if absent
  bool flag(const char* key, bool otherwise) const;
  int64_t integer(const char* key) const;  // also 5.0, as some programs write integers
  int64_t integer(const char* key, int64_t otherwise) const { return has(key) ? integer(key) : otherwise; }
  std::optional<int64_t> integer(const char* key, int64_t least, int64_t most) const;
  // A finite number with fits(x); `range` describes the range in errors.
  std::optional<double> number(const char* key, bool (*fits)(double), const std::string& range) const;

  // Keys that are allowed but not read.
  void ignore(std::initializer_list<const char*> keys) const { known_.insert(known_.end(), keys.begin(), keys.end()); }
  // Throws a user error for a key that nothing has asked for. nearest(key, known) is the suggestion; it may be empty.
  void check_names(std::string (*nearest)(std::string_view key, std::span<const std::string> known)) const;
  [[noreturn]] void fail(const std::string& what) const;
  [[noreturn]] void fail(const std::string& key, const std::string& what) const;  // of the field

 private:
  const Json& expect(const char* key, bool (Json::*is)() const, const char* problem) const;

  const Json* value_;
  std::string where_;
  mutable std::vector<std::string> known_;  // keys that were asked for
};
}  // namespace linnet
