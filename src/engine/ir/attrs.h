// The attributes of a node: one small struct per op, held with value semantics. The graph does not know the types.
#pragma once
#include <concepts>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <variant>
#include <vector>
#include "base/enum_names.h"
#include "base/fail.h"
#include "engine/ir/tensor_type.h"

namespace linnet {
// A struct that lists its members once, in `void fields(FieldVisitor& visit)`, gets a text and exact equality from it.
//
//   struct SplitAttrs {
//     int axis = 0;
//     std::vector<int64_t> sizes;
//     void fields(FieldVisitor& visit) { visit("axis", axis), visit("sizes", sizes); }
//   };
//
// Each member has a default value, and the text leaves out members that have it. Every bit of a float counts.

class FieldVisitor;

template <class T>
concept HasFields = requires(T& t, FieldVisitor& visit) {
  t.fields(visit);
};

// Visitors must not change members.
class FieldVisitor {
 public:
  virtual ~FieldVisitor() = default;

  virtual void operator()(const char* name, bool& value) = 0;
  template <class T>
  requires std::is_arithmetic_v<T>
  void operator()(const char* name, T& value) {
    if constexpr (std::signed_integral<T>) member(name, int64_t{value});
    else member(name, value);
  }
  void operator()(const char* name, Shape& value) { member(name, value.sizes()); }
  void operator()(const char* name, std::vector<int64_t>& value) { member(name, std::span<const int64_t>(value)); }
  void operator()(const char* name, std::vector<float>& value) { member(name, std::span<const float>(value)); }
  void operator()(const char* name, std::vector<double>& value) { member(name, std::span<const double>(value)); }
  void operator()(const char* name, std::vector<int>& value);
  void operator()(const char* name, TensorType& value);

  // An enumeration with names (base/enum_names.h).
  template <class E>
  requires std::is_enum_v<E>
  void operator()(const char* name, E& value) { enumeration(name, static_cast<int64_t>(value), enum_names(E{})); }
  template <HasFields T> void operator()(const char* name, T& value) {
    begin(name);
    value.fields(*this);
    end();
  }
  template <HasFields T> void operator()(const char* name, std::vector<T>& values) {
    begin_list(name, static_cast<int64_t>(values.size()));
    for (T& value : values) (*this)("", value);
    end();
  }

 protected:
  using Value = std::variant<int64_t, uint64_t, double, float, std::span<const int64_t>, std::span<const float>,
      std::span<const double>>;
  virtual void member(const char* name, const Value& value) = 0;
  // `index` must be within the names.
  virtual void enumeration(const char* name, int64_t index, std::span<const char* const> names) = 0;
  virtual void begin(const char* name) = 0;  // members of a member
  virtual void begin_list(const char* name, int64_t count) = 0;
  virtual void end() = 0;
};

// The members of a struct as bytes: equal exactly if all members are equal, bit for bit.
using WalkFields = void (*)(void* value, FieldVisitor& visit);
std::string field_bytes(WalkFields walk, const void* value);

// "trans_b bias activation=relu": the members that differ from `defaults`. A bool is named alone.
std::string fields_text(WalkFields walk, const void* value, const void* defaults);
// The names of true bools and the values of enumerations that differ: the kind of node, without sizes and numbers.
std::vector<std::string> field_words(WalkFields walk, const void* value, const void* defaults);

template <HasFields T> void walk_fields(void* value, FieldVisitor& visit) { static_cast<T*>(value)->fields(visit); }

class Attrs {
 public:
  Attrs() = default;
  template <HasFields T> Attrs(T value)
      : held_(std::make_shared<const Holder<T>>(std::move(value))) {}  // NOLINT: a struct is an attribute

  template <HasFields T> const T& as() const {
    const auto* holder = dynamic_cast<const Holder<T>*>(held_.get());
    if (!holder) fail_internal("a node's attributes are not of type ", typeid(T).name());
    return holder->value;
  }

  // For people; see fields_text() and field_words().
  std::string text() const { return held_ ? held_->text() : ""; }
  std::vector<std::string> words() const { return held_ ? held_->words() : std::vector<std::string>{}; }
  // As a key: equal bytes are equal attributes of an op.
  std::string bytes() const { return held_ ? held_->bytes() : ""; }
  bool operator==(const Attrs& other) const;

 private:
  struct Base {
    virtual ~Base() = default;
    virtual std::string text() const = 0;
    virtual std::vector<std::string> words() const = 0;
    virtual std::string bytes() const = 0;
    virtual const std::type_info& type() const = 0;
  };
  template <class T> struct Holder final : Base {
    explicit Holder(T v) : value(std::move(v)) {}
    std::string text() const override {
      if constexpr (requires { value.text(); }) return value.text();  // the struct has a form of its own
      const T defaults{};
      return fields_text(walk_fields<T>, &value, &defaults);
    }
    std::vector<std::string> words() const override {
      const T defaults{};
      return field_words(walk_fields<T>, &value, &defaults);
    }
    std::string bytes() const override { return field_bytes(walk_fields<T>, &value); }
    const std::type_info& type() const override { return typeid(T); }
    T value;
  };
  std::shared_ptr<const Base> held_;
};
}  // namespace linnet
