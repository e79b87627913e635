// A struct that lists its members once, in `void fields(FieldVisitor& visit)`, has all that follows from the list: a
// text for people, exact equality, a hash, and a form in files.
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

// Visitors that only look at members may be given a struct that is const.
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
    auto index = static_cast<int64_t>(value);
    enumeration(name, index, enum_names(E{}));
    value = static_cast<E>(index);
  }
  template <HasFields T>
  void operator()(const char* name, T& value) {
    begin(name);
    value.fields(*this);
    end();
  }
  template <HasFields T>
  void operator()(const char* name, std::vector<T>& values) {
    auto count = static_cast<int64_t>(values.size());
    begin_list(name, count);
    values.resize(static_cast<size_t>(count));
    for (T& value : values) (*this)("", value);
    end();
  }

 protected:
  // The index stays within the names.
  virtual void enumeration(const char* name, int64_t& index, std::span<const char* const> names) = 0;
  virtual void begin(const char* name) = 0;  // members of a member
  virtual void begin_list(const char* name, int64_t& count) = 0;
  virtual void end() = 0;
};

std::span<const char* const> enum_names(DType);

// Calls value.fields(visit) with a visitor that changes nothing.
template <HasFields T>
void look_at_fields(const T& value, FieldVisitor& visit) {
  const_cast<T&>(value).fields(visit);
}

// The members as bytes: equal bytes are equal members, bit for bit. read_fields() sets members from them; a member that
// the bytes do not hold keeps its value. Error(kUser) naming `what` when the bytes were not made by write_fields().
using WalkFields = void (*)(void* value, FieldVisitor& visit);
std::string write_fields(WalkFields walk, const void* value);
void read_fields(std::string_view bytes, WalkFields walk, void* value, const std::string& what);

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
