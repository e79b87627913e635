// A struct that lists its members once, in `void fields(FieldVisitor& visit)`, has all that follows from the list: a
// text for people and exact equality.
//
//   struct SplitAttrs {
//     int axis = 0;
//     std::vector<int64_t> sizes;
//     void fields(FieldVisitor& visit) { visit("axis", axis), visit("sizes", sizes); }
//   };
//
// Each member has a default value; the text leaves out members that have it. Floating-point numbers keep every bit.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "engine/ir/tensor_type.h"

namespace linnet {

class FieldVisitor;

template <class T>
concept HasFields = requires(T& t, FieldVisitor& visit) {
  t.fields(visit);
};

// Visitors only look at members.
class FieldVisitor {
 public:
  virtual ~FieldVisitor() = default;

  virtual void operator()(const char* name, bool& value) = 0;
  virtual void operator()(const char* name, int64_t& value) = 0;
  virtual void operator()(const char* name, uint64_t& value) = 0;
  virtual void operator()(const char* name, double& value) = 0;
  virtual void operator()(const char* name, float& value) = 0;
  virtual void operator()(const char* name, Shape& value) = 0;
  virtual void operator()(const char* name, std::vector<int64_t>& value) = 0;
  virtual void operator()(const char* name, std::vector<float>& value) = 0;

  void operator()(const char* name, int& value);
  void operator()(const char* name, int16_t& value);
  void operator()(const char* name, std::vector<int>& value);
  void operator()(const char* name, TensorType& value);

  // An enumeration from 0 on whose names, in order, enum_names(E) gives as a span of C strings.
  template <class E>
  requires std::is_enum_v<E>
  void operator()(const char* name, E& value) {
    enumeration(name, static_cast<int64_t>(value), enum_names(E{}));
  }
  template <HasFields T>
  void operator()(const char* name, T& value) {
    begin(name);
    value.fields(*this);
    end();
  }
  template <HasFields T>
  void operator()(const char* name, std::vector<T>& values) {
    begin_list(name, static_cast<int64_t>(values.size()));
    for (T& value : values) (*this)("", value);
    end();
  }

 protected:
  // The index stays within the names.
  virtual void enumeration(const char* name, int64_t index, std::span<const char* const> names) = 0;
  virtual void begin(const char* name) = 0;  // members of a member
  virtual void begin_list(const char* name, int64_t count) = 0;
  virtual void end() = 0;
};

std::span<const char* const> enum_names(DType);

// The members of a struct as bytes: those of two values are equal if all members are, bit for bit.
using WalkFields = void (*)(void* value, FieldVisitor& visit);
std::string field_bytes(WalkFields walk, const void* value);

// "trans_b bias activation=relu": the members of `value` that differ from those of `defaults`. A bool is named alone.
std::string fields_text(WalkFields walk, const void* value, const void* defaults);
// The names of the bools that are true and the values of the enumerations that differ: what kind of node it is, without
// sizes and numbers.
std::vector<std::string> field_words(WalkFields walk, const void* value, const void* defaults);

template <HasFields T>
void walk_fields(void* value, FieldVisitor& visit) {
  static_cast<T*>(value)->fields(visit);
}

}  // namespace linnet
