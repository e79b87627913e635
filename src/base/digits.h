// Numbers as text that is read back as the same number.
#pragma once
#include <charconv>
#include <string>

namespace linnet {

// Appends the shortest such digits: "0.1", "1e-12".
template <class T>
void append_shortest(std::string& text, T value) {
  char digits[32];
  text.append(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
}

template <class T>
std::string shortest(T value) {
  std::string text;
  append_shortest(text, value);
  return text;
}

}  // namespace linnet
