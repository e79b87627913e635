// What filters, tests and methods of the template language share: arguments of calls, and operations on texts.
#pragma once
#include <string>

#include "data/text/chat/jinja_program.h"

namespace linnet::jinja {

inline constexpr const char* kSpace = " \t\n\r\f\v";

const std::string& text_of(const Value& value, const char* what);
std::string text_argument(const Arguments& arguments, size_t location, const char* name, const std::string& otherwise);
int64_t integer_argument(const Arguments& arguments, size_t location, const char* name, int64_t otherwise);
bool flag_argument(const Arguments& arguments, size_t location, const char* name);
std::string stripped(const std::string& text, const std::string& characters, bool left, bool right);
// ASCII letters only: chat templates change the case of roles and names of types.
std::string with_case(std::string text, bool upper);
std::string capitalized(const std::string& text, bool each_word);
List split(const std::string& text, const Arguments& arguments);
size_t length_of(const Value& value);
List pairs_of(const Dict& dict);
// "a.b" of a value, as map(attribute=...) and selectattr() name it.
Value attribute_of(Value value, const std::string& path);
std::string replaced(const std::string& text, const std::string& from, const std::string& to, int64_t count,
                     const Budget& budget);
// The elements with the argument between them.
Value join_filter(const Value& value, const Arguments& arguments, const Budget& budget);
Value strip_of(const Value& value, const Arguments& arguments, bool left, bool right);
// The only argument.
const Value& other(const Arguments& arguments);

}  // namespace linnet::jinja
