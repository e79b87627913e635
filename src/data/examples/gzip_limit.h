// A small gzip file may expand to more than any memory: deflate shrinks up to 1032 times (RFC 1951), text and pictures
// 3 to 20 times.
#pragma once
#include <cstdint>
#include <string>

#include "base/error.h"

namespace linnet {

// User error when a gzip file of `compressed` bytes, or so many bytes of it, gives `expanded` bytes: more than 64 MiB
// and more than 200 times as many. Files that are not compressed have no limit.
inline void check_expansion(const std::string& path, uint64_t expanded, uint64_t compressed) {
  constexpr uint64_t kAlwaysAllowed = 64 << 20, kMostTimes = 200;
  if (expanded <= kAlwaysAllowed || expanded / kMostTimes <= compressed) return;
  fail_user(
      "'" + path + "' expands to more than 64 MiB and " + std::to_string(kMostTimes) +
      " times its size, as files made to fill a memory do; if it is what it should be, expand it first (gzip -d)");
}

}  // namespace linnet
