// What filters, tests and methods of the template language share: arguments of calls, and operations on texts.
#pragma once
#include <string>
#include "data/text/chat/jinja_program.h"

namespace linnet::jinja {

inline constexpr const char* kSpace = " \t\n\r\f\v";

// "" for no name. An error that names what is not defined; `rest` ends it.
const std::string& name_of(const Value& missing);
void check_defined(const Value& value, const std::string& rest = "");
const std::string& text_of(const Value& value, const char* what);
std::string text_argument(const Arguments& arguments, size_t location, const char* name, const std::string& otherwise);
int64_t integer_argument(const Arguments& arguments, size_t location, const char* name, int64_t otherwise);
bool flag_argument(const Arguments& arguments, size_t location, const char* name);
// ASCII letters only: chat templates change the case of roles and names of types.
std::string with_case(std::string text, bool upper);
std::string capitalized(const std::string& text, bool each_word);
// Where `part` begins in `text` at `from` or behind it, in linear time; npos if nowhere.
size_t find_text(const std::string& text, const std::string& part, size_t from, Budget& budget);
const Value* find_key(const Dict& dict, const std::string& key, Budget& budget);
// The byte at which the character begins that is `count` behind the one at `begin`; the text's size beyond its end.
size_t character_offset(const std::string& text, size_t begin, size_t count);
List split(const std::string& text, const Arguments& arguments, Budget& budget);
size_t length_of(const Value& value, Budget& budget);
List pairs_of(const Dict& dict, Budget& budget);
// "a.b" of a value, as map(attribute=...) and selectattr() name it.
Value attribute_of(Value value, const std::string& path, Budget& budget);
std::string replaced(const std::string& text, const std::string& from, const std::string& to, int64_t count,
                     Budget& budget);
// The elements with the argument between them.
Value join_filter(const Value& value, const Arguments& arguments, Budget& budget);
Value strip_of(const std::string& text, const Arguments& arguments, bool left, bool right, Budget& budget);
// The only argument.
const Value& other(const Arguments& arguments);

}  // namespace linnet::jinja
