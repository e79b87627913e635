// The attributes of a node: one small struct per op that lists its members (engine/ir/fields.h), held by value semantics. The
// graph does not know the types; an op's own code does.
#pragma once
#include <memory>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/ir/fields.h"

namespace linnet {

class Attrs {
 public:
  Attrs() = default;
  template <HasFields T>
  Attrs(T value) : held_(std::make_shared<const Holder<T>>(std::move(value))) {}  // NOLINT: a struct is an attribute

  template <HasFields T>
  const T& as() const {
    const auto* holder = dynamic_cast<const Holder<T>*>(held_.get());
    if (!holder) fail_internal(std::string("a node's attributes are not of type ") + typeid(T).name());
    return holder->value;
  }

  // For people: see fields_text() and field_words().
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
  template <class T>
  struct Holder final : Base {
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
