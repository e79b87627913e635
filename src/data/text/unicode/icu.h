// The functions of ICU that tokenizers call. Its library is loaded when the first of them is needed, which no text of
// ASCII characters does: a program that tokenizes such texts alone runs without it, and every program starts faster.
#pragma once
#include <unicode/ubrk.h>
#include <unicode/uchar.h>
#include <unicode/unorm2.h>
#include <unicode/utext.h>

namespace linnet {

struct IcuFunctions {
  decltype(&::u_charAge) char_age;
  decltype(&::u_charType) char_type;
  decltype(&::u_getCombiningClass) combining_class;
  decltype(&::u_hasBinaryProperty) has_binary_property;
  decltype(&::u_tolower) to_lower;

  decltype(&::unorm2_getNFCInstance) nfc;
  decltype(&::unorm2_getNFDInstance) nfd;
  decltype(&::unorm2_getNFKCInstance) nfkc;
  decltype(&::unorm2_getNFKDInstance) nfkd;
  decltype(&::unorm2_getDecomposition) decomposition;
  decltype(&::unorm2_hasBoundaryBefore) has_boundary_before;
  decltype(&::unorm2_normalize) normalize;

  decltype(&::ubrk_open) open_breaks;
  decltype(&::ubrk_close) close_breaks;
  decltype(&::ubrk_setUText) set_break_text;
  decltype(&::ubrk_first) first_break;
  decltype(&::ubrk_next) next_break;
  decltype(&::utext_openUTF8) open_utf8;
  decltype(&::utext_close) close_text;
};

// Loads the library, once. Throws Error(kSystem) naming the file when it is missing or of another version than the one
// that Linnet was built with.
const IcuFunctions& icu();

}  // namespace linnet
