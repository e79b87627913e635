// The attributes of a node: one small typed struct per op, held by value semantics. The graph does not know the types;
// an op's own code does. Each struct has `std::string text() const`, which names every field: dumps print it, and two
// attributes are the same when their texts are.
#pragma once
#include <concepts>
#include <memory>
#include <string>
#include <typeinfo>
#include <utility>

#include "base/error.h"

namespace linnet {

template <class T>
concept AttrStruct = requires(const T& t) {
  { t.text() } -> std::convertible_to<std::string>;
};

class Attrs {
 public:
  Attrs() = default;
  template <AttrStruct T>
  Attrs(T value) : held_(std::make_shared<const Holder<T>>(std::move(value))) {}  // NOLINT: a struct is an attribute

  template <AttrStruct T>
  const T& as() const {
    const auto* holder = dynamic_cast<const Holder<T>*>(held_.get());
    if (!holder) fail_internal(std::string("a node's attributes are not of type ") + typeid(T).name());
    return holder->value;
  }
  std::string text() const { return held_ ? held_->text() : ""; }

 private:
  struct Base {
    virtual ~Base() = default;
    virtual std::string text() const = 0;
  };
  template <class T>
  struct Holder : Base {
    explicit Holder(T v) : value(std::move(v)) {}
    std::string text() const override { return value.text(); }
    T value;
  };
  std::shared_ptr<const Base> held_;
};

}  // namespace linnet
